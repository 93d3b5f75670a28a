"""Real nodes from the command line, as people at two terminals use them."""

import json
import re
import resource
import shlex
import signal
import stat
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import RUMORMILL, SOURCES, Program, Terminal, rumormill


@pytest.fixture
def daemon(home: Path) -> Iterator[Terminal]:
    """A node that runs in the home."""
    with Terminal("node", "--home", home) as node:
        node.prints()
        yield node


def lines_of(*arguments: str) -> list[dict[str, object]]:
    """The JSON lines that a command prints."""
    done = rumormill(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def readme_commands() -> list[list[str]]:
    """What the README tells people to type, as arguments of `rumormill`."""
    text = (SOURCES.parent / "README.md").read_text()
    return [shlex.split(line) for line in re.findall(r"^rumormill (.*)$", text, re.MULTILINE)]


def test_two_terminals_work_the_first_time(home: Path) -> None:
    """As the README says: `sub`, then `pub`; no configuration, no ticket, no daemon."""
    listen, publish = readme_commands()[:2]
    assert (listen[0], publish[0]) == ("sub", "pub")
    with Terminal(*listen, "--count", "1", RUMORMILL_HOME=home) as sub:
        sub.says("listening to news")
        done = rumormill(*publish, RUMORMILL_HOME=home)
        assert (done.returncode, done.stdout) == (0, "")
        assert "published 1 message to news" in done.stderr
        assert sub.prints() == ["hello, world"]
        assert sub.ends() == 0
    assert list((home / "meet").iterdir()) == []


def test_a_daemon_serves_commands_without_a_ticket(home: Path) -> None:
    """They find it by the home, and `sub` reads what was published before it came."""
    with Terminal("node", "--topic", "news", RUMORMILL_HOME=home) as daemon:
        daemon.prints()
        numbers = "".join(f"{number}\n" for number in range(1000))
        assert rumormill("pub", "news", stdin=numbers, RUMORMILL_HOME=home).returncode == 0
        everything = ("sub", "news", "--all", "--json", "--count", "1000")
        done = rumormill(*everything, RUMORMILL_HOME=home)
        assert [json.loads(line)["data"] for line in done.stdout.splitlines()] == numbers.split()
        assert rumormill("doctor", RUMORMILL_HOME=home).returncode == 0


def test_a_ticket_joins_nodes_of_different_homes(home: Path, tmp_path: Path) -> None:
    """What `sub` prints as its ticket is what `pub --join` takes."""
    with Terminal("sub", "news", "--count", "2", "--json", "--home", home) as sub:
        ticket = sub.says("--join").split()[-1]
        done = rumormill(
            "pub", "news", "--home", str(tmp_path / "other"), "--join", ticket, stdin="a\nb\n"
        )
        assert done.returncode == 0, done.stderr
        assert [json.loads(line)["data"] for line in sub.prints(2)] == ["a", "b"]
        assert sub.ends() == 0
    assert not (tmp_path / "other").exists()


def test_a_ticket_of_the_network_names_other_nodes_too(
    home: Path, daemon: Terminal, tmp_path: Path
) -> None:
    """`rumormill ticket` is for the node of the home alone, with --network for one of several."""
    own = rumormill("ticket", "--home", home).stdout.strip()
    with Terminal("node", "--home", tmp_path / "other", "--join", own) as other:
        second = other.prints()[0]
        found: list[str] = []
        while len(found) < 2:  # until it has connected
            shown = rumormill("ticket", "--network", "--json", "--home", tmp_path / "other")
            found = json.loads(shown.stdout)["ticket"].split(",")
        assert found == [second, own]
    refused = rumormill("ticket", "--home", tmp_path / "nobody")
    assert refused.returncode == 1
    assert "start `rumormill node`" in refused.stderr


def test_a_long_input_arrives_whole_and_in_order(home: Path) -> None:
    """Neither end is asked to slow down, and nothing is lost between them."""
    numbers = [str(number) for number in range(3000)]
    with Terminal("sub", "numbers", "--count", "3000", "--home", home) as sub:
        sub.says("listening")
        done = rumormill("pub", "numbers", "--home", home, stdin="\n".join(numbers))
        assert done.returncode == 0, done.stderr
        assert sub.prints(3000) == numbers


def test_a_daemon_prints_its_ticket_and_stops_in_order(home: Path) -> None:
    """SIGTERM is not a failure, and leaves neither socket nor lock."""
    with Terminal("node", "--home", home, "--log-format", "json") as node:
        (ticket,) = node.prints()
        assert ticket.startswith("/ip4/127.0.0.1/tcp/")
        node.says("running")
        socket = home / "control.sock"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert node.stop(signal.SIGTERM) == 0
        logged = [json.loads(line) for line in node.errors]
    assert [line["message"] for line in logged][-2:] == ["stopping", "stopped"]
    assert {"time", "level", "logger"} <= logged[0].keys()
    assert not socket.exists()
    with Terminal("node", "--home", home) as again:
        assert again.prints()[0].rpartition("/")[2] == ticket.rpartition("/")[2]
        assert again.stop(signal.SIGINT) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="asks for another process's limits")
def test_a_daemon_may_have_as_many_files_open_as_the_system_allows(home: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = ["sh", "-c", 'ulimit -S -n 64 && exec "$@"', "sh"]
    with Program([*few, *RUMORMILL, "node", "--home", home]) as node:
        node.prints()
        limits = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
        assert limits == (most, most)


def test_commands_use_the_running_node(home: Path, daemon: Terminal) -> None:
    """A subscriber and a publisher of one home meet in its daemon, and the log keeps the events."""
    with Terminal("sub", "news", "--count", "3", "--home", home) as sub:
        sub.says("listening")
        (receipt,) = lines_of("pub", "news", "one", "--home", home)
        assert (receipt["offset"], receipt["peers"]) == (0, 0)
        assert receipt["durable_at"]
        assert receipt["note"]
        done = rumormill("pub", "news", "--home", home, stdin="two\nthree\n")
        assert "in the log only" in done.stderr
        assert sub.prints(3) == ["one", "two", "three"]
        assert sub.ends() == 0
    stored = lines_of("history", "news", "--home", home)
    assert [(each["offset"], each["data"]) for each in stored] == [
        (0, "one"), (1, "two"), (2, "three"),
    ]  # fmt: skip
    (topic,) = lines_of("topics", "--home", home)
    assert (topic["name"], topic["next_offset"], topic["subscribed"]) == ("news", 3, False)
    daemon.stop()
    assert lines_of("history", "news", "--home", home) == stored
    assert lines_of("topics", "--home", home)[0]["next_offset"] == 3


def test_a_subscription_may_begin_in_the_past(home: Path, daemon: Terminal) -> None:
    """`--all`, `--offset` and `--since` begin in the log and go on with what comes."""
    numbers = "".join(f"{number}\n" for number in range(20))
    assert rumormill("pub", "n", "--home", home, stdin=numbers).returncode == 0

    def printed(*where: str) -> list[str]:
        done = rumormill("sub", "n", "--home", home, "--format", "%o:%s ", *where)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    everything = [f"{number}:{number}" for number in range(20)]
    assert printed("--all", "--count", "20") == everything
    assert printed("--offset", "15", "--count", "5") == everything[15:]
    assert printed("--offset=-3", "--count", "3") == everything[-3:]
    assert printed("--since", "1h", "--count", "20") == everything
    for patience in ("0.2", "2", "20"):  # whoever is slower than that has seen less
        done = rumormill("sub", "n", "--home", home, "--all", "--count", "21", "--wait", patience)
        assert done.returncode == 3
        if "20 of 21 events" in done.stderr:
            break
    assert "20 of 21 events" in done.stderr
    assert done.stdout.splitlines() == [str(number) for number in range(20)]


def test_daemons_join_and_relay(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two daemons, joined by a ticket: what one home publishes, the other prints."""
    other = str(tmp_path_factory.mktemp("o"))
    with Terminal("node", "--home", home, "--topic", "news") as first:
        (ticket,) = first.prints()
        with Terminal("node", "--home", other, "--join", ticket) as second:
            second.says("peer connected")
            (peer,) = lines_of("peers", "--home", other)
            assert ticket.endswith(f"/p2p/{peer['id']}")
            assert peer["outbound"] is True
            with Terminal("sub", "news", "--count", "1", "--raw", "--home", other) as sub:
                sub.says("listening")
                done = rumormill("pub", "news", "--wait", "30", "x", "--home", home)
                assert done.returncode == 0, done.stderr
                assert sub.prints() == ["x"]
            assert lines_of("history", "news", "--home", other)[0]["data"] == "x"


def test_metrics_are_served_with_the_names_of_the_proposal(home: Path) -> None:
    with Terminal("node", "--home", home, "--metrics", "127.0.0.1:0", "--json") as node:
        port = json.loads(node.prints()[0])["metrics_port"]
        assert rumormill("pub", "news", "hello", "--home", home).returncode == 0
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            text = page.read().decode()
            assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'topic_msg_published_total{topic="news"} 1\n' in text
    assert "# TYPE mesh_peer_counts gauge\n" in text
    assert "12D3Koo" not in text


def test_a_rate_paces_and_a_count_repeats(home: Path, daemon: Terminal) -> None:
    """Each of the repeated messages has a receipt of its own."""
    receipts = lines_of("pub", "t", "x", "--count", "5", "--rate", "1000", "--home", home)
    assert [receipt["offset"] for receipt in receipts] == [0, 1, 2, 3, 4]
    assert len({receipt["id"] for receipt in receipts}) == 5
    story = "once\nupon a time\n"
    done = rumormill("pub", "t", "--send-on", "eof", "--home", home, stdin=story)
    assert "last offset 5" in done.stderr
    assert lines_of("history", "t", "--offset", "5", "--home", home)[0]["data"] == story


def test_bytes_that_are_no_text_survive(home: Path, daemon: Terminal) -> None:
    """What is no UTF-8 is published as it was typed, and JSON has it in base64."""
    rumormill("pub", "t", "\udcff\udc80", "--home", home)
    (event,) = lines_of("history", "t", "--home", home)
    assert event["data_base64"] == "/4A="


def test_ctrl_c_ends_a_subscription(home: Path) -> None:
    with Terminal("sub", "news", "--home", home) as sub:
        sub.says("listening")
        assert sub.stop(signal.SIGINT) == 130
        assert sub.errors[-1] == "rumormill: interrupted"
    assert list((home / "meet").iterdir()) == []


def test_bench_measures_two_processes() -> None:
    done = rumormill("bench", "--messages", "200", "--samples", "5", "--json",
                     "--durability", "memory", "--size", "64")  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["lost"] == 0
    assert figures["messages_per_second"] > 0
    assert 0 < figures["latency_p50_ms"] <= figures["latency_p99_ms"]


def test_a_skip_ring_needs_a_supervisor_and_nothing_else(home: Path, tmp_path: Path) -> None:
    """A supervisor, a node and one-off commands: a late `sub` prints what was said before."""
    place = ("--home", str(tmp_path / "sup"), "--set", "interval=0.2")
    with Terminal("supervisor", *place) as above:
        ticket = above.prints()[0]
        assert above.says("every start gets another port")
        told = ("--protocol", "skipring", "--supervisor", ticket, "--set", "interval=0.2")
        with Terminal("node", "--home", home, *told, "--topic", "news") as node:
            node.prints()
            apart = ("--home", str(tmp_path / "none"))
            done = rumormill("pub", "news", "hello", *told, *apart, "--wait", "30")
            assert done.returncode == 0, done.stderr
            assert rumormill("pub", "news", "again", "--home", home).returncode == 0
            done = rumormill("sub", "news", *told, *apart, "--count", "2", "--wait", "30")
            assert sorted(done.stdout.split()) == ["again", "hello"], done.stderr
            verified = lines_of("history", "verify", "news", "--home", home)
            assert (verified[0]["publications"], verified[0]["faults"]) == (2, [])
            refused = rumormill("pub", "news", "x", "--home", home, *told)
            assert refused.returncode == 2
            assert "has decided this" in refused.stderr


def test_a_supervisors_ticket_is_known_before_it_runs(home: Path) -> None:
    """So that several can be told of each other; its port must be chosen for that."""
    place = ("--home", home, "--listen", "/ip4/127.0.0.1/tcp/4100")
    first, second = (rumormill("supervisor", *place, "--ticket").stdout for _ in range(2))
    assert first == second
    assert re.fullmatch(r"/ip4/127\.0\.0\.1/tcp/4100/p2p/12D3KooW\w+\n", first)
    undecided = rumormill("supervisor", "--home", home, "--ticket")
    assert undecided.returncode == 2
    assert "--listen with a port" in undecided.stderr
    wrong = rumormill("sub", "news", "--home", home, "--supervisor", first.strip())
    assert (wrong.returncode, "gossipsub has none" in wrong.stderr) == (2, True)
