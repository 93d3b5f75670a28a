"""The fault suite in short: a round of each protocol, and what was once found worth a script.

`make test-chaos` runs as many rounds as are wanted; docs/contributing.md says how.
"""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from chaos_member import Member
from chaos_node import Life
from chaos_round import FAULTS, Outcome
from chaos_schedule import KINDS, PROTOCOLS, Fault, Schedule, read_schedule, write_schedule
from chaos_suite import place
from disk import COMPILER, NEEDS_COMPILER, Disk, Rule, built

from processes import PATIENCE, Program

SEEDS = {"floodsub": 1, "gossipsub": 1, "pulsarcast": 1, "skipring": 1, "radius": 1}


def run(schedule: Schedule, folder: Path) -> Outcome:
    """Run one round; whatever is not as promised is shown with its schedule."""
    with place() as here:
        outcome = asyncio.run(here.run(schedule, folder))
    shown = "\n".join(outcome.violations[:10])
    assert outcome.ok, f"{outcome.kinds}\n{shown}\n{schedule.text()}"
    return outcome


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_promises_hold_whatever_happens(protocol: str, tmp_path: Path) -> None:
    """Receipts hold, nothing is given twice, no offset changes, nothing comes from nowhere."""
    outcome = run(write_schedule(SEEDS[protocol], protocol, seconds=1.5), tmp_path)
    assert outcome.acknowledged > 0
    assert outcome.delivered >= outcome.acknowledged


def without_root(nodes: int, pause: float) -> Schedule:
    """The author, who is the root, and a fifth of the others are killed; the rest goes on."""
    victims = (0, *range(nodes - nodes // 5, nodes))
    return Schedule("pulsarcast", nodes, 2.0, (Fault("crowd", 0.5, 1.0, victims),), pause=pause)


def test_nothing_is_lost_with_the_root(tmp_path: Path) -> None:
    """Seven nodes, two of which die."""
    assert run(without_root(7, 0.1), tmp_path).lives == 7 + 2


@pytest.mark.slow
def test_twenty_nodes_lose_nothing_either(tmp_path: Path) -> None:
    """Twenty nodes, five of which die."""
    assert run(without_root(20, 0.5), tmp_path).lives == 20 + 5


def ring(nodes: int, pause: float) -> Schedule:
    """The supervisor dies, then a third, both come back, and a newcomer subscribes."""
    third = tuple(range(nodes // 3))
    faults = (
        Fault("late", 0.0, 2.5, (nodes - 1,)),
        Fault("kill", 0.3, 1.5, (nodes,)),
        Fault("crowd", 0.8, 1.2, third),
    )
    return Schedule("skipring", nodes, 2.5, faults, pause=pause)


def test_histories_survive_the_loss_of_a_third_and_of_the_supervisor(tmp_path: Path) -> None:
    """Every log has every acknowledged event, the latest comer's too; the ring is a ring again."""
    assert run(ring(9, 0.2), tmp_path).lives == 10 + 1 + 3


@pytest.mark.slow
def test_thirty_nodes_survive_it_too(tmp_path: Path) -> None:
    """Thirty nodes and their supervisor."""
    run(ring(30, 1.0), tmp_path)


def test_a_ring_needs_no_supervisor_to_deliver(tmp_path: Path) -> None:
    """It is killed, and stays so until everybody has everything."""
    dead = Fault("kill", 0.3, None, (4,))
    run(Schedule("skipring", 4, 1.0, (dead,)), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_promises_hold_in_many_rounds(protocol: str, tmp_path: Path) -> None:
    """Twenty rounds of each."""
    for seed in range(20):
        run(write_schedule(seed, protocol), tmp_path / f"{seed}")


def test_a_seed_is_a_schedule_and_a_schedule_can_be_typed() -> None:
    """What is printed when a round fails is all that it takes to run it again."""
    for protocol in PROTOCOLS:
        schedule = write_schedule(7, protocol)
        assert schedule == write_schedule(7, protocol) == read_schedule(schedule.text())
        assert schedule != write_schedule(8, protocol)


def test_every_kind_of_fault_is_drawn_and_can_befall() -> None:
    drawn = {fault.kind for seed in range(200) for fault in write_schedule(seed, "radius").faults}
    assert drawn == set(KINDS) == set(FAULTS)


@pytest.mark.skipif(COMPILER is None, reason=NEEDS_COMPILER)
@pytest.mark.parametrize("broken", ["sync", "write"])
def test_a_node_whose_disk_fails_ends_without_another_word(broken: str, tmp_path: Path) -> None:
    """Its next life begins by itself: nobody asks it for anything meanwhile."""
    life = Life(
        home=str(tmp_path / "disk" / "home"),
        listen="/ip4/127.0.0.1/tcp/0",
        protocol="floodsub",
        word="",
        connect=[],
        routes={},
        topics={"news": ""},
        since={},
        supervisors=[],
    )

    async def begin_again() -> None:
        changed = asyncio.Event()
        member = Member("n0", life, Disk(tmp_path, built(tmp_path)), changed.set)

        async def until(condition: Callable[[], bool]) -> None:
            while not condition():
                changed.clear()
                await changed.wait()

        try:
            async with asyncio.timeout(PATIENCE):
                member.publishing = True
                await member.start()
                await until(lambda: bool(member.seen.kept))
                member.strike(Rule(broken, errno.EIO), on=True)
                await until(lambda: member.gave_up > 0)
        finally:
            await member.end()

    asyncio.run(begin_again())


def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    """Not even one that is paused."""
    stopped = Schedule("floodsub", 3, 60.0, (Fault("pause", 0.0, 60.0, (1,)),))
    script = Path(__file__).with_name("chaos_suite.py")
    command = [sys.executable, script, "--jobs", "1", "--schedule", stopped.text()]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with Program(command, env=environment, start_new_session=True) as suite:
        while not paused_in(suite.process.pid):
            assert suite.process.poll() is None
        os.kill(suite.process.pid, signal.SIGINT)
        assert suite.ends() == 130
        assert members_of(suite.process.pid) == []
    assert list(tmp_path.iterdir()) == []


def members_of(session: int) -> list[str]:
    """The states of a session's processes."""
    states = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, group = (process / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue  # it has just ended
        if int(group) == session:
            states.append(state)
    return states


def paused_in(session: int) -> bool:
    """Whether one of them is stopped."""
    return "T" in members_of(session)
