"""What can be typed: every verb with its help page, written as `grammar` reads it.

A page is what the list of verbs says, what the verb does, its arguments, and examples, with an
empty line between them. The rule: the parser knows names, not values. Values stay text and are read
by the configuration they end up in, which knows what is allowed there, so that a flag and a line of
a scenario file are refused with the same sentence; and what a file or the environment can give as
well has no default here.
"""

from typing import Final

from rumormill.cli.node_pages import NODE_PAGES
from rumormill.cli.shared_flags import PROTOCOL_NAMES

PAGES: Final = {
    **NODE_PAGES,
    "doctor": """\
check this machine and home, and say what to do

Check Python, packages, Java, clock, limits, the home, its key and log, disk, ports
and who may come in, write and read, and say what to do about each fault. Nothing is
changed.

@peer
--metrics HOST:PORT  check that this address is free too
--flight HOST:PORT   check that this address is free too
--json               print one JSON object

examples:
  rumormill doctor
  rumormill doctor --home b --json
""",
    "dashboard": """\
show running nodes or recorded traces in a browser

Serve a page, on this machine and to whoever has the token in its address, that shows
the node of the home, the nodes of several homes and of dashboards elsewhere as one
network, or a recorded trace, with a clock that can be stopped and moved; of several
traces, the first beside the others. Nothing can be changed unless that is allowed.
Ctrl-C ends it. A simulation is watched by rumormill sim --dashboard.

what WHAT...         homes of running nodes; addresses that dashboards elsewhere have printed,
    or files NAME.url with such an address; or traces: files, or folders with everybody's
    (default: the home)
@place
page:
--listen HOST:PORT   where to serve it (default 127.0.0.1:4030, or another port if that is taken)
--allow-host NAME*   a name under which it may be asked for, as behind a proxy; may be repeated
--cert FILE          serve it by TLS: certificate in PEM
--key FILE           and the certificate's key in PEM
--ca FILE            trust these certificates of dashboards elsewhere too, in PEM
--lake DIR           show the tables of this lake too, and how far Spark's queries are behind
--allow-publish      let the page publish
--open               open it in a browser
--export FILE.html   write a still picture to a file instead, with everything in it
--json               print one JSON object

examples:
  rumormill dashboard
  rumormill dashboard a b c --open
  rumormill dashboard a east.url west.url --ca ours.pem
  rumormill dashboard run.ndjson
  rumormill dashboard run.ndjson --export run.html
""",
    "top": """\
show the running node in the terminal

Show one screen about the node of the home, anew each second: how it is, rates,
latencies, topics, peers, what is missing and what was dropped. q ends it.

@place
options:
--sort {rate,delivered,bytes,name} = rate  the order of topics
--interval SECONDS = 1  how often
--once               print one screen, and stop
--json               print one JSON object each time

examples:
  rumormill top
  rumormill top --once --json --home b
""",
    "config": """\
show every setting and where it comes from

Show every setting with its origin. A flag overrides the environment, which
overrides the configuration file, which overrides the default.

@peer
@direct
@durability
--metrics HOST:PORT  where metrics are served
@flight
--json               print one JSON object

examples:
  rumormill config
  RUMORMILL_PROTOCOL=floodsub rumormill config --home b --json
""",
    "bench": """\
measure two nodes on this machine

Start two nodes in two processes on this machine, and measure how fast one
publishes to the other, and how long a message takes at a moderate rate.

node:
@protocol
options:
--messages N = 5000  in the burst
--size BYTES = 1024  payload, at least 16
--rate N = 100       for the latency, a second
--samples N = 300    messages for the latency
@durability
--json               print one JSON object

examples:
  rumormill bench
  rumormill bench --messages 20000 --size 128 --durability memory --json
""",
    "sim": """\
simulate a network in virtual time and print its figures

Simulate a network in virtual time and print its figures.
Flags override the scenario file; what neither says has a default.

scenario [SCENARIO.toml]  a scenario file
what runs:
@protocol
--peers N            how many peers
--seed N             decides every random draw; same seed, same trace
--join HOW           one-by-one or all-at-once
--start STATE        the state in which all peers begin; skipring: empty, legitimate, arbitrary
network:
--topology KIND      random-regular, ring-random, star, tree, line, complete, self-formed
--degree N           links per peer
--latency MODEL      constant:50ms, uniform:10ms-100ms, normal:50ms,10ms, regions, planetlab
--jitter TIME        a further random delay of up to this, as 5ms
--loss SHARE         probability that a message is lost, as 1% or 0.01
--bandwidth MODEL    unlimited, 10mbit, 10mbit/50mbit (up/down), regions
--churn RATE         peers that leave per minute, as 12, or of all, as 5%
load:
--unsubscribing RATE  subscriptions that end per minute, as 12, or of all, as 5%
--workload KIND      fixed, poisson, zipf, reddit2007
--messages N         how many; of reddit2007 the first N
--topics N           how many topics
--rate N             publications per second in the whole network
--size SIZE          payload, as 128 or 1kib
parameters:
--set KEY=VALUE*     a parameter of the protocol (D=8) or key of a scenario (links.queue_limit=64);
    may be repeated
--list-parameters    print every parameter of the protocol with its value and source, and stop
output:
--compare NAME[:PRESET],...  run several protocols under the same plan and seed, and print them
    side by side
--json               print one JSON object
--trace PATH         write the trace; the suffix chooses the format
--harness-logs FOLDER  write the logs that libp2p's gossipsub-interop analysis reads
--dump-state PATH    write the state of all peers at the end as JSON
--dashboard [HOST:PORT] = 127.0.0.1:4030  serve a page that shows it while it runs, and until Ctrl-C
--open               open that page in a browser
--check-codec        encode and decode every simulated message
--debug              show where a failed run failed

examples:
  rumormill sim --peers 1000 --messages 60 --degree 20
  rumormill sim --protocol gossipsub --set D=8 --set flood_publish=false --json
  rumormill sim --compare floodsub,gossipsub,gossipsub:ethereum --workload reddit2007 \\
      --messages 500 --latency planetlab
  rumormill sim storm.toml --seed 7 --churn 5% --trace storm.ndjson
  rumormill sim --list-parameters --protocol gossipsub
  rumormill sim --peers 200 --churn 10% --dashboard
""",
    "mill": f"""\
turn traces and histories into the tables of a lake

Turn a trace file, a directory of trace files, or the history of a node into Parquet
tables: what was read, what became of every message, and the figures. The tables
appear whole or not at all, and milling a source again replaces them.

source SOURCE        a trace file, a directory of them, a node's home, or HOST:PORT of a node
    (--flight)
--to LAKE!           the lake's directory
--name PART          the part's name (default: the source's)
--merge              the directory's files are the peers of one network; merge them by their clocks
--protocol NAME      what the peers speak ({PROTOCOL_NAMES}, …)
--token-file FILE    the node's flight.token (default: $RUMORMILL_TOKEN)
--tls-roots FILE     certificates of a node that speaks TLS
--window TIME = 1s   length of a window of figures
--delta FOLDER       write the part's tables as Delta tables as well (rumormill[delta])
--stream             go on as events or files arrive
--once               with --stream: stop when all is read that is there
--interval TIME = 10s  with --stream: between batches
@spark
--json               print one JSON object

examples:
  rumormill sim --trace storm.ndjson && rumormill mill storm.ndjson --to lake
  rumormill mill go-traces/ --merge --name testnet --to lake --master 'local[2]'
  rumormill mill ~/.rumormill --to lake --stream
  rumormill mill 127.0.0.1:4020 --token-file flight.token --to lake --stream
""",
    "sweep": """\
simulate a grid of protocols and settings on Spark, into a lake

Simulate every combination of a grid: protocols, parameters, sizes, faults, seeds.
The runs are shared out over Spark's tasks, and milled into a part of the lake. A
sweep that was interrupted goes on where it was.

grid GRID.toml       the grid
--to LAKE = lake     the lake's directory
--with KEY=VALUE*    a key of the scenario that all runs share, such as workload.limit=300;
    repeatable
--report FILE.html   write a report of the lake as well
--delta FOLDER       write the part's tables as Delta tables as well (rumormill[delta])
--list               print the runs of the grid and stop
--window TIME = 1s   length of a window of figures
@spark
--json               print one JSON object

examples:
  rumormill sweep grid.toml --to lake --master 'local[2]' --report report.html
  rumormill sweep grids/reddit2007.toml --with workload.limit=300 --to slice
  rumormill sweep grid.toml --list
""",
    "report": """\
write a page that compares the runs of a lake

Write one page with a comparison of all runs of a lake, plots, the best
configurations and those that no other beats. The page needs no network.

lake LAKE            the lake's directory
-o, --output FILE.html  where to write (report.html)
--title TEXT         the page's title
--json               print the report as one JSON object

examples:
  rumormill report lake -o report.html
  rumormill report lake --json
""",
    "inspect": """\
show a Pulsarcast descriptor, RPC or CID in all its forms

Turn a Pulsarcast descriptor or RPC between readable JSON, dag-cbor, protobuf and
CID. What is given is recognised: JSON, hexadecimal or raw bytes.

kind {topic,event,rpc,cid}  what it is
input FILE|HEX|-     a file, the thing itself, or stdin
--json               print one JSON object

examples:
  rumormill inspect topic topic.json --json
  rumormill inspect event a665746f706963d82a...
  rumormill inspect rpc - < rpc.bin
  rumormill inspect cid zdpuAyQ8Hxva27SaGcPaiaqmwjykQrZMebTN3HCTDvp7umTus
""",
    "completion": """\
print a shell's completion script

Print a script that completes verbs, flags and known values.

shell {bash,zsh,fish}  which shell

examples:
  source <(rumormill completion bash)
  source <(rumormill completion zsh)
  rumormill completion fish > ~/.config/fish/completions/rumormill.fish
""",
}

EXAMPLES: Final = """\
examples:
  rumormill sub news
  rumormill pub news "hello, world"
  rumormill sim --peers 100 --latency planetlab
  rumormill sim --compare floodsub,gossipsub
  source <(rumormill completion bash)
"""
