"""The help pages of nodes and their topics, as `pages` describes them."""

from typing import Final

from rumormill.cli.shared_flags import PROTOCOL_NAMES

NODE_PAGES: Final = {
    "demo": f"""\
run real nodes with every protocol, kill some, and compare

Run real nodes on this machine, each in a process of its own, with one protocol
after another. They publish comments of Reddit, a third of them is killed and comes
back, Spark reads along and mills the traces. Prints a comparison, writes a report.

--protocol NAME,...*  which protocols ({PROTOCOL_NAMES}); may be repeated (default: all)
--nodes N = 10       how many nodes, one process each
--events N = 240     how many comments are published
--seed N = 1         decides links and kills
--no-spark           no stream and no report; figures come from the traces
-o, --output FILE.html = report.html
--keep               keep homes, traces and the lake, and say where
--open               open the dashboard, whose address is printed, in a browser
--json               print one JSON object

examples:
  rumormill demo
  rumormill demo --protocol gossipsub,skipring --nodes 6 --events 100 --keep
  rumormill demo --no-spark --seed 7 --json
""",
    "node": """\
run a node until it is told to stop, and print its join tickets

Run a node until SIGINT or SIGTERM. Its join tickets are printed to stdout, one a
line; pub, sub, topics, peers and history of the same home use it while it runs.

@peer
@direct
@durability
--topic TOPIC*       follow this topic from the start, so that the log has all of it; may be
    repeated
@daemon
@flight
--json               print one JSON object instead

examples:
  rumormill node
  rumormill node --listen /ip4/0.0.0.0/tcp/4001 --topic news
  rumormill node --home b --join /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW...
  rumormill node --metrics 127.0.0.1:9464 --log-format json
  rumormill node --flight
""",
    "supervisor": """\
supervise the topics of a skip ring, and print the supervisor's ticket

Run a supervisor of the skip ring until SIGINT or SIGTERM. Its tickets are printed
to stdout, one a line: nodes are told one of them with --supervisor. It tells
subscribers their places and carries no messages. Several supervisors share the
topics; every one of them, and every node, must be told of all.

@peer
@daemon
--ticket             print what its tickets will be, and stop: to tell others before it runs
--json               print one JSON object instead

examples:
  rumormill supervisor --home sup --listen /ip4/0.0.0.0/tcp/4100
  rumormill node --protocol skipring --topic news \\
      --supervisor /ip4/192.0.2.7/tcp/4100/p2p/12D3KooW...
  rumormill supervisor --home sup --listen /ip4/0.0.0.0/tcp/4100 --ticket
  rumormill supervisor --home other --listen /ip4/0.0.0.0/tcp/4101 \\
      --supervisor /ip4/192.0.2.7/tcp/4100/p2p/12D3KooW...
""",
    "serve-store": """\
serve the topics of a home by Arrow Flight, without a node

Serve the topics of a home by Arrow Flight until SIGINT or SIGTERM, read-only. Works
beside a running node. Clients need the token, whose file is printed.

home HOME            the home whose log is served
@flight
--json               print one JSON object

examples:
  rumormill serve-store ~/.rumormill
  rumormill serve-store chat-home --flight 0.0.0.0:4020 --flight-cert cert.pem \\
      --flight-key key.pem
""",
    "pub": """\
publish messages: an argument, or the lines of stdin

Publish messages. Through the node that runs in the home, if one does; otherwise
with a node for this command only, which joins --join or a `sub` of the same home.

topic TOPIC          the topic's name
data [DATA]          the message; without it, stdin
@peer
--key KEY            what the messages are about; who gets them has it beside the data
-H, --header NAME=VALUE*  a note on them, by name; may be repeated
--content-type TYPE  what kind of data they are, such as application/json
--count N            publish DATA so often
--rate N             at most so many messages a second
--sleep SECONDS      pause between messages
--send-on {newline,eof}  stdin is one message a line (default), or one message
--parent CID*        the event that each message follows, in a Pulsarcast topic of custom linking
--wait SECONDS       wait so long for a subscriber (default 5)
--json               print each receipt as a JSON line
-q, --quiet          say nothing but errors

examples:
  rumormill pub news "hello, world"
  seq 1000 | rumormill pub numbers --rate 100
  rumormill pub news < story.txt --send-on eof
  rumormill pub news ping --count 10 --sleep 1 --json
  rumormill pub orders '{"pieces": 2}' --key order-17 -H region=north
  rumormill pub zdpuAoW87Vvr9dAPm... "I agree" --parent zdpuArepliesTo...
""",
    "sub": """\
print the messages of a topic as they come

Print messages as they come. Through the node that runs in the home, if one does;
otherwise with a node for this command only, which prints its ticket to stderr.

topic TOPIC          the topic's name; or a pattern of names: 'news/*' is all that are one level
    below news, 'news/#' all that are below it
@peer
@position
@where
--all                begin with the oldest event of the log, and fetch what was published before
--history {missed,all,none}  what is fetched from other nodes: what was missed since the
    first subscription (default), whatever they keep (with --all), or nothing
--name NAME          a named subscription of the running node: it goes on behind what was printed
    the last time, and several commands of one name share the events
--count N            stop after so many events
--wait SECONDS       stop after so long: exit code 3 if --count was not met
@output
topics that were created (Pulsarcast):
--recursive          take in all sub-topics, and theirs
--tell-versions      say on stderr when the topic has a new version
--follow-versions    say so, and take in later versions
--no-meta            do not subscribe to the meta topic
--keep-meta          stay in the meta topic when leaving the topic
options:
-q, --quiet          say nothing but errors

examples:
  rumormill sub news
  rumormill sub news --count 10 --wait 60 --json
  rumormill sub news --since 1h --format '%T %o %a %s\\n'
  rumormill sub 'news/*' --where 'data.urgent == true' --format '%t %s\\n'
  rumormill sub orders --name billing
  rumormill sub zdpuAoW87Vvr9dAPm... --recursive --follow-versions --format '%t %s\\n'
  rumormill sub news --join /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW...
""",
    "groups": """\
list named subscriptions: where they are, what is pending, how far behind

List the named subscriptions of the home: the offset at which each goes on, events that
are handed out and not acknowledged, events behind them in the log, and who consumes it
now. Works with and without a running node.

topic [TOPIC]        one topic; all of them, if none is named
@place
options:
--forget NAME        forget the subscription of this name to TOPIC, which nobody may have open
--json               print one JSON object a line

examples:
  rumormill groups
  rumormill groups orders --json
  rumormill groups orders --forget billing
""",
    "retention": """\
show what is kept of topics, and what is beyond that

Show each topic's rule, what the log has of it, and how much of that is beyond the
rule: of the running node, or of the settings where none runs. A running node deletes
that by itself, every minute; --apply deletes it now. What was deleted does not come
back, and offsets stay as they are.

topic [TOPIC]        one topic; all of the log, if none is named
@place
--retain RULE*       other rules, for this command alone: 7d, 10gb, 100000events; TOPIC=RULE for
    one topic; may be repeated
--apply              delete what is beyond
--json               print one JSON object a line

examples:
  rumormill retention
  rumormill retention --retain 30d --retain news=1gb,90d
  rumormill retention news --retain 7d --apply
""",
    "backup": """\
copy a home, also of a running node, and verify the copy

Copy the home as it is at one moment (identity, configuration and log) to a new
directory, read all of the copy and verify it. A node that runs goes on. A backup is a
home: history, topics and doctor read it. Do not run a node in it while the other runs.

to DIR               a directory that does not exist
@place
options:
--json               print one JSON object

examples:
  rumormill backup /srv/backups/monday
  rumormill backup monday --home b --json
""",
    "restore": """\
make a home have what a backup has, also while its node runs

Verify a backup, and make the home have what it has; the running node does it, and goes
on. A log with events is left alone without --replace, and even then its database stays
beside the new one, until `rumormill compact --old`. Offsets beyond the backup stay
empty and are not used again. A home of another identity is refused.

source DIR           the backup
@place
options:
--replace            replace the log that is there
--json               print one JSON object

examples:
  rumormill restore /srv/backups/monday --home new
  rumormill restore monday --replace
""",
    "export": """\
write the log's events to a Parquet file, also of a running node

Write all events, or those of some topics, with their hashes to a Parquet file, which
pyarrow, DuckDB and Spark read, and `rumormill import` takes in.

file FILE.parquet    a file that does not exist
@place
options:
--topic TOPIC*       this topic; may be repeated (default: all)
--json               print one JSON object

examples:
  rumormill export everything.parquet
  rumormill export news.parquet --topic news --json
""",
    "import": """\
take in an exported Parquet file, also into a running node

Read a file that `rumormill export` wrote, check every hash, id and signature in it,
and append what the log does not have, at the same offsets. Nothing is taken of a file
with an event that does not prove itself, or of a topic whose events the log has in
another order: let a node `sync` those.

file FILE.parquet    what was exported
@place
options:
--json               print one JSON object

examples:
  rumormill import everything.parquet --home new
  rumormill import news.parquet --json
""",
    "compact": """\
give space that the log does not use back to the file system

Give back what deleted events have left in the database, and the write-ahead log. The
running node does it, beside its work; where none runs, this command.

@place
options:
--old                delete the databases, too, that a repair or a restore has put aside
--json               print one JSON object

examples:
  rumormill compact
  rumormill compact --old --home b
""",
    "repair": """\
make a damaged log usable again, also while its node runs

Keep every event that can be proved, and record the rest as lost: its offsets stay
empty, and history goes on behind them. The running node does it, and goes on. The
damaged database stays beside the new one. Exit code 4 if events were lost.

@place
options:
--json               print one JSON object

examples:
  rumormill repair
  rumormill repair --home b --json
""",
    "sync": """\
compare the node's topics with all connected nodes, and fetch what is missing

Compare what the running node has of a topic, or of all that it follows, with every
connected node, and fetch what is missing. It does so by itself all the time; this is
for who wants to know that it is done. On a terminal it says how many events it has got.

topic [TOPIC]        one topic; all that are followed, if none is named
--home DIR           the node's directory (~/.rumormill)
--config FILE        settings, as TOML
--wait SECONDS = 60  stop when nothing has come for so long: exit code 3
--json               print one JSON object

examples:
  rumormill sync
  rumormill sync news --wait 10 --json
""",
    "history": """\
print what the log of a home has of a topic

Print the events of a topic in the home's log, each one verified, and stop.
`history verify TOPIC` checks the names, links and signatures of a Pulsarcast topic,
or the names and signatures of a skip ring's, and prints the hash over all of it.
Works with and without a running node.

topic [verify] TOPIC  the topic's name
subject [SUBJECT]
@place
options:
@keys
@position
@where
--count N            print at most so many events
--order {offset,links}  as they came into this log (default), or each behind the one that it
    links to, the same in every log that has the same (Pulsarcast)
--complete           first fetch what other nodes have, and in pulsarcast what the DHT has, as
    far back as links go or --since says; what is missing is named on stderr
--from CID*          with --complete: this event is one of the topic, go back from there too; may be
    repeated
--most N             with --complete: fetch at most so many events
--graph              draw which event follows which
@output

examples:
  rumormill history news
  rumormill history news --offset -10 --json
  rumormill history readings --where 'data.celsius > 30'
  rumormill history news --since 2026-01-31T12:00:00 --count 5
  rumormill history zdpuAoW87Vvr9dAPmkykJRFERe1SwDAatoTG1Zy26uqLP6v5h --graph
  rumormill history zdpuAoW87Vvr9dAPmkykJRFERe1SwDAatoTG1Zy26uqLP6v5h --order links
  rumormill history zdpuAoW87Vvr9dAPmkykJRFERe1SwDAatoTG1Zy26uqLP6v5h --complete --most 1000
  rumormill history verify zdpuAoW87Vvr9dAPmkykJRFERe1SwDAatoTG1Zy26uqLP6v5h
""",
    "get": """\
get one event by its CID, from the DHT

Print the event of a CID, wherever it is: in this home's topics or in the DHT of the
network. Its author need not be there, and its topic need not be followed. Its name,
its signatures and, where the topic can be found, its publisher's permission are
checked. Through the node that runs in the home, if one does; otherwise with a node
for this command only, which joins --join. For pulsarcast.

event CID            the event's CID, or its id as `history --json` shows it
@peer
--timeout SECONDS = 30  stop after so long: exit code 3
@output

examples:
  rumormill get zdpuAoW87Vvr9dAPmkykJRFERe1SwDAatoTG1Zy26uqLP6v5h
  rumormill get zdpuAoW87Vvr9dAPmkykJRFERe1SwDAatoTG1Zy26uqLP6v5h --json --timeout 5 \\
      --protocol pulsarcast --join /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW...
""",
    "topics": """\
list topics, create one, or show what is known of one

List topics: how many events the log has, and how many peers subscribe.
`topics create NAME` makes a Pulsarcast topic and prints its CID, by which everybody
else knows it; its author is the home's identity. `topics show CID` prints its
descriptor, its sub-topics and its versions, `topics tree CID` draws all sub-topics
below it. All use the node that runs in the home. Without one, create starts a node
there for as long as it takes, and show and tree read what the home has kept, or ask
the nodes of --join.

action [{list,create,show,tree}]  what to do
subject [NAME|CID]   the topic
a new topic:
--allow PEER*        who may publish, and nobody else: a peer id, author, or anyone; may be
    repeated (default: the preset's)
--request-to-publish  others may ask those who may publish to do it for them (default)
--no-request-to-publish  nobody may ask
--requester PEER*    only this peer may ask; repeatable
--linking HOW        what an event follows: last-seen (default), or custom: what its publisher
    names
--sub-topic NAME=CID*  link an existing topic under a name; may be repeated
--parent CID         make a new version of this topic
@peer
--json               print one JSON object (list: a line)

examples:
  rumormill topics --json
  rumormill topics create news --allow author --allow 12D3KooW... --linking custom
  rumormill topics create town-hall --allow anyone
  rumormill topics create notices --no-request-to-publish
  rumormill topics create news --parent zdpuAoW87Vvr9dAPm...
  rumormill topics show zdpuAoW87Vvr9dAPmkykJRFERe1SwDAatoTG1Zy26uqLP6v5h
  rumormill topics tree zdpuAoW87Vvr9dAPmkykJRFERe1SwDAatoTG1Zy26uqLP6v5h
""",
    "peers": """\
list the peers of the running node

List the peers to which the node of the home, or a node of --join, is connected.

@peer
--json               print one JSON object a line

examples:
  rumormill peers
  rumormill peers --json --join /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW...
""",
    "ticket": """\
print what others need to join the running node

Print one ticket with all addresses of the node of the home. With --network it names
some of the node's peers as well, so that it is of use when this node is not there.

@place
options:
--network            name other nodes of the network too
--json               print one JSON object

examples:
  rumormill ticket
  rumormill node --home b --join $(rumormill ticket --network)
""",
    "network": """\
make the key of a private network

`network new` writes a new key into FILE, readable by you alone; a file that exists is
left as it is. Give it to every member, over a channel you trust: nodes with --network
talk with nobody who does not have it. go-libp2p, js-libp2p and rust-libp2p read the
same file. `network show` prints its fingerprint, which members may compare openly.

action {new,show}    what to do
file [FILE]          the key file (default swarm.key)
--json               print one JSON object

examples:
  rumormill network new
  rumormill node --network swarm.key --listen /ip4/0.0.0.0/tcp/4001
  rumormill network show swarm.key --json
""",
    "topic-key": """\
make the key of an encrypted topic

`topic-key new` writes a new key into FILE, readable by you alone; a file that exists
is left as it is. Give it to everybody who may read the topic, over a channel you
trust: nodes with --topic-key encrypt what they publish there, and whoever has no key
relays and keeps what it cannot read. A file may have several keys, one a line: the
first one encrypts, all decrypt. `topic-key rotate` puts a new one in front: give the
file to everybody again, to those who publish last, and have running nodes `reload` it.
`topic-key show` prints the ids of the keys.

action {new,rotate,show}  what to do
file FILE            the key file
--json               print one JSON object

examples:
  rumormill topic-key new orders.key
  rumormill node --topic orders --topic-key orders=orders.key
  rumormill topic-key rotate orders.key
  rumormill topic-key show orders.key --json
""",
    "policy": """\
say who may publish in a topic

`policy new` writes a policy into FILE, signed by the identity of the home; a file
that exists is left as it is. Nodes with --policy take events of the topic from those
publishers only, and pass no others on. A higher version replaces a lower one of the
same owner. `policy show` checks the signature and prints what it says.

action {new,show}    what to do
file FILE            the policy
--topic TOPIC        the topic's name
--publisher PEER*    who may publish; may be repeated
--number N           the policy's version (default 1)
@place
options:
--json               print one JSON object

examples:
  rumormill policy new --topic orders --publisher 12D3KooW... orders.policy
  rumormill node --topic orders --policy orders.policy
  rumormill policy show orders.policy --json
""",
    "reload": """\
have the running node read its settings, keys and policies again

The node of the home reads its configuration file again, and the files of keys and
policies: keys as they are there now, of policies the later versions. Retention, logging
and further topics, tickets, keys and policies are used at once; of other settings it is
said that they wait for a restart. If anything cannot be used, everything stays as it is,
and the command says why. SIGHUP does the same.

@place
options:
--json               print one JSON object

examples:
  rumormill topic-key rotate orders.key && rumormill reload
  rumormill reload --home /srv/mill
""",
}
