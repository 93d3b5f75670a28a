"""A node, put together and taken apart: identity, log, journal, machine, connections.

What is opened is closed in the opposite order, and what was published before the end is stored and
sent before it. `node` has the calls of an application.
"""

import asyncio
import os
import random
import secrets
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from rumormill.core import trace
from rumormill.core.config import Config
from rumormill.core.effects import Disregard
from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.core.history import Key, stamp_of
from rumormill.core.ids import PeerId
from rumormill.core.ids import Topic as TopicName
from rumormill.core.inputs import LogChanged, Subscribe, Unsubscribe
from rumormill.core.machine import Machine
from rumormill.daemon.doors import Doors
from rumormill.libp2p.lan import Lan
from rumormill.libp2p.reach import Reach
from rumormill.libp2p.swarm import Swarm
from rumormill.log.event_log import EventLog
from rumormill.log.keeping import rules_of
from rumormill.log.model import Durability, Retention, StoreConfig
from rumormill.log.threads import in_thread
from rumormill.members.config import MembersConfig
from rumormill.members.peer import queries_of, with_members
from rumormill.node import identity, topics
from rumormill.node.callbacks import Callbacks, Validators
from rumormill.node.change import Change
from rumormill.node.config import (
    NodeConfig,
    announced,
    chosen_protocol,
    chosen_reach,
    chosen_settings,
    chosen_store,
    listen_endpoint,
    listened,
)
from rumormill.node.driver import Driver
from rumormill.node.groups import Groups
from rumormill.node.journal import Journal
from rumormill.node.metrics import Counts
from rumormill.node.patterns import Patterns
from rumormill.node.peer_clocks import CLOCK, TellTime
from rumormill.node.requesting import Replied
from rumormill.node.retaining import keep_retaining
from rumormill.node.subscription import Subscription
from rumormill.node.synced import followed_note, followed_topics
from rumormill.node.taken import EVENT_REFUSED
from rumormill.node.topic_access import TopicAccess
from rumormill.protocols.registry import Hooks, MessageIdFunction, ProtocolSpec
from rumormill.sync.config import SyncConfig
from rumormill.sync.peer import SyncedPeer
from rumormill.trace.entries import Observer, Recorder
from rumormill.wire import keys

FORKED: Final = (
    "the node belongs to the process that this one was forked from; make one here, with a home of"
    " its own, or start processes by `spawn`"
)
OTHER_LOOP: Final = (
    "the node runs in another event loop: call it there (`asyncio.run_coroutine_threadsafe`), or"
    " use a SyncNode, which any thread may call"
)


class NodeLife:
    """What `Node` is made of, and how that is started and closed."""

    _running = False
    forked = False
    """Whether this process is a fork of the one in which the node was started."""
    _checked_topic: object = object()

    def __init__(
        self,
        home: str | Path | None,
        *,
        listen: str | Sequence[str] = "/ip4/127.0.0.1/tcp/0",
        announce: Sequence[str] = (),
        protocol: str | ProtocolSpec = "gossipsub",
        preset: str = "default",
        parameters: Mapping[str, Any] | None = None,
        protocol_ids: Sequence[str] | None = None,
        supervisors: Sequence[str] = (),
        supervises: bool = False,
        network: str | Path | None = None,
        topic_keys: Mapping[TopicName, str | Path] | None = None,
        policies: Sequence[str | Path] = (),
        message_id: MessageIdFunction | None = None,
        application_score: Callable[[PeerId], float] | None = None,
        subscription_filter: Callable[[TopicName], object] | None = None,
        peer_filter: Callable[[PeerId, TopicName], object] | None = None,
        durability: Durability | str | None = None,
        config: NodeConfig | None = None,
        store: StoreConfig | None = None,
        retain: Retention | Mapping[TopicName, Retention] | None = None,
        sync: SyncConfig | bool = True,
        members: MembersConfig | bool = True,
        mdns: bool = False,
        relays: Sequence[str] = (),
        be_relay: bool = False,
        map_port: bool = False,
        resume: bool = False,
        control: bool = True,
        observers: Sequence[Observer] = (),
    ) -> None:
        """Describe a node; nothing is opened before `start`.

        `home` is a directory, made if need be; None keeps all in memory. `listen` are TCP
        multiaddrs; port 0 is any. `announce` are those that others are told instead, as behind a
        NAT. `protocol` is a name, or the specification of one that is not rumormill's own;
        `parameters` are its own, by name; `protocol_ids` the versions that peers are offered, best
        first. `supervisors` are the tickets of all peers that supervise topics, where there are
        such; with `supervises` this node is one. `network` is the key file of a private network:
        nobody else is talked to. `topic_keys` are the key files of encrypted topics; `policies` are
        files that say who may publish. `message_id`, `application_score`, `subscription_filter` and
        `peer_filter` are functions that FloodSub or GossipSub call; see `protocols.registry.Hooks`.
        `durability` is `fsync` with a home. `observers` see the trace. `retain` says how much of
        topics is kept, or of each by its name, of all others under "". `sync` says whether and how
        what is missing is got from others; `members`, other nodes; `mdns`, also without a ticket.
        It is reached through `relays`, tickets or "auto"; `be_relay` makes it one; `map_port` asks
        the router. `resume` follows topics as before; `control` lets commands in.
        """
        self._home = None if home is None else Path(home)
        self._listen, self._announced = listened(listen), announced(announce)
        self._spec = chosen_protocol(protocol, protocol_ids)
        self._settings = self._spec.configure(preset, parameters or {})
        self._supervisors, self._supervises = tuple(supervisors), supervises
        self._network = network if network is None else Path(network)
        self._config = chosen_settings("config", config, NodeConfig)
        self._store_config = chosen_store(store, durability, self._home)
        self._sync = chosen_settings("sync", sync, SyncConfig)
        self._members = chosen_settings("members", members, MembersConfig)
        for each in (self._config, self._sync, self._members):
            each.validate()
        self._mdns, self._resume, self._control = mdns, resume, control
        self._reach_options = chosen_reach(relays, be_relay=be_relay, map_port=map_port)
        self._rules, self._observers = rules_of(retain), tuple(observers)
        self._callbacks = Callbacks(message_id, application_score, subscription_filter, peer_filter)
        self.access = TopicAccess(topic_keys, policies)  # which may change while the node runs
        self._validators = Validators(self._callbacks, self.access)
        self._change, self._doors, self._ends = Change(), dict[Doors, None](), AsyncExitStack()
        self._requests, self._replied, self._changing = 0, Replied(), asyncio.Lock()

    # Life.

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Open identity and log, listen, and take part in the network. Whoever is interrupted
        leaves nothing open."""
        self.check_process()
        async with self._changing:
            self._check_startable()
            async with AsyncExitStack() as ends:
                await self._begin(ends)
                self._ends = ends.pop_all()

    async def _begin(self, ends: AsyncExitStack) -> None:
        """Open one after the other, each with how it ends."""
        spec, config = self._spec, self._config
        self.identity = identity.identity_of(self._home)
        network = identity.load_network(self._network)
        self.access.load(self.id, proven=spec.proves_authors(self._settings))
        self._swarm = Swarm(self.identity.key, config, network, self._announced)
        self._swarm.services[CLOCK] = lambda *_: TellTime()
        self._reach = Reach(self._swarm, **self._reach_options)
        self._ourselves = (self.id,) if self._supervises else ()
        settings = topics.appointed(
            spec, self._settings, self._supervisors, self._swarm.book, self._ourselves
        )
        ends.callback(self._change.happened)
        # A large store takes a while to open, in which others on this loop go on.
        await in_thread(partial(self._open_log, ends))
        self._counts = Counts()
        self._recorder = Recorder((self._counts, *self._observers))
        journal = Journal(self._log, self.id, spec.name, config, self._change, self.access)
        self._journal, journal.on_lost = journal, self._on_lost
        ends.push_async_callback(in_thread, journal.reader.join)
        ends.callback(journal.stop)
        hooks = self._callbacks.hooks(
            spec,
            validator=self._validators.judge,
            check_record=identity.record_is_of,
            peer_records=self._swarm.book.records,
            agents=self._swarm.book.agents,
            addresses=self._swarm.addresses_of,
        )
        self._driver = Driver(
            spec,
            settings,
            hooks,
            self._machines(settings, hooks),
            queries_of(spec, self._members),
            self._swarm,
            self._recorder,
            journal,
            config,
        )
        self.access.record = self._driver.record
        self._driver.on_validate = self._validators.begin
        self._validators.answer = self._driver.feed
        self._driver.on_change = self._change.happened
        self._patterns = Patterns(
            self._known_topics,
            lambda: journal.failure,
            lambda pattern: self._counts.add("rumormill_pattern_topics_left_out", pattern),
            config.pattern_topics,
        )
        ends.callback(self._stop_machine)
        ends.push_async_callback(journal.drain)
        ends.push_async_callback(self._swarm.close)
        for address in self._listen:
            await self._swarm.listen(listen_endpoint(address))
        self._take_part(ends)

    def _open_log(self, ends: AsyncExitStack) -> None:
        self._log = EventLog(self._home, self._store_config)
        ends.push_async_callback(in_thread, self._log.close)
        self._groups = Groups(self._log)

    def _take_part(self, ends: AsyncExitStack) -> None:
        """All is open: begin."""
        self._loop = asyncio.get_running_loop()
        self._followed: dict[TopicName, int] = {}  # by how many it was wished
        followed = followed_topics(self._log) if self._resume else []
        ends.push_async_callback(self._reach.close)
        ends.push_async_callback(topics.take_leave, self._spec, self._driver)
        ends.push_async_callback(self._journal.drain)
        housekeeping = asyncio.ensure_future(self._swarm.keep_house())
        retaining = asyncio.ensure_future(keep_retaining(self._log, self._rules))
        ends.callback(self._take_part_no_more, housekeeping, retaining)
        ends.push_async_callback(self._close_doors)
        self._running = True
        _NODES.add(self)
        self._driver.start()
        self.access.changed = self._follow_rules
        self._follow_rules()
        for topic in followed:
            self._followed[topic] = 1
            self._driver.feed(Subscribe(topic))
        self._reach.start()
        if self._mdns:
            self._swarm.spawn(Lan(self._swarm).keep_looking())

    def _machines(self, settings: Config, hooks: Hooks) -> tuple[Machine, Machine]:
        """The protocol's machine, and what the runtime drives: that with membership and sync."""

        def draws() -> random.Random:
            return random.Random(secrets.token_bytes(32))  # whose numbers nobody can foresee

        spec = self._spec
        protocol = spec.build(self.identity, draws(), settings, hooks)
        member = with_members(spec, protocol, self.id, draws(), self._members, hooks)
        return protocol, SyncedPeer(member, draws(), self._sync, spec.check_kept(protocol))

    async def close(self) -> None:
        """Close doors, connections and the log; what was queued is sent and stored first. Whoever
        is interrupted waits for that no longer, and everything is closed all the same."""
        if not self.forked:  # all of it would be the other process's
            async with self._changing:
                await self._ends.aclose()

    async def _close_doors(self) -> None:
        async with AsyncExitStack() as doors:
            for each in self._doors:
                doors.push_async_callback(each.close)

    def _follow_rules(self) -> None:
        """What other keys or policies refused is asked for again."""
        if self._running:
            told = partial(self._driver.feed, LogChanged())
            self._journal.reader.follow(self.access.rules(), told)

    def _take_part_no_more(self, *tasks: asyncio.Task[None]) -> None:
        """Nothing new is begun or taken."""
        self._running = False
        _NODES.discard(self)
        for task in tasks:
            task.cancel()
        self._validators.close()
        self._journal.close()

    def _stop_machine(self) -> None:
        self._groups.close()
        for subscription in [*self._journal.all_subscriptions(), *self._patterns]:
            subscription.close()
        self._driver.stop("closed")

    @property
    def id(self) -> keys.PeerId:
        """This node's peer id: bytes, and as text (`str`) what tickets and people have."""
        if not hasattr(self, "identity"):
            self._check_running()
        return keys.PeerId(self.identity.peer)

    def _enter(
        self,
        subscription: Subscription,
        wanted: float | None,
        follow: bool,
        topic: TopicName,
        start: int | None,
    ) -> None:
        """Have a subscription take a topic's events, from an offset of the log or from now on."""
        subscription.enter(topic, start)
        try:
            topics.enter_topic(self._spec, self._driver, topic, subscription, wanted)
        except LocalError:
            subscription.leave(topic)
            raise
        if follow:
            self._follow(topic)
        self._journal.add(topic, subscription)

    def _on_closed(self, subscription: Subscription) -> None:
        self._patterns.remove(subscription)
        for topic in subscription.topics:
            alone = self._journal.remove(topic, subscription)
            if self._running and alone and topic not in self._followed:
                meta = subscription.reach.unsubscribe_from_meta
                own = topic == subscription.topic
                self._driver.feed(Unsubscribe(topic, meta if own else None))

    def _follow(self, topic: TopicName) -> None:
        """Follow a topic until it is left, also in later lives of this node (`resume`)."""
        wishes = self._followed[topic] = self._followed.get(topic, 0) + 1
        if wishes == 1:
            self._journal.keep_note(followed_note(topic, True))

    def _take_back(self, topic: TopicName) -> None:
        """Who wished to follow a topic could not: forget it, unless others wish it as well."""
        if self._followed.get(topic, 0) > 1:
            self._followed[topic] -= 1
        else:
            self._forget(topic)

    def _forget(self, topic: TopicName) -> None:
        if self._followed.pop(topic, 0):
            self._journal.keep_note(followed_note(topic, False))

    def _known_topics(self) -> list[TopicName]:
        """The topics that this node has heard of, in its log and from peers; some stand twice."""
        view = self._driver.machine.view()
        return [*self._log.writer().topics, *view.subscriptions, *view.peers]

    def _check_running(self) -> None:
        if not self._running:
            self.check_process()
            raise LocalError("the node is not running; use `async with Node(...)` or `start`")
        with suppress(RuntimeError):  # no loop: a thread that looks at what is there
            if asyncio.get_running_loop() is not self._loop:
                raise LocalError(OTHER_LOOP)

    def _check_startable(self) -> None:
        self.check_process()
        if self._running:
            raise LocalError("the node is running already")

    def check_process(self) -> None:
        """Refuse to be used where only a copy of the node is."""
        if self.forked:
            raise LocalError(FORKED)

    def _on_lost(self, event: Event, reason: str) -> None:
        self._driver.record(trace.UndeliverableMessage(event.id, event.topic, reason))
        if reason == EVENT_REFUSED:  # and will be for ever: nobody need be asked for it again
            self._journal.reader.know(Disregard(event.topic, Key(stamp_of(event), event.id)))


_NODES: Final[weakref.WeakSet[NodeLife]] = weakref.WeakSet()


def _mark_copies() -> None:
    """In a fork: what is here of nodes are copies, without their threads and with their sockets."""
    for node in _NODES:
        node.forked, node._running = True, False


os.register_at_fork(after_in_child=_mark_copies)
