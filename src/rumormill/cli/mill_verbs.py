"""The verbs of the mill: what can be typed after `mill`, `sweep` and `report`."""

from rumormill.cli.grammar import Parser, Verbs, add_verb, late
from rumormill.cli.options import PROTOCOLS


def add_mill_verbs(verbs: Verbs) -> None:
    """Add every verb that fills a lake or reads one."""
    _add_mill(verbs)
    _add_sweep(verbs)
    _add_report(verbs)


def _add_spark(verb: Parser) -> None:
    group = verb.add_argument_group("Spark")
    group.add_argument(
        "--master", default="local[*]", metavar="URL", help="local[2], spark://host:7077, … (local)"
    )
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark, such as spark.executor.memory=2g; may be repeated",
    )


def _add_window(verb: Parser) -> None:
    verb.add_argument(
        "--window", default="1s", metavar="TIME", help="length of a window of figures (1s)"
    )


def _add_mill(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "mill",
        brief="turn traces and histories into the tables of a lake",
        text=(
            "Turn a trace file, a directory of trace files, or the history of a node into Parquet\n"
            "tables: what was read, what became of every message, and the figures. The tables\n"
            "appear whole or not at all, and milling a source again replaces them."
        ),
        epilog=(
            "examples:\n"
            "  rumormill sim --trace storm.ndjson && rumormill mill storm.ndjson --to lake\n"
            "  rumormill mill go-traces/ --merge --name testnet --to lake --master 'local[2]'\n"
            "  rumormill mill ~/.rumormill --to lake --stream\n"
            "  rumormill mill 127.0.0.1:4020 --token-file flight.token --to lake --stream\n"
        ),
        run=late("rumormill.cli.milling", "run_mill"),
    )
    verb.add_argument(
        "source",
        metavar="SOURCE",
        help="a trace file, a directory of them, a node's home, or HOST:PORT of a node (--flight)",
    )
    verb.add_argument("--to", required=True, metavar="LAKE", help="the lake's directory")
    verb.add_argument("--name", metavar="PART", help="the part's name (default: the source's)")
    verb.add_argument(
        "--merge",
        action="store_true",
        help="the directory's files are the peers of one network; merge them by their clocks",
    )
    verb.add_argument(
        "--protocol", metavar="NAME", help=f"what the peers speak ({', '.join(PROTOCOLS)}, …)"
    )
    verb.add_argument(
        "--token-file", metavar="FILE", help="the node's flight.token (default: $RUMORMILL_TOKEN)"
    )
    verb.add_argument("--tls-roots", metavar="FILE", help="certificates of a node that speaks TLS")
    _add_window(verb)
    verb.add_argument("--stream", action="store_true", help="go on as events or files arrive")
    verb.add_argument(
        "--once", action="store_true", help="with --stream: stop when all is read that is there"
    )
    verb.add_argument(
        "--interval", default="10s", metavar="TIME", help="with --stream: between batches (10s)"
    )
    _add_spark(verb)
    verb.add_argument("--json", action="store_true", help="print one JSON object")


def _add_sweep(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "sweep",
        brief="simulate a grid of protocols and settings on Spark, into a lake",
        text=(
            "Simulate every combination of a grid: protocols, parameters, sizes, faults, seeds.\n"
            "The runs are shared out over Spark's tasks, and milled into a part of the lake. A\n"
            "sweep that was interrupted goes on where it was."
        ),
        epilog=(
            "examples:\n"
            "  rumormill sweep grid.toml --to lake --master 'local[2]' --report report.html\n"
            "  rumormill sweep grids/reddit2007.toml --with workload.limit=300 --to slice\n"
            "  rumormill sweep grid.toml --list\n"
        ),
        run=late("rumormill.cli.milling", "run_sweep"),
    )
    verb.add_argument("grid", metavar="GRID.toml", help="the grid")
    verb.add_argument("--to", default="lake", metavar="LAKE", help="the lake's directory (lake)")
    verb.add_argument(
        "--with",
        dest="changes",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of the scenario that all runs share, such as workload.limit=300; repeatable",
    )
    verb.add_argument("--report", metavar="FILE.html", help="write a report of the lake as well")
    verb.add_argument("--list", action="store_true", help="print the runs of the grid and stop")
    _add_window(verb)
    _add_spark(verb)
    verb.add_argument("--json", action="store_true", help="print one JSON object")


def _add_report(verbs: Verbs) -> None:
    verb = add_verb(
        verbs,
        "report",
        brief="write a page that compares the runs of a lake",
        text=(
            "Write one page with a comparison of all runs of a lake, plots, the best\n"
            "configurations and those that no other beats. The page needs no network."
        ),
        epilog=(
            "examples:\n  rumormill report lake -o report.html\n  rumormill report lake --json\n"
        ),
        run=late("rumormill.cli.milling", "run_report"),
    )
    verb.add_argument("lake", metavar="LAKE", help="the lake's directory")
    verb.add_argument("-o", "--output", metavar="FILE.html", help="where to write (report.html)")
    verb.add_argument("--title", metavar="TEXT", help="the page's title")
    verb.add_argument("--json", action="store_true", help="print the report as one JSON object")
