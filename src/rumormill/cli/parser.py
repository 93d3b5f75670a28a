"""What can be typed: verbs, options, help pages.

The rule: the parser knows names, not values. Values stay text and are read by the configuration
they end up in, which knows what is allowed there, so that a flag and a line of a scenario file are
refused with the same sentence. Only the standard library is imported here, for speed.
"""

from typing import Final

from rumormill.cli.grammar import Formatter, Parser, Verbs, add_verb, late
from rumormill.cli.mill_verbs import add_mill_verbs
from rumormill.cli.node_verbs import add_node_verbs
from rumormill.cli.options import LOAD, NETWORK, PROTOCOLS, WHAT_RUNS
from rumormill.version import __version__

SIM_EXAMPLES: Final = """\
examples:
  rumormill sim --peers 1000 --messages 60 --degree 20
  rumormill sim --protocol gossipsub --set D=8 --set flood_publish=false --json
  rumormill sim --compare floodsub,gossipsub,gossipsub:ethereum --workload reddit2007 \\
      --messages 500 --latency planetlab
  rumormill sim storm.toml --seed 7 --churn 5% --trace storm.ndjson
  rumormill sim --list-parameters --protocol gossipsub
"""

DEMO_EXAMPLES: Final = """\
examples:
  rumormill demo
  rumormill demo --protocol gossipsub,skipring --nodes 6 --events 100 --keep
  rumormill demo --no-spark --seed 7 --json
"""

INSPECT_EXAMPLES: Final = """\
examples:
  rumormill inspect topic topic.json --json
  rumormill inspect event a665746f706963d82a...
  rumormill inspect rpc - < rpc.bin
  rumormill inspect cid zdpuAyQ8Hxva27SaGcPaiaqmwjykQrZMebTN3HCTDvp7umTus
"""

MAIN_EXAMPLES: Final = """\
examples:
  rumormill sub news
  rumormill pub news "hello, world"
  rumormill sim --peers 100 --latency planetlab
  rumormill sim --compare floodsub,gossipsub
  source <(rumormill completion bash)
"""


def build_parser() -> Parser:
    """Make the parser of every verb."""
    parser = Parser(
        prog="rumormill",
        description="Brokerless topic publish/subscribe: nodes, and a simulator to study them.",
        epilog=MAIN_EXAMPLES,
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rumormill {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_demo(verbs)
    add_node_verbs(verbs)
    _add_sim(verbs)
    add_mill_verbs(verbs)
    _add_inspect(verbs)
    _add_completion(verbs).set_defaults(parser=parser)
    return parser


def _add_demo(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "demo",
        brief="run real nodes with every protocol, kill some, and compare",
        text=(
            "Run real nodes on this machine, each in a process of its own, with one protocol\n"
            "after another. They publish comments of Reddit, a third of them is killed and comes\n"
            "back, Spark reads along and mills the traces. Prints a comparison, writes a report."
        ),
        epilog=DEMO_EXAMPLES,
        run=late("rumormill.cli.demo", "run_demo"),
    )
    verb.add_argument(
        "--protocol",
        action="append",
        default=[],
        metavar="NAME,...",
        help=f"which protocols ({', '.join(PROTOCOLS)}); may be repeated (default: all)",
    )
    verb.add_argument("--nodes", metavar="N", help="how many nodes, one process each (10)")
    verb.add_argument("--events", metavar="N", help="how many comments are published (240)")
    verb.add_argument("--seed", metavar="N", help="decides links and kills (1)")
    verb.add_argument("--no-spark", action="store_true", help="no stream, no report; from traces")
    verb.add_argument(
        "-o", "--output", default="report.html", metavar="FILE.html", help="(report.html)"
    )
    verb.add_argument(
        "--keep", action="store_true", help="keep homes, traces and the lake, and say where"
    )
    verb.add_argument("--json", action="store_true", help="print one JSON object")


def _add_inspect(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "inspect",
        brief="show a Pulsarcast descriptor, RPC or CID in all its forms",
        text=(
            "Turn a Pulsarcast descriptor or RPC between readable JSON, dag-cbor, protobuf and\n"
            "CID. What is given is recognised: JSON, hexadecimal or raw bytes."
        ),
        epilog=INSPECT_EXAMPLES,
        run=late("rumormill.cli.inspecting", "run_inspect"),
    )
    verb.add_argument("kind", choices=("topic", "event", "rpc", "cid"), help="what it is")
    verb.add_argument("input", metavar="FILE|HEX|-", help="a file, the thing itself, or stdin")
    verb.add_argument("--json", action="store_true", help="print one JSON object")


def _add_sim(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "sim",
        brief="simulate a network in virtual time and print its figures",
        text=(
            "Simulate a network in virtual time and print its figures.\n"
            "Flags override the scenario file; what neither says has a default."
        ),
        epilog=SIM_EXAMPLES,
        run=late("rumormill.cli.sim", "run_sim"),
    )
    verb.add_argument("scenario", nargs="?", metavar="SCENARIO.toml", help="a scenario file")
    for title, options in (
        ("what runs", WHAT_RUNS),
        ("network", NETWORK),
        ("load", LOAD),
    ):
        group = verb.add_argument_group(title)
        for option in options:
            group.add_argument(option.flag, metavar=option.metavar, help=option.text)
    group = verb.add_argument_group("parameters")
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a parameter of the protocol (D=8) or key of a scenario (links.queue_limit=64);"
        " may be repeated",
    )
    group.add_argument(
        "--list-parameters",
        action="store_true",
        help="print every parameter of the protocol with its value and source, and stop",
    )
    group = verb.add_argument_group("output")
    group.add_argument(
        "--compare",
        metavar="NAME[:PRESET],...",
        help="run several protocols under the same plan and seed, and print them side by side",
    )
    group.add_argument("--json", action="store_true", help="print one JSON object")
    group.add_argument(
        "--trace", metavar="PATH", help="write the trace; the suffix chooses the format"
    )
    group.add_argument(
        "--harness-logs",
        metavar="FOLDER",
        help="write the logs that libp2p's gossipsub-interop analysis reads",
    )
    group.add_argument(
        "--dump-state",
        metavar="PATH",
        help="write the state of all peers at the end as JSON",
    )
    group.add_argument(
        "--check-codec", action="store_true", help="encode and decode every simulated message"
    )
    group.add_argument("--debug", action="store_true", help="show where a failed run failed")


def _add_completion(verbs: Verbs) -> Parser:
    verb = add_verb(
        verbs,
        "completion",
        brief="print a shell's completion script",
        text="Print a script that completes verbs, flags and known values.",
        epilog=(
            "examples:\n"
            "  source <(rumormill completion bash)\n"
            "  source <(rumormill completion zsh)\n"
            "  rumormill completion fish > ~/.config/fish/completions/rumormill.fish\n"
        ),
        run=late("rumormill.cli.completion", "run_completion"),
    )
    verb.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")
    return verb
