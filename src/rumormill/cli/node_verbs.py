"""The verbs of real nodes: what can be typed after them.

Values that a configuration file or the environment can give as well have no default here: `None`
means that nothing was typed, and `cli.settings` decides.
"""

import argparse
from typing import Final

from rumormill.cli.grammar import Option, Parser, Verbs, add_verb, late
from rumormill.cli.options import DURABILITY, FLIGHT_ENDPOINT, PLACE, PROTOCOL_OPTIONS

_FORMAT_HELP: Final = (
    "how to print an event: %%t topic, %%o offset, %%a author, %%s payload, %%S its size,"
    " %%T time received, %%i id, %%%% and \\n \\t \\0 (default '%%s\\n')"
)


def add_node_verbs(verbs: Verbs) -> None:
    """Add every verb that has to do with real nodes."""
    _add_node(verbs)
    _add_supervisor(verbs)
    _add_serve_store(verbs)
    _add_pub(verbs)
    _add_sub(verbs)
    _add_history(verbs)
    _add_lists(verbs)
    _add_doctor(verbs)
    _add_config(verbs)
    _add_bench(verbs)


def _add_options(verb: Parser, title: str, options: tuple[Option, ...]) -> None:
    group = verb.add_argument_group(title)
    for option in options:
        group.add_argument(option.flag, dest=option.key, metavar=option.metavar, help=option.text)


def _add_peer(verb: Parser) -> None:
    """What a node of one's own needs."""
    _add_options(verb, "place", PLACE)
    _add_options(verb, "node", PROTOCOL_OPTIONS)
    verb.add_argument(
        "--join", action="append", metavar="TICKET", help="connect to this node; may be repeated"
    )
    verb.add_argument(
        "--supervisor",
        dest="supervisors",
        action="append",
        metavar="TICKET",
        help="who supervises topics, where the protocol needs it (skipring); name all of them",
    )
    verb.add_argument(
        "--listen",
        action="append",
        metavar="ADDRESS",
        help="where to accept peers (default /ip4/127.0.0.1/tcp/0); may be repeated",
    )
    verb.add_argument(
        "--set",
        action="append",
        metavar="KEY=VALUE",
        help="a parameter of the protocol (D=8), the node (node.max_connections=50) or the log"
        " (store.max_database_bytes=1000000); may be repeated",
    )


def _add_node(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "node",
        brief="run a node until it is told to stop, and print its join tickets",
        text=(
            "Run a node until SIGINT or SIGTERM. Its join tickets are printed to stdout, one a\n"
            "line; pub, sub, topics, peers and history of the same home use it while it runs."
        ),
        epilog=(
            "examples:\n"
            "  rumormill node\n"
            "  rumormill node --listen /ip4/0.0.0.0/tcp/4001 --topic news\n"
            "  rumormill node --home b --join /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW...\n"
            "  rumormill node --metrics 127.0.0.1:9464 --log-format json\n"
            "  rumormill node --flight\n"
        ),
        run=late("rumormill.cli.daemon", "run_node"),
    )
    _add_peer(verb)
    verb.add_argument(
        DURABILITY.flag, dest="durability", metavar=DURABILITY.metavar, help=DURABILITY.text
    )
    verb.add_argument(
        "--topic",
        dest="topics",
        action="append",
        metavar="TOPIC",
        help="follow this topic from the start, so that the log has all of it; may be repeated",
    )
    _add_watching(verb)
    _add_end(verb)
    _add_flight(verb)
    verb.add_argument("--json", action="store_true", help="print one JSON object instead")


def _add_supervisor(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "supervisor",
        brief="supervise the topics of a skip ring, and print the supervisor's ticket",
        text=(
            "Run a supervisor of the skip ring until SIGINT or SIGTERM. Its tickets are printed\n"
            "to stdout, one a line: nodes are told one of them with --supervisor. It tells\n"
            "subscribers their places and carries no messages. Several supervisors share the\n"
            "topics; every one of them, and every node, must be told of all."
        ),
        epilog=(
            "examples:\n"
            "  rumormill supervisor --home sup --listen /ip4/0.0.0.0/tcp/4100\n"
            "  rumormill node --protocol skipring --topic news \\\n"
            "      --supervisor /ip4/192.0.2.7/tcp/4100/p2p/12D3KooW...\n"
            "  rumormill supervisor --home sup --listen /ip4/0.0.0.0/tcp/4100 --ticket\n"
            "  rumormill supervisor --home other --listen /ip4/0.0.0.0/tcp/4101 \\\n"
            "      --supervisor /ip4/192.0.2.7/tcp/4100/p2p/12D3KooW...\n"
        ),
        run=late("rumormill.cli.daemon", "run_supervisor"),
    )
    _add_peer(verb)
    _add_watching(verb)
    _add_end(verb)
    verb.add_argument(
        "--ticket",
        action="store_true",
        help="print what its tickets will be, and stop: to tell others before it runs",
    )
    verb.add_argument("--json", action="store_true", help="print one JSON object instead")


def _add_watching(verb: Parser) -> None:
    """How others see what a node does."""
    verb.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve Prometheus metrics at http://HOST:PORT/metrics",
    )
    verb.add_argument(
        "--trace",
        metavar="FILE.ndjson",
        help="append the trace to this file, for rumormill mill; it survives a kill",
    )


def _add_end(verb: Parser) -> None:
    """When a node stops, besides SIGINT and SIGTERM."""
    verb.add_argument(
        "--until-eof",
        action="store_true",
        help="stop also when stdin, a pipe, is closed: for programs that start nodes, and may die",
    )


def _add_flight(verb: Parser) -> None:
    verb.add_argument(
        "--flight",
        nargs="?",
        const=FLIGHT_ENDPOINT,
        metavar="HOST:PORT",
        help="serve topics to Spark and others by Arrow Flight, to whoever has the token in the"
        f" home's flight.token (at {FLIGHT_ENDPOINT} unless given)",
    )
    verb.add_argument("--flight-cert", metavar="FILE", help="serve it by TLS: certificate in PEM")
    verb.add_argument("--flight-key", metavar="FILE", help="and the certificate's key in PEM")


def _add_serve_store(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "serve-store",
        brief="serve the topics of a home by Arrow Flight, without a node",
        text=(
            "Serve the topics of a home by Arrow Flight until SIGINT or SIGTERM, read-only. Works\n"
            "beside a running node. Clients need the token, whose file is printed."
        ),
        epilog=(
            "examples:\n"
            "  rumormill serve-store ~/.rumormill\n"
            "  rumormill serve-store chat-home --flight 0.0.0.0:4020 --flight-cert cert.pem \\\n"
            "      --flight-key key.pem\n"
        ),
        run=late("rumormill.cli.serving", "run_serve_store"),
    )
    verb.add_argument("home", metavar="HOME", help="the home whose log is served")
    _add_flight(verb)
    verb.add_argument("--json", action="store_true", help="print one JSON object")


def _add_pub(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "pub",
        brief="publish messages: an argument, or the lines of stdin",
        text=(
            "Publish messages. Through the node that runs in the home, if one does; otherwise\n"
            "with a node for this command only, which joins --join or a `sub` of the same home."
        ),
        epilog=(
            "examples:\n"
            '  rumormill pub news "hello, world"\n'
            "  seq 1000 | rumormill pub numbers --rate 100\n"
            "  rumormill pub news < story.txt --send-on eof\n"
            "  rumormill pub news ping --count 10 --sleep 1 --json\n"
        ),
        run=late("rumormill.cli.publishing", "run_pub"),
    )
    verb.add_argument("topic", metavar="TOPIC", help="the topic's name")
    verb.add_argument("data", nargs="?", metavar="DATA", help="the message; without it, stdin")
    verb.late_argument = "data"
    _add_peer(verb)
    verb.add_argument("--count", metavar="N", help="publish DATA so often")
    verb.add_argument("--rate", metavar="N", help="at most so many messages a second")
    verb.add_argument("--sleep", metavar="SECONDS", help="pause between messages")
    verb.add_argument(
        "--send-on",
        choices=("newline", "eof"),
        default="newline",
        help="stdin is one message a line (default), or one message",
    )
    verb.add_argument("--wait", metavar="SECONDS", help="wait so long for a subscriber (default 5)")
    verb.add_argument("--json", action="store_true", help="print each receipt as a JSON line")
    verb.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")


def _add_sub(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "sub",
        brief="print the messages of a topic as they come",
        text=(
            "Print messages as they come. Through the node that runs in the home, if one does;\n"
            "otherwise with a node for this command only, which prints its ticket to stderr."
        ),
        epilog=(
            "examples:\n"
            "  rumormill sub news\n"
            "  rumormill sub news --count 10 --wait 60 --json\n"
            "  rumormill sub news --since 1h --format '%T %o %a %s\\n'\n"
            "  rumormill sub news --join /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW...\n"
        ),
        run=late("rumormill.cli.subscribing", "run_sub"),
    )
    verb.add_argument("topic", metavar="TOPIC", help="the topic's name")
    _add_peer(verb)
    _add_position(verb)
    verb.add_argument("--all", action="store_true", help="begin with the oldest event of the log")
    verb.add_argument("--count", metavar="N", help="stop after so many events")
    verb.add_argument(
        "--wait", metavar="SECONDS", help="stop after so long: exit code 3 if --count was not met"
    )
    _add_output(verb)
    verb.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")


def _add_position(verb: Parser) -> None:
    verb.add_argument(
        "--since", metavar="TIME", help="begin so long ago (90s, 15m, 1h, 2d) or at an ISO time"
    )
    verb.add_argument(
        "--offset", metavar="N", help="begin at this offset of the log; -5: with the last five"
    )


def _add_output(verb: Parser) -> None:
    verb.add_argument("--format", metavar="TEXT", help=_FORMAT_HELP)
    verb.add_argument("--json", action="store_true", help="print one JSON object a line")
    verb.add_argument("--raw", action="store_true", help="print the payloads and nothing between")


def _add_history(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "history",
        brief="print what the log of a home has of a topic",
        text=(
            "Print the events of a topic in the home's log, each one verified, and stop.\n"
            "`history verify TOPIC` checks the names, links and signatures of a Pulsarcast topic,\n"
            "or the names and signatures of a skip ring's, and prints the hash over all of it.\n"
            "Works with and without a running node."
        ),
        epilog=(
            "examples:\n"
            "  rumormill history news\n"
            "  rumormill history news --offset -10 --json\n"
            "  rumormill history news --since 2026-01-31T12:00:00 --count 5\n"
            "  rumormill history zdpuAoW87Vvr9dAPmkykJRFERe1SwDAatoTG1Zy26uqLP6v5h --graph\n"
            "  rumormill history verify zdpuAoW87Vvr9dAPmkykJRFERe1SwDAatoTG1Zy26uqLP6v5h\n"
        ),
        run=late("rumormill.cli.history", "run_history"),
    )
    verb.add_argument("topic", metavar="[verify] TOPIC", help="the topic's name")
    verb.add_argument("subject", nargs="?", help=argparse.SUPPRESS)
    _add_options(verb, "place", PLACE)
    _add_position(verb)
    verb.add_argument("--count", metavar="N", help="print at most so many events")
    verb.add_argument("--graph", action="store_true", help="draw which event follows which")
    _add_output(verb)


def _add_lists(verbs: Verbs) -> None:
    _add_topics(verbs)
    verb = add_verb(
        verbs,
        "peers",
        brief="list the peers of the running node",
        text="List the peers to which the node of the home, or a node of --join, is connected.",
        epilog=(
            "examples:\n"
            "  rumormill peers\n"
            "  rumormill peers --json --join /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW...\n"
        ),
        run=late("rumormill.cli.history", "run_peers"),
    )
    _add_peer(verb)
    verb.add_argument("--json", action="store_true", help="print one JSON object a line")


def _add_topics(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "topics",
        brief="list topics, create one, or show what is known of one",
        text=(
            "List topics: how many events the log has, and how many peers subscribe.\n"
            "`topics create NAME` makes a Pulsarcast topic and prints its CID, by which everybody\n"
            "else knows it; its author is the home's identity. `topics show CID` prints its\n"
            "descriptor, its sub-topics and its versions. Both use the node that runs in the\n"
            "home. Without one, create starts a node there for as long as it takes, and show\n"
            "reads what the home has kept, or asks the nodes of --join."
        ),
        epilog=(
            "examples:\n"
            "  rumormill topics --json\n"
            "  rumormill topics create news --allow author --allow 12D3KooW... --linking custom\n"
            "  rumormill topics create town-hall --allow anyone\n"
            "  rumormill topics create notices --no-request-to-publish\n"
            "  rumormill topics create news --parent zdpuAoW87Vvr9dAPm...\n"
            "  rumormill topics show zdpuAoW87Vvr9dAPmkykJRFERe1SwDAatoTG1Zy26uqLP6v5h\n"
        ),
        run=late("rumormill.cli.topics", "run_topics"),
    )
    verb.add_argument("action", nargs="?", choices=("list", "create", "show"), help="what to do")
    verb.add_argument("subject", nargs="?", metavar="NAME|CID", help="the topic")
    verb.late_argument = "subject"
    group = verb.add_argument_group("a new topic")
    group.add_argument(
        "--allow",
        action="append",
        metavar="PEER",
        help="who may publish, and nobody else: a peer id, author, or anyone; may be repeated"
        " (default: the preset's)",
    )
    group.add_argument(
        "--request-to-publish",
        action="store_true",
        default=None,
        help="others may ask those who may publish to do it for them (default)",
    )
    group.add_argument(
        "--no-request-to-publish",
        dest="request_to_publish",
        action="store_false",
        help="nobody may ask",
    )
    group.add_argument(
        "--requester", action="append", metavar="PEER", help="only this peer may ask; repeatable"
    )
    group.add_argument(
        "--linking",
        metavar="HOW",
        help="what an event follows: last-seen (default), or custom: what its publisher names",
    )
    group.add_argument(
        "--sub-topic",
        dest="sub_topics",
        action="append",
        metavar="NAME=CID",
        help="link an existing topic under a name; may be repeated",
    )
    group.add_argument("--parent", metavar="CID", help="make a new version of this topic")
    _add_peer(verb)
    verb.add_argument("--json", action="store_true", help="print one JSON object (list: a line)")


def _add_doctor(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "doctor",
        brief="check this machine and home, and say what to do",
        text=(
            "Check Python, packages, Java, clock, limits, the home, its key and log, disk and\n"
            "ports, and say what to do about each fault. Nothing is changed."
        ),
        epilog="examples:\n  rumormill doctor\n  rumormill doctor --home b --json\n",
        run=late("rumormill.cli.doctor", "run_doctor"),
    )
    _add_peer(verb)
    for flag in ("--metrics", "--flight"):
        verb.add_argument(flag, metavar="HOST:PORT", help="check that this address is free too")
    verb.add_argument("--json", action="store_true", help="print one JSON object")


def _add_config(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "config",
        brief="show every setting and where it comes from",
        text=(
            "Show every setting with its origin. A flag overrides the environment, which\n"
            "overrides the configuration file, which overrides the default."
        ),
        epilog=(
            "examples:\n"
            "  rumormill config\n"
            "  RUMORMILL_PROTOCOL=floodsub rumormill config --home b --json\n"
        ),
        run=late("rumormill.cli.settings", "run_config"),
    )
    _add_peer(verb)
    verb.add_argument(
        DURABILITY.flag, dest="durability", metavar=DURABILITY.metavar, help=DURABILITY.text
    )
    verb.add_argument("--metrics", metavar="HOST:PORT", help="where metrics are served")
    _add_flight(verb)
    verb.add_argument("--json", action="store_true", help="print one JSON object")


def _add_bench(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "bench",
        brief="measure two nodes on this machine",
        text=(
            "Start two nodes in two processes on this machine, and measure how fast one\n"
            "publishes to the other, and how long a message takes at a moderate rate."
        ),
        epilog=(
            "examples:\n"
            "  rumormill bench\n"
            "  rumormill bench --messages 20000 --size 128 --durability memory --json\n"
        ),
        run=late("rumormill.cli.bench", "run_bench"),
    )
    _add_options(verb, "node", PROTOCOL_OPTIONS)
    verb.add_argument("--messages", default="5000", metavar="N", help="in the burst (5000)")
    verb.add_argument("--size", default="1024", metavar="BYTES", help="payload, at least 16 (1024)")
    verb.add_argument("--rate", default="100", metavar="N", help="for the latency, a second (100)")
    verb.add_argument(
        "--samples", default="300", metavar="N", help="messages for the latency (300)"
    )
    verb.add_argument(
        DURABILITY.flag, dest="durability", metavar=DURABILITY.metavar, help=DURABILITY.text
    )
    verb.add_argument("--json", action="store_true", help="print one JSON object")
