"""Arguments that several verbs have, as `grammar` reads them; a page names them by `@`."""

from typing import Final

PROTOCOLS: Final = ("floodsub", "gossipsub", "pulsarcast", "radius", "skipring")
"""The registry's names, repeated here because help does not import it; a test compares them."""

PROTOCOL_NAMES: Final = ", ".join(PROTOCOLS)

SHARED: Final = {
    "place": """\
place:
--home DIR           identity, log and control socket (default ~/.rumormill)
--config FILE        settings in TOML (default: config.toml in the home)
--log-level LEVEL    debug, info, warning, error (default warning; of a node info)
--log-format FORMAT  text or json, on stderr""",
    "protocol": f"""\
--protocol NAME      {PROTOCOL_NAMES}
--preset NAME        a protocol's named settings, such as ethereum""",
    "peer": """\
@place
node:
@protocol
options:
--join TICKET*       enter the network of this node, or of one of those that the ticket names; one
    ticket is enough, and who was here before needs none; may be repeated
--mdns {on,off}      find nodes on the same link, and be found, without a ticket: on unless said
    otherwise, for a node that --listen lets others reach
--relay TICKET*      be reached through this node, a relay, where nobody can dial us; auto: through
    peers that offer it; may be repeated
--be-relay [ON] = on  be a relay for others, within limits (node.relay_…)
--map-port [ON] = on  have the router lead a port to us (PCP, NAT-PMP, UPnP) while we run
--supervisor TICKET*  who supervises topics, where the protocol needs it (skipring); name all of
    them
--listen ADDRESS*    where to accept peers (default /ip4/127.0.0.1/tcp/0, which only this machine
    reaches; /ip4/0.0.0.0/tcp/4001 is everywhere); may be repeated
--announce ADDRESS*  what others are told instead of where this node listens, as behind a NAT:
    /dns4/mill.example.org/tcp/4001; may be repeated
--network FILE       take part in the private network of this key, and in no other
--allow-peer PEER*   connect with this peer id and others so named, and with nobody else; may be
    repeated
--deny-peer PEER*    do not connect with this peer id; may be repeated
@keys
--policy FILE*       let only those publish in a topic whom this policy names; may be repeated
--set KEY=VALUE*     a parameter of the protocol (D=8), the node (node.max_connections=50) or the
    log (store.max_database_bytes=1000000); sync.KEY, members.KEY (members.enabled=false: look for
    nobody); may be repeated""",
    "keys": """\
--topic-key TOPIC=FILE*  the key file of an encrypted topic; may be repeated""",
    "direct": """\
--direct TICKET*     stay connected to this node and send it everything of its topics, apart from
    any mesh; it should be told the same of us (gossipsub); may be repeated""",
    "durability": """\
--durability MODE    when an event counts as kept: fsync (default), os, memory
--retain RULE*       how much of topics is kept: 7d, 10gb, 100000events, several with commas;
    TOPIC=RULE for one topic (default: everything); may be repeated""",
    "daemon": """\
--metrics HOST:PORT  serve Prometheus metrics at http://HOST:PORT/metrics
--trace FILE.ndjson  append the trace to this file, for rumormill mill; it survives a kill
--until-eof          stop also when stdin, a pipe, is closed: for programs that start nodes, and
    may die""",
    "flight": """\
--flight [HOST:PORT] = 127.0.0.1:4020  serve topics to Spark and others by Arrow Flight, to
    whoever has the token in the home's flight.token (at 127.0.0.1:4020 unless given)
--flight-cert FILE   serve it by TLS: certificate in PEM
--flight-key FILE    and the certificate's key in PEM""",
    "position": """\
--since TIME         begin so long ago (90s, 15m, 1h, 2d) or at an ISO time
--offset N           begin at this offset of the log; -5: with the last five""",
    "where": """\
--where FILTER       only events that it matches, as 'data.celsius > 30 and key == "roof"'""",
    "output": """\
--format TEXT        how to print an event: %t topic, %o offset, %a author, %s payload, %S its
    size, %T time received, %i id, %k key, %h headers (a=1,b=2), %c content type, %% and \\n
    \\t \\0 (default '%s\\n')
--json               print one JSON object a line
--raw                print the payloads and nothing between""",
    "spark": """\
Spark:
--master URL = local[*]  local[2], spark://host:7077, …
--conf KEY=VALUE*    a setting of Spark, such as spark.executor.memory=2g; may be repeated
options:""",
}
