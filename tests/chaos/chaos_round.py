"""One round of the fault suite: a network in processes, a schedule carried out, and the verdict.

Nodes publish all the time while faults come and go. Then everything heals: the dead start, links
and limits are lifted. The network may settle, every node ends in order, and its log is read.
"""

import asyncio
import contextlib
import errno
import itertools
import math
import resource
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec
from chaos_checker import Place, Violation, check, owed
from chaos_links import Network
from chaos_member import Member
from chaos_node import Life, name_in
from chaos_schedule import Fault, Schedule
from disk import Disk, Rule

from rumormill.core.event import Event
from rumormill.log import EventLog, StoreError
from rumormill.log.notes import note_keys, read_note
from rumormill.node.identity import NodeIdentity, SignatureVerifier, load_or_create_key
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.history.graph import HistoryVerifier
from rumormill.protocols.pulsarcast.tree.known_topics import NOTES, view_of_kept
from rumormill.protocols.skipring.envelope import check_event
from rumormill.protocols.skipring.labels import label_of, text_of

TOPICS = {"pulsarcast": ("open", "asked")}
"""In the second only the author publishes; the others ask it to."""

PATIENCE = 90.0
"""Seconds for a network to begin and to end: a loaded machine is slow."""
EXPORT = 15.0
"""Seconds within which a file is written, if at all."""
PROMISED = 60.0
"""Seconds after the last fault within which everybody has everything."""


class Outcome(msgspec.Struct, kw_only=True):
    """What came of a round."""

    schedule: Schedule
    violations: list[str]
    kinds: dict[str, int]
    """How many of each kind."""
    acknowledged: int
    delivered: int
    refused: dict[str, int]
    lives: int
    gave_up: int
    upkeep: dict[str, int]
    """What it did: copies, offsets that were given up or deleted, events that were imported."""
    settled_in: float

    @property
    def ok(self) -> bool:
        """Whether everything was as promised."""
        return not self.violations


class Round:
    """A schedule under way."""

    def __init__(
        self, schedule: Schedule, folder: Path, hosts: list[str], port: int, library: Path | None
    ) -> None:
        """`library` makes disks that fail; without it faults of the disk are few."""
        self.schedule = schedule
        self.folder = folder
        self._library = library
        self.violations: list[Violation] = []
        self._addresses = [(host, port) for host in hosts[: schedule.size]]
        self._network = Network(self._addresses)
        self._changed = asyncio.Event()
        self._members: list[Member] = []
        self._settled = asyncio.Event()
        self._settled_in = 0.0
        self._numbers = itertools.count(1)

    async def run(self) -> Outcome:
        """Carry the schedule out; no process is left, whatever happens."""
        async with self._network:
            try:
                tickets = [self._ticket(number) for number in range(self.schedule.size)]
                self._members = [self._member(number, tickets) for number in range(len(tickets))]
                if await self._begin():
                    async with self._lasting():
                        await self._suffer()
                        await self._settle()
                await self._end()
            finally:
                await asyncio.gather(*[member.end() for member in self._members])
        for member in self._peers:
            await member.cut_power(0)
            await asyncio.to_thread(self._read, member)
        seen = {member.name: member.seen for member in self._peers}
        self.violations += check(seen)
        for member in self._members:
            self.violations += member.faults
            self.violations += tracebacks(member)
            (self.folder / member.name / "stderr").write_text("\n".join(member.errors))
        return self._outcome()

    def _read(self, member: Member) -> None:
        """Read what is left of a node: its log, and the copies that it made."""
        seen, protocol = member.seen, self.schedule.protocol
        home = self._home(self._members.index(member))
        found = read_log(home, protocol, member.topics)
        seen.stored, seen.first, seen.window = found.stored, found.first, found.window
        member.note_losses(found.losses)
        wrong = found.faults + found.gaps
        self.violations += [Violation("damaged", member.name, text) for text in wrong]
        for place, copy in seen.backups.items():
            found = read_log(Path(place), protocol, member.topics)
            copy.has = found.stored
            self.violations += [Violation("bad copy", place, text) for text in found.faults]

    def _outcome(self) -> Outcome:
        peers = self._members
        return Outcome(
            schedule=self.schedule,
            violations=list(map(str, self.violations)),
            kinds=dict(Counter(each.kind for each in self.violations)),
            acknowledged=sum(len(each.seen.kept) for each in peers),
            delivered=sum(len(given) for each in peers for given in each.seen.given.values()),
            refused=dict(sum((each.refused for each in peers), Counter())),
            lives=sum(each.lives for each in peers),
            gave_up=sum(each.gave_up for each in peers),
            upkeep={
                "copies": sum(len(each.seen.backups) for each in peers),
                "given up": sum(len(each.seen.lost) for each in peers),
                "deleted": sum(sum(each.seen.first.values()) for each in peers),
                "imported": sum(each.imported for each in peers),
            },
            settled_in=round(self._settled_in, 2),
        )

    # The network.

    @property
    def _peers(self) -> list[Member]:
        """All but the supervisor."""
        return self._members[: self.schedule.nodes]

    def _member(self, number: int, tickets: list[str]) -> Member:
        supervises = number >= self.schedule.nodes
        neighbours = {0, (number + 1) % self.schedule.nodes} - {number}
        protocol = self.schedule.protocol
        host, port = self._addresses[number]
        name = self._name(number)
        life = Life(
            home=str(self._home(number)),
            listen=f"/ip4/{host}/tcp/{port}",
            protocol=protocol,
            word="",
            connect=[] if protocol == "skipring" else [tickets[n] for n in neighbours],
            routes=self._network.routes(number),
            topics=dict.fromkeys(TOPICS.get(protocol, ("news", "weather")), ""),
            since={},
            supervisors=[] if supervises else tickets[self.schedule.nodes :],
            supervises=supervises,
            pause=self.schedule.pause,
        )
        disk = None if self._library is None else Disk(self.folder / name, self._library)
        return Member(name, life, disk, self._changed.set)

    def _home(self, number: int) -> Path:
        return self.folder / self._name(number) / "disk" / "home"

    def _name(self, number: int) -> str:
        return f"n{number}" if number < self.schedule.nodes else "supervisor"

    def _ticket(self, number: int) -> str:
        host, port = self._addresses[number]
        key = load_or_create_key(self._home(number) / "identity.key")
        return f"/ip4/{host}/tcp/{port}/p2p/{key.peer_id}"

    async def _begin(self) -> bool:
        """Start everybody who is not late, and wait until all are there."""
        faults = self.schedule.faults
        late = [each.nodes[0] for each in faults if each.kind in ("late", "newcomer")]
        early = [each for number, each in enumerate(self._members) if number not in late]
        author = self._members[0]
        if self.schedule.protocol == "pulsarcast":
            await author.start()
            if not await self._until(lambda: author.entered, "the author's topics"):
                return False
            for member in self._peers:
                member.topics = author.topics
        for member in early:
            await member.start()
        peers = [each for each in early if each in self._peers]
        if not await self._until(lambda: all(each.entered for each in peers), "everybody's entry"):
            return False
        return self.schedule.protocol != "skipring" or await self._until_ring(peers)

    async def _suffer(self) -> None:
        """Publish, while the faults come and go."""
        for member in self._peers:
            member.publishing, member.quiet = True, False
            member.tell("publish")
        await asyncio.gather(
            asyncio.sleep(self.schedule.seconds),
            *[self._befall(each) for each in self.schedule.faults if each.seconds is not None],
        )

    async def _befall(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        async with FAULTS[fault.kind](self, fault):
            await (self._settled.wait() if fault.seconds is None else asyncio.sleep(fault.seconds))

    @contextlib.asynccontextmanager
    async def _lasting(self) -> AsyncIterator[None]:
        """The faults that the network must bear until it has settled."""
        lasting = [self._befall(each) for each in self.schedule.faults if each.seconds is None]
        async with asyncio.TaskGroup() as group:
            for each in lasting:
                group.create_task(each)
            yield
            self._settled.set()

    async def _settle(self) -> None:
        """Fall silent, and wait until everybody has what was promised."""
        for member in self._peers:
            member.publishing = False
            member.tell("quiet")
        began = time.monotonic()
        peers = self._peers
        await self._until(lambda: all(each.runs and each.quiet for each in peers), "silence")
        for member in peers:
            member.upkept = False
            if member.needs_repair:  # the one that was tried came to nothing, in another fault
                member.tell("repair")
            member.tell("finish")
        await self._until(lambda: all(each.upkept for each in peers), "the end of all upkeep")
        await self._until(lambda: not any(each.needs_repair for each in peers), "every repair")
        async with self._asking("extent"):
            await self._until(self._complete, "what was promised", PROMISED)
            if self.schedule.protocol == "skipring":
                await self._until_ring(peers)
            await self._until(lambda: all(map(_has_read, peers)), "the end of every log")
        self._settled_in = time.monotonic() - began

    def _complete(self) -> bool:
        """Whether every application was given what it must be given."""
        seen = {each.name: each.seen for each in self._peers}
        given = {name: each.ids(each.given) for name, each in seen.items()}
        return next(iter(owed(seen, given)), None) is None

    async def _until_ring(self, peers: list[Member]) -> bool:
        """Wait until labels are the first n, each once, and all histories have one root hash: those
        that have all of it."""
        wanted = sorted(text_of(label_of(number)) for number in range(len(peers)))

        def right() -> bool:
            for topic in peers[0].topics:
                views = [each.look[topic] for each in peers if each.look]
                labels = sorted(str(label) for label, _ in views)
                whole = {each.look[topic][1] for each in peers if each.look and not each.seen.least}
                if labels != wanted or len(whole) > 1:
                    return False
            return True

        async with self._asking("look"):
            return await self._until(right, "a ring of equals")

    @contextlib.asynccontextmanager
    async def _asking(self, request: str) -> AsyncIterator[None]:
        """Ask all nodes again and again."""

        async def ask() -> None:
            while True:
                for each in self._peers:
                    each.tell(request)
                await asyncio.sleep(0.1)

        asking = asyncio.ensure_future(ask())
        try:
            yield
        finally:
            asking.cancel()

    async def _end(self) -> None:
        """Everybody ends in order, the supervisor last, whom they take their leave of."""
        ends = [asyncio.ensure_future(each.stop()) for each in self._peers]
        _, stuck = await asyncio.wait(ends, timeout=PATIENCE)
        if stuck:
            self.violations.append(Violation("stuck", "the round", f"{len(stuck)} nodes end not"))
        for each in self._members[self.schedule.nodes :]:
            await each.stop()

    async def _until(
        self, condition: Callable[[], bool], what: str, patience: float = PATIENCE
    ) -> bool:
        """Wait for what nodes say; whatever does not come is a violation."""
        try:
            async with asyncio.timeout(patience):
                while not condition():
                    if any(each.is_damaged for each in self._members):
                        raise TimeoutError  # it will not come back
                    self._changed.clear()
                    await self._changed.wait()
                    await asyncio.sleep(0.005)  # lines come in crowds: look once for many
        except TimeoutError:
            told = ", ".join(
                f"{each.name} {_state(each)} {_counts(each)}" for each in self._members
            )
            self.violations.append(Violation("stuck", "the round", f"{what} does not come: {told}"))
            for each in self._members:
                each.tell("stacks")
            await asyncio.sleep(1.0)
            return False
        return True

    # Faults: each is a context that lasts as long as the fault.

    @contextlib.asynccontextmanager
    async def kill(self, fault: Fault) -> AsyncIterator[None]:
        """kill -9, and a new start."""
        victims = [self._members[number] for number in fault.nodes]
        await asyncio.gather(*[each.down(True) for each in victims])
        yield
        for each in victims:
            await each.down(False)

    @contextlib.asynccontextmanager
    async def late(self, fault: Fault) -> AsyncIterator[None]:
        """It was never there before."""
        yield
        await self._members[fault.nodes[0]].start()

    @contextlib.asynccontextmanager
    async def newcomer(self, fault: Fault) -> AsyncIterator[None]:
        """It was never there before, and begins with what the first node has written to a file."""
        yield
        newcomer, first = self._members[fault.nodes[0]], self._members[0]
        newcomer.takes = await self._exported(first)
        await newcomer.start()

    async def _exported(self, member: Member) -> str:
        """A file with the log of a node; nothing if that is down or does not do it."""
        file = str(self.folder / f"{member.name}-{next(self._numbers)}.parquet")
        life = member.lives
        member.tell(f"export {file}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXPORT):
                while file not in member.exported and member.process and member.lives == life:
                    self._changed.clear()
                    await self._changed.wait()
        return file if file in member.exported else ""

    @contextlib.asynccontextmanager
    async def pause(self, fault: Fault) -> AsyncIterator[None]:
        """SIGSTOP, SIGCONT."""
        victim = self._members[fault.nodes[0]]
        victim.signal(signal.SIGSTOP)
        yield
        victim.signal(signal.SIGCONT)

    @contextlib.asynccontextmanager
    async def partition(self, fault: Fault) -> AsyncIterator[None]:
        """Nothing passes between these nodes and the others."""
        links = self._network.between(list(fault.nodes))
        for link in links:
            link.hold(True)
        yield
        for link in links:
            link.hold(False)

    @contextlib.asynccontextmanager
    async def slow(self, fault: Fault) -> AsyncIterator[None]:
        """Two nodes have a slow link."""
        link = self._network.links[frozenset(fault.nodes)]
        link.slow(True)
        yield
        link.slow(False)

    @contextlib.asynccontextmanager
    async def half_open(self, fault: Fault) -> AsyncIterator[None]:
        """Connections that one end knows are gone, and the other does not until the end."""
        first, second = fault.nodes
        halved = self._network.links[frozenset(fault.nodes)].halve(int(first > second))
        yield
        for pipe in halved:
            pipe.reset()

    @contextlib.asynccontextmanager
    async def cut(self, fault: Fault) -> AsyncIterator[None]:
        """The connections of two nodes are reset; the link is as good as before."""
        self._network.links[frozenset(fault.nodes)].cut()
        yield

    @contextlib.asynccontextmanager
    async def full_disk(self, fault: Fault) -> AsyncIterator[None]:
        """No room for another page in the database."""
        victim = self._members[fault.nodes[0]]
        victim.tell("full")
        yield
        victim.tell("room")

    @contextlib.asynccontextmanager
    async def no_space(self, fault: Fault) -> AsyncIterator[None]:
        """ENOSPC for every write to a file."""
        async with self._struck(fault, Rule("write", errno.ENOSPC)):
            yield

    @contextlib.asynccontextmanager
    async def no_heads(self, fault: Fault) -> AsyncIterator[None]:
        """ENOSPC for the heads file alone, which is written after the events."""
        async with self._struck(fault, Rule("write", errno.ENOSPC, "*heads*")):
            yield

    @contextlib.asynccontextmanager
    async def broken_flush(self, fault: Fault) -> AsyncIterator[None]:
        """fsync fails, and what it was to flush is never flushed unless it is written again."""
        async with self._struck(fault, Rule("sync", errno.EIO)):
            yield

    @contextlib.asynccontextmanager
    async def broken_disk(self, fault: Fault) -> AsyncIterator[None]:
        """Writes fail; where the disk is the machine's, those beyond the size of a file."""
        victim = self._members[fault.nodes[0]]
        if not victim.has_disk:
            victim.limit(resource.RLIMIT_FSIZE, victim.largest_file() // 2)
        async with self._struck(fault, Rule("write", errno.EIO)):
            yield
        if not victim.has_disk:
            victim.limit(resource.RLIMIT_FSIZE, None)

    @contextlib.asynccontextmanager
    async def _struck(self, fault: Fault, rule: Rule) -> AsyncIterator[None]:
        victim = self._members[fault.nodes[0]]
        victim.strike(rule, on=True)
        yield
        victim.strike(rule, on=False)

    @contextlib.asynccontextmanager
    async def power_cut(self, fault: Fault) -> AsyncIterator[None]:
        """The node dies, and with it what its disk had not flushed."""
        victim = self._members[fault.nodes[0]]
        await victim.down(True)
        await victim.cut_power(int(fault.amount))
        yield
        await victim.down(False)

    @contextlib.asynccontextmanager
    async def clock(self, fault: Fault) -> AsyncIterator[None]:
        """The clock is set while the node runs, and set right again."""
        victim = self._members[fault.nodes[0]]
        victim.clock = fault.amount
        victim.tell(f"clock {fault.amount}")
        lives = victim.lives
        yield
        victim.clock = 0.0
        victim.tell("clock 0")
        if victim.lives != lives:  # it was killed, and began with the wrong clock
            await victim.restart()

    @contextlib.asynccontextmanager
    async def clock_restart(self, fault: Fault) -> AsyncIterator[None]:
        """The node ends, and starts when the clock is wrong; likewise when it is right again."""
        victim = self._members[fault.nodes[0]]
        victim.clock = fault.amount
        await victim.restart()
        yield
        victim.clock = 0.0
        await victim.restart()

    @contextlib.asynccontextmanager
    async def descriptors(self, fault: Fault) -> AsyncIterator[None]:
        """It may open nothing more: no connection, no file; but Python has been loaded."""
        victim = self._members[fault.nodes[0]]
        if victim.entered:
            victim.limit(resource.RLIMIT_NOFILE, victim.descriptors())
        yield
        victim.limit(resource.RLIMIT_NOFILE, None)

    @contextlib.asynccontextmanager
    async def backup(self, fault: Fault) -> AsyncIterator[None]:
        """It copies its home."""
        self._members[fault.nodes[0]].tell(f"backup {self._copy(fault)}")
        yield

    @contextlib.asynccontextmanager
    async def restore(self, fault: Fault) -> AsyncIterator[None]:
        """It copies its home, and takes the copy back while it runs."""
        victim, copy = self._members[fault.nodes[0]], self._copy(fault)
        victim.tell(f"backup {copy}")
        yield
        victim.tell(f"restore {copy}")

    @contextlib.asynccontextmanager
    async def repair(self, fault: Fault) -> AsyncIterator[None]:
        """An event of its log is damaged, and given up while it runs, or before it runs again."""
        victim = self._members[fault.nodes[0]]
        victim.tell(f"damage {fault.amount}")
        yield
        victim.tell("repair")

    @contextlib.asynccontextmanager
    async def retain(self, fault: Fault) -> AsyncIterator[None]:
        """It deletes all but the newest events of each topic."""
        self._members[fault.nodes[0]].tell(f"retain {int(fault.amount)}")
        yield

    @contextlib.asynccontextmanager
    async def compact(self, fault: Fault) -> AsyncIterator[None]:
        """It gives back space, and what repairs and restores have put aside."""
        self._members[fault.nodes[0]].tell("compact")
        yield

    @contextlib.asynccontextmanager
    async def take_back(self, fault: Fault) -> AsyncIterator[None]:
        """It writes its log to a file, and imports that later."""
        victim = self._members[fault.nodes[0]]
        file = await self._exported(victim)
        yield
        if file:
            victim.tell(f"import {file}")

    def _copy(self, fault: Fault) -> Path:
        """A place on the victim's own disk."""
        return self._home(fault.nodes[0]).with_name(f"copy-{next(self._numbers)}")


FAULTS: dict[str, Callable[[Round, Fault], contextlib.AbstractAsyncContextManager[None]]] = {
    "kill": Round.kill,
    "crowd": Round.kill,
    "late": Round.late,
    "pause": Round.pause,
    "partition": Round.partition,
    "slow": Round.slow,
    "half-open": Round.half_open,
    "cut": Round.cut,
    "full-disk": Round.full_disk,
    "no-space": Round.no_space,
    "no-heads": Round.no_heads,
    "broken-disk": Round.broken_disk,
    "broken-flush": Round.broken_flush,
    "power-cut": Round.power_cut,
    "clock": Round.clock,
    "clock-restart": Round.clock_restart,
    "descriptors": Round.descriptors,
    "backup": Round.backup,
    "restore": Round.restore,
    "repair": Round.repair,
    "retain": Round.retain,
    "compact": Round.compact,
    "import": Round.take_back,
    "newcomer": Round.newcomer,
}


def _has_read(member: Member) -> bool:
    """Whether a node was given all that its log has."""
    if member.extent is None:
        return False
    given = member.seen.given
    return all(
        first == end or (topic in given and given[topic][-1][0] + 1 >= end)
        for topic, (first, end, _) in member.extent.items()
    )


def _state(member: Member) -> str:
    if member.process is None:
        return "not there"
    return ("quiet" if member.quiet else "busy") if member.entered else "not entered"


def _counts(member: Member) -> str:
    given = {topic: len(places) for topic, places in member.seen.given.items()}
    return f"{len(member.seen.kept)} kept, given {given}, log {member.extent}"


OUT_OF_DESCRIPTORS = (
    "OSError: [Errno 24] Too many open files",
    "ValueError: Invalid file descriptor: -1",
)
"""What asyncio itself says, with tracebacks, of connections that it cannot accept, and when it
tries again after the server was closed."""


def tracebacks(member: Member) -> list[Violation]:
    """What went uncaught in a node: nobody is to read its stderr."""
    raised: Counter[str] = Counter()
    inside = False
    for line in member.errors:
        if line.startswith("Traceback"):
            inside = True
        elif inside and not line.startswith(" "):
            inside = False
            raised[line] += 1
    if any(line.startswith("socket.accept() out of system resource") for line in member.errors):
        for line in OUT_OF_DESCRIPTORS:
            del raised[line]
    return [
        Violation("traceback", member.name, f"{count} times {line}")
        for line, count in raised.most_common(3)
    ]


class Found(msgspec.Struct):
    """What a log has, by label of the topic, and what is wrong with it."""

    stored: dict[str, list[Place]] = {}
    first: dict[str, int] = {}
    window: dict[str, int] = {}
    losses: dict[str, tuple[int, list[tuple[int, int]]]] = {}
    faults: list[str] = []
    gaps: list[str] = []
    """What it still has to fetch: in the end nothing, in a copy what the log lacked by then, such
    as what a full disk did not take."""


def read_log(home: Path, protocol: str, topics: dict[str, str]) -> Found:
    """Read a log to its end."""
    found = Found()
    try:
        with EventLog(home) as log, log.histories() as histories:
            for label, topic in topics.items():
                info, history = log.topic(topic), histories.history(topic)
                if info is None or history is None:
                    continue
                events = log.read_since(topic, -math.inf, 1 << 30, 1 << 40)
                found.stored[label] = [(e.offset, e.id.hex(), name_in(e.data)) for e in events]
                found.first[label], found.window[label] = (
                    info.first_offset,
                    history.window.keep_from,
                )
                found.losses[label] = info.first_offset, log.losses(topic)
                faults, gaps = PROOFS.get(protocol, _no_proof)(home, log, topic, events)
                found.faults += faults
                found.gaps += gaps
            found.faults += [each.sentence() for each in log.verify().findings]
    except StoreError as error:
        found.faults.append(str(error))
    return found


Proof: TypeAlias = tuple[list[str], list[str]]
"""What is wrong with a topic's history, and what it lacks."""


def _no_proof(home: Path, log: EventLog, topic: str, events: list[Event]) -> Proof:
    return [], []


def _links_are_whole(home: Path, log: EventLog, topic: str, events: list[Event]) -> Proof:
    """Pulsarcast: each event verified, and none is missing before another."""
    keys = note_keys(log, NOTES)
    view = view_of_kept(partial(read_note, log), keys, cids.parse(topic))
    if view is None:
        return [f"the descriptor of {topic} is not kept"], []
    verifier = HistoryVerifier(view.topic.cid, SignatureVerifier(), view.topic)
    for event in events:
        verifier.check(event)
    report, info = verifier.report(), log.topic(topic)
    is_cut = log.losses(topic) or (info and info.first_offset)
    gaps = [] if is_cut else [f"{topic} lacks {gap.cid.hex()}" for gap in report.gaps]
    return [f"{topic}: {each.cid.hex()}: {each.reason}" for each in report.faults], gaps


def _each_is_signed(home: Path, log: EventLog, topic: str, events: list[Event]) -> Proof:
    """Skip ring: each event would be taken from a stranger."""
    identity = NodeIdentity(load_or_create_key(home / "identity.key"))
    faults = [
        f"{stored.id.hex()} is not what its author signed"
        for stored in events
        if not check_event(
            Event(
                stored.topic,
                stored.data,
                stored.author,
                stored.id,
                created=stored.created,
                proof=stored.proof,
            ),
            identity,
        )
    ]
    return faults, []


PROOFS: dict[str, Callable[[Path, EventLog, str, list[Event]], Proof]] = {
    "pulsarcast": _links_are_whole,
    "skipring": _each_is_signed,
}
