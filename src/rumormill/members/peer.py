"""A peer: a protocol, and membership, which finds and keeps those whom the protocol talks to.

To its runtime it is one machine. It stands around a protocol as sync does: inputs and effects of
the protocol pass through, and membership takes what is its own. What it does:

- It keeps some links to other members, of which it has dialled a part itself; who is gone is
  replaced by somebody from the hash table (`overlay.kademlia`), which all members form among
  themselves over `/rumormill/members/1.0.0`. A ticket is the way in, and nothing more.
- Subscribers of a topic find each other in that table: whoever subscribes provides the hash of the
  topic's name, and whoever has too few subscribers among its links looks for those who do.
- It remembers whom it has met, on disk too, and tries them when it starts. Whoever was lost is
  tried again now and then, so that what a partition has parted finds together when it ends.

A protocol that finds its peers itself (`ProtocolSpec.finds_peers`) has only the last of these.
Peers that know nothing of membership, such as those of other implementations, are talked to as
ever; they do not count as links.
"""

import hashlib
from typing import Final

import msgspec
from msgspec.structs import replace

from rumormill.core import inputs
from rumormill.core.bounded import drop, take_out
from rumormill.core.effects import (
    Connect,
    Disconnect,
    Effects,
    KeepNote,
    Learn,
    Load,
    Notes,
    SetTimer,
)
from rumormill.core.event import Note
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Input
from rumormill.core.machine import Machine, View
from rumormill.core.randomness import Randomness
from rumormill.members.book import MEMBERS_NOTE, Book
from rumormill.members.config import MembersConfig
from rumormill.members.links import Link, Links
from rumormill.overlay.address_groups import network_of_text
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.kademlia import Kademlia
from rumormill.overlay.kademlia.messages import encode_kad
from rumormill.overlay.kademlia.operations import LookupKind, LookupResult
from rumormill.protocols.kademlia.spec import kad_decoder, max_kad_message
from rumormill.protocols.registry import Hooks, ProtocolSpec, QuerySpec

MEMBERS_PROTOCOL: Final = "/rumormill/members/1.0.0"

TABLE: Final = KademliaConfig(
    k=8,
    replacements=4,
    bootstrap_delay=0.2,
    refresh_interval=900.0,
    refresh_pause=100.0,
    refresh_contacts=4,
    republish_interval=900.0,
    provider_age=1800.0,
)
"""The hash table of members. Our choices: it is for finding somebody, not for keeping values, so
less than the specification's k will do, and half of that in waiting; who joins knows its neighbours
at once, lest the one whose ticket it has is gone before, and some peers at other distances later,
because many of those whom it asks cost a handshake; for the same reason it looks again every
quarter of an hour, while who is gone is noticed when it is asked; and a provider that is gone is to
be forgotten within half an hour."""

MEMBER_QUERIES: Final = QuerySpec(
    (MEMBERS_PROTOCOL,),
    encode_kad,
    lambda _: kad_decoder(TABLE),
    lambda _: max_kad_message(TABLE),
)
"""Questions among members: the messages of Kademlia, under a name of our own, because they are of
no use to whoever looks for content."""

CROWDED: Final = "its group of addresses has its share"
FULL: Final = "enough links; others were named"
NOT_NEEDED: Final = "more links than are needed"

_LOAD: Final = 1 << 47
"""The number of our own load; those of protocols stay below."""
_DIALS: Final = 4
"""Dials of ours under way at a time."""
_DIAL_TIMEOUT: Final = 30.0
_FAR: Final = 2
"""Links that we have dialled into the other half of all ids, of members whose first bit is not
ours. Who joins learns of its neighbours first, and crowds that join at once would link to nobody
else: parts that know nothing of each other. Two random links each make one network, of whatever
size (Fenner and Frieze, "On the connectivity of random m-orientable graphs and digraphs", 1982)."""
_FEW: Final = 3
"""Connections below which a protocol that finds its peers itself gets those of the book."""
_SOON: Final = 0.5
_GREETINGS: Final = 3
"""How often a peer is asked whether it is a member."""
_SAVE_AFTER: Final = 2.0
_SAVE_PAUSE: Final = 15.0
"""Seconds until a change is written down, and between two such: what a kill can take."""
_FIRST_SEARCH: Final = 3.0
_LAZY_SEARCH: Final = 900.0
"""Seconds until a topic is searched for: soon, but when the first links are there; and at leisure
if it has subscribers enough, so that a popular topic does not make everybody speak at once."""
_SEARCH_PAUSE: Final = 5.0
_LONGEST_PAUSE: Final = 300.0
"""Seconds between two searches for a topic's subscribers that find nobody new; they double."""
_SEARCHES: Final = 16
"""Topics that are searched for at one look."""


class _Tick(msgspec.Struct, frozen=True):
    """The timer of membership."""


_TICK: Final = _Tick()


class _Search(msgspec.Struct):
    """A topic of ours, and the search for its subscribers."""

    key: bytes
    provides: bool
    due: float
    waited: bool = False
    """Whether it was put off, having subscribers enough."""
    provided: bool = False
    pause: float = _SEARCH_PAUSE


CONCERNS: Final = frozenset(
    (
        inputs.Start,
        inputs.Subscribe,
        inputs.Unsubscribe,
        inputs.PeerConnected,
        inputs.PeerDisconnected,
        inputs.ConnectFailed,
        inputs.TimerFired,
        inputs.Loaded,
        inputs.Asked,
        inputs.Answered,
        inputs.AskFailed,
    )
)
"""What membership must look at. Everything else is the protocol's."""


def with_members(
    spec: ProtocolSpec,
    protocol: Machine,
    peer: PeerId,
    randomness: Randomness,
    config: MembersConfig,
    hooks: Hooks,
) -> Machine:
    """A protocol's machine with membership around it, unless its servers know everybody."""
    if not config.enabled or spec.servers is not None:
        return protocol
    alone = spec.finds_peers or spec.queries is not None
    return MemberPeer(protocol, peer, randomness, config, hooks, finds_peers=alone)


def queries_of(spec: ProtocolSpec, config: MembersConfig) -> QuerySpec | None:
    """The questions that such a machine asks: the protocol's own, or those of membership."""
    needed = config.enabled and not spec.finds_peers and spec.queries is None
    return MEMBER_QUERIES if needed else spec.queries


def topic_key(topic: Topic) -> bytes:
    """The multihash under which subscribers of a topic are found."""
    return b"\x12\x20" + hashlib.sha256(b"rumormill topic " + topic.encode()).digest()


class MemberPeer:
    """The machine of a protocol together with membership."""

    __slots__ = (
        "_addresses", "_book", "_config", "_dialling", "_finds_peers", "_links", "_next_look",
        "_next_retry", "_next_save", "_randomness", "_searches", "_table", "_tick_at", "_topics",
        "protocol",
    )  # fmt: skip

    def __init__(
        self,
        protocol: Machine,
        peer: PeerId,
        randomness: Randomness,
        config: MembersConfig,
        hooks: Hooks,
        *,
        finds_peers: bool,
    ) -> None:
        self.protocol = protocol
        self._randomness = randomness
        self._config = config
        self._addresses = hooks.addresses
        self._book = Book(config.remembered)
        self._links = Links(config, randomness)
        self._dialling: dict[PeerId, float] = {}
        """Whom we try to reach, and since when."""
        self._searches: dict[Topic, _Search] = {}
        self._topics: dict[bytes, Topic] = {}
        self._finds_peers = finds_peers
        self._table = Kademlia(
            peer, randomness, TABLE, on_result=self._on_result, addresses=hooks.addresses
        )
        self._tick_at = float("inf")
        self._next_look = self._next_retry = self._next_save = 0.0

    def view(self) -> View:
        """Show the protocol, and the members that are known (see `core.machine`)."""
        view, members = self.protocol.view(), tuple(self._links.members())
        counts = {
            "linked": len(members),
            "known": len(self._known()),
            "remembered": len(self._book),
            "lost": self._book.lost,
        }
        return replace(view, links={**view.links, "member": {"": members}}, members=counts)

    def _known(self) -> dict[PeerId, None]:
        """Everybody who might be linked, and those who are."""
        contacts = [contact.peer for contact in self._table.contacts.table]
        remembered = [known.peer for known in self._book]
        return dict.fromkeys([*self._links.members(), *contacts, *remembered])

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Take one input (see `core.machine`)."""
        if type(event) not in CONCERNS or not self._handle_own(event, now, effects):
            self.protocol.handle(event, now, effects)

    def _handle_own(self, event: Input, now: float, effects: Effects) -> bool:
        """Take an input of membership's own; false for what is the protocol's (too)."""
        if not self._finds_peers and isinstance(event, inputs.Asked | inputs.Answered):
            self._on_heard(event, now, effects)
            return True
        match event:
            case inputs.TimerFired(timer=_Tick()):
                self._tick_at = float("inf")
                self._on_tick(now, effects)
            case inputs.Loaded(number=number) if number == _LOAD:
                self._on_loaded(event, now, effects)
            case _ if self._finds_peers:
                self._overhear(event, now, effects)
                return False
            case inputs.TimerFired(timer=timer) if self._table.owns(timer):
                self._table.handle(event, now, effects)
            case inputs.AskFailed():
                self._table.handle(event, now, effects)
            case _:
                self._overhear(event, now, effects)
                if not isinstance(event, inputs.TimerFired):
                    self._table.handle(event, now, effects)
                return False
        return True

    def _on_heard(
        self, event: inputs.Asked | inputs.Answered, now: float, effects: Effects
    ) -> None:
        """A peer asked or answered, as members do."""
        self._table.handle(event, now, effects)
        links = self._links.all
        link = links.get(event.peer)
        if link is not None and not link.member:
            self._recognise(event.peer, now, effects)
        if len(links) < self._config.wanted:
            self._look_soon(now, effects)

    def _overhear(self, event: Input, now: float, effects: Effects) -> None:
        """Note what the protocol hears and membership must know as well."""
        match event:
            case inputs.Start():
                # A machine may be started again as it was; its timers and connections are gone.
                self._tick_at = float("inf")
                self._links.all.clear()
                self._dialling.clear()
                effects.append(Load(_LOAD, "", Notes(MEMBERS_NOTE)))
                self._next_look = now
                self._wake(now + self._randomness.random() * _SOON, effects)
            case inputs.PeerConnected():
                self._on_connected(event, now, effects)
            case inputs.PeerDisconnected(peer=peer, lost=lost):
                drop(self._links.all, peer)
                self._book.part(peer, lost, now)
                self._look_soon(now, effects)
            case inputs.ConnectFailed(peer=peer):
                if take_out(self._dialling, peer) is not None:
                    self._book.fail(peer, now)
                    self._look_soon(now, effects)
            case inputs.Subscribe(topic=topic, publish_only=publish_only):
                if not self._finds_peers and topic not in self._searches:
                    due = now + _FIRST_SEARCH * (1 + self._randomness.random())
                    search = _Search(topic_key(topic), not publish_only, due)
                    self._searches[topic] = search
                    self._topics[search.key] = topic
                    self._wake(due, effects)
            case inputs.Unsubscribe(topic=topic):
                if topic in self._searches:
                    key = self._searches.pop(topic).key
                    del self._topics[key]
                    self._table.stop_providing(key)
            case _:
                pass

    # Who comes.

    def _on_connected(self, event: inputs.PeerConnected, now: float, effects: Effects) -> None:
        peer, group = event.peer, network_of_text(event.address)
        sought = take_out(self._dialling, peer) is not None
        sought |= event.outbound and not event.transient
        self._links.all[peer] = Link(event.outbound, sought, group, now, member=False)
        if self._book.is_lost(peer):  # one who was parted from us may bring others
            for search in self._searches.values():
                search.pause = _SEARCH_PAUSE
                search.due = min(search.due, now + _SEARCH_PAUSE * self._randomness.random())
        if event.outbound:
            self._remember(peer, group, now, effects)
        if self._finds_peers:
            self._recognise(peer, now, effects)
        else:
            self._look_soon(now, effects)

    def _recognise(self, peer: PeerId, now: float, effects: Effects) -> None:
        """A peer speaks as members do."""
        link = self._links.all.get(peer)
        if link is None or link.member or link.leaves:
            return
        if not self._links.has_room(link.group):
            effects.append(Disconnect(peer, CROWDED))
            return
        if self._links.full and not (link.outbound or self._finds_peers):
            link.leaves = now + _SOON
            self._next_look = min(self._next_look, link.leaves)
            self._wake(self._next_look, effects)
            return
        link.member = True
        self._remember(peer, link.group, now, effects)

    def _remember(self, peer: PeerId, group: str, now: float, effects: Effects) -> None:
        known = self._book.changed
        self._book.meet(peer, group, now)
        if self._book.changed and not known:
            self._next_save = max(self._next_save, now + _SAVE_AFTER)
            self._wake(self._next_save, effects)

    def _on_loaded(self, loaded: inputs.Loaded, now: float, effects: Effects) -> None:
        for note in loaded.notes:
            for known in self._book.read(note.value, now):
                effects.append(Learn(known.peer, known.addresses))
        self._look_soon(now, effects)

    # Looking after it all.

    def _wake(self, at: float, effects: Effects) -> None:
        if at < self._tick_at:
            self._tick_at = at
            effects.append(SetTimer(_TICK, at, patient=bool(self._links.all)))

    def _look_soon(self, now: float, effects: Effects) -> None:
        self._next_look = min(self._next_look, now + _SOON * (0.5 + self._randomness.random()))
        self._wake(self._next_look, effects)

    def _on_tick(self, now: float, effects: Effects) -> None:
        if now >= self._next_look:
            self._next_look = now + self._config.interval * (0.5 + self._randomness.random())
            if not self._finds_peers:
                self._greet(now, effects)
                self._let_go(now, effects)
            self._seek(now, effects)
        if now >= self._next_retry:
            self._next_retry = now + self._config.retry * (0.5 + self._randomness.random())
            peer = self._book.missed(now)
            if peer is not None:
                self._dial(peer, now, effects)
        self._search(now, effects)
        if self._book.changed and now >= self._next_save:
            self._next_save = now + _SAVE_PAUSE
            effects.append(KeepNote(Note(MEMBERS_NOTE, self._book.written(self._addresses))))
        dues = [search.due for search in self._searches.values()]
        dues.append(self._next_save if self._book.changed else self._next_look)
        self._wake(max(now + 0.1, min([self._next_look, *dues])), effects)

    def _greet(self, now: float, effects: Effects) -> None:
        """Ask those who are connected whether they are members."""
        for peer, link in self._links.all.items():
            if not link.member and not link.leaves and link.asked < _GREETINGS:
                link.asked += 1
                self._table.contacts.check(peer, now, effects)

    def _let_go(self, now: float, effects: Effects) -> None:
        for peer, link in self._links.all.items():
            if 0 < link.leaves <= now:
                effects.append(Disconnect(peer, FULL))
        if len(self._links.all) > self._config.wanted:
            for peer in self._links.surplus(self.protocol.view, self._searches, now):
                effects.append(Disconnect(peer, NOT_NEEDED))

    def _seek(self, now: float, effects: Effects) -> None:
        """Dial until there are links enough."""
        for peer in [each for each, at in self._dialling.items() if at < now - _DIAL_TIMEOUT]:
            del self._dialling[peer]
        missing = _FEW - len(self._links.all) if self._finds_peers else self._links.missing()
        far = 0 if self._finds_peers else self._links.missing_far(self._is_far, _FAR)
        missing = min(max(missing, far), _DIALS) - len(self._dialling)
        if missing <= 0:
            return
        rested = self._book.rested(now)
        if not self._links.all and not rested:  # who is alone has no time to lose
            rested = [known.peer for known in self._book]
        table = self._table.contacts.table
        fresh = [each.peer for each in table if each.peer not in self._book and not each.failures]
        able = [peer for peer in dict.fromkeys([*rested, *fresh]) if self._may_dial(peer)]
        chosen = [peer for peer in able if self._is_far(peer)]
        chosen = self._randomness.sample(chosen, min(far, missing, len(chosen)))
        others = [peer for peer in able if peer not in chosen]
        more = min(max(0, self._links.missing()), missing) - len(chosen)
        for peer in (*chosen, *self._randomness.sample(others, max(0, min(more, len(others))))):
            self._dial(peer, now, effects)

    def _is_far(self, peer: PeerId) -> bool:
        return self._table.contacts.table.bucket_of(peer) == 0

    def _may_dial(self, peer: PeerId) -> bool:
        if peer in self._dialling or peer == self._table.peer:
            return False
        link = self._links.all.get(peer)
        if link is not None:
            return link.member and not link.sought and link.outbound
        contact = self._table.contacts.table.get(peer)
        group = self._book.group_of(peer) or ("" if contact is None else contact.network)
        return self._links.has_room(group)

    def _dial(self, peer: PeerId, now: float, effects: Effects) -> None:
        link = self._links.all.get(peer)
        if link is not None:
            link.sought = True
        else:
            self._dialling[peer] = now
            self._book.note_tried(peer, now)
        effects.append(Connect(peer))

    # Subscribers of our topics.

    def _search(self, now: float, effects: Effects) -> None:
        """Provide topics, and look for subscribers of those that have too few."""
        due = [topic for topic, search in self._searches.items() if search.due <= now]
        peers = self.protocol.view().peers if due else {}
        for topic in due[:_SEARCHES]:
            search = self._searches[topic]
            lacks = len(peers.get(topic, ())) < self._config.topic_wanted
            if not self._table.contacts.table:
                search.due = now + _FIRST_SEARCH
            elif lacks or search.waited:
                self._visit(search, lacks, now, effects)
            else:
                search.waited = True
                search.due = now + _LAZY_SEARCH * self._randomness.random()

    def _visit(self, search: _Search, lacks: bool, now: float, effects: Effects) -> None:
        if search.provides and (lacks or not search.provided):
            search.provided = True
            self._table.provide(search.key, now, effects)
        if lacks:
            self._table.find_providers(search.key, now, effects)
        search.due = now + search.pause * (0.5 + self._randomness.random())
        search.pause = min(2 * search.pause, _LONGEST_PAUSE) if lacks else _SEARCH_PAUSE

    def _on_result(self, result: LookupResult, now: float, effects: Effects) -> None:
        topic = self._topics.get(result.key)
        search = None if topic is None else self._searches.get(topic)
        if topic is None or search is None:
            return
        if result.kind is LookupKind.PROVIDE:
            search.provided = bool(result.stored)
            return
        subscribers = self.protocol.view().peers.get(topic, ())
        new = [peer for peer in result.peers if peer not in self._links.all]
        lacking = 0 if self._links.full else self._config.topic_wanted - len(subscribers)
        for peer in [peer for peer in new if self._may_dial(peer)][: max(0, lacking)]:
            self._dial(peer, now, effects)
            search.pause = _SEARCH_PAUSE
