"""Arbitrary trace entries of every kind, and one plain example of each."""

from typing import Any, get_type_hints

from hypothesis import strategies as st

from rumormill.core import trace
from rumormill.trace.entries import Entry

peer_ids = st.binary(max_size=40)
message_ids = st.binary(max_size=40)
texts = st.text(max_size=20)

_BY_HINT: dict[Any, st.SearchStrategy[Any]] = {
    bytes: peer_ids,
    str: texts,
    bool: st.booleans(),
    int: st.integers(0, 2**31),
    float: st.floats(allow_nan=False, allow_infinity=False),
}


def _strategy(hint: Any) -> st.SearchStrategy[Any]:
    if hint in _BY_HINT:
        return _BY_HINT[hint]
    if getattr(hint, "__origin__", None) is tuple:
        return st.lists(_strategy(hint.__args__[0]), max_size=3).map(tuple)
    if hint == trace.ControlMeta | None:
        return st.none() | structs(trace.ControlMeta)
    return structs(hint)


def structs(kind: type) -> st.SearchStrategy[Any]:
    """Any value of a trace struct."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: _strategy(hints[name]) for name in kind.__struct_fields__})


def payloads() -> st.SearchStrategy[trace.TracePayload]:
    """Any payload of any kind."""
    return st.one_of([structs(kind) for kind in trace.TRACE_PAYLOADS])


def times() -> st.SearchStrategy[float]:
    """Times that are whole nanoseconds of a virtual clock: they survive a file unchanged."""
    return st.integers(0, 10**15).map(lambda nanoseconds: nanoseconds / 1e9)


def entries() -> st.SearchStrategy[Entry]:
    """Any entry."""
    return st.tuples(times(), peer_ids, payloads())


_META = trace.RpcMeta(
    messages=(trace.MessageMeta(b"id-1", "news"),),
    subscription=(trace.SubMeta(True, "news"), trace.SubMeta(False, "old")),
    control=trace.ControlMeta(
        ihave=(trace.IHaveMeta("news", (b"id-2", b"id-3")),),
        iwant=(trace.IWantMeta((b"id-4",)),),
        graft=(trace.GraftMeta("news"),),
        prune=(trace.PruneMeta("news", (b"peer-c",)),),
        idontwant=(trace.IDontWantMeta((b"id-5",)),),
    ),
    size=300,
    data_size=120,
    operations=(trace.OperationMeta("lease", "news"),),
)

ONE_OF_EACH: list[Entry] = [
    (1.0, b"peer-a", payload)
    for payload in (
        trace.PublishMessage(b"id-1", "news"),
        trace.RejectMessage(b"id-1", b"peer-b", "validation failed", "news"),
        trace.DuplicateMessage(b"id-1", b"peer-b", "news"),
        trace.DeliverMessage(b"id-1", "news", b"peer-b"),
        trace.AddPeer(b"peer-b", "/meshsub/1.2.0"),
        trace.RemovePeer(b"peer-b"),
        trace.RecvRPC(b"peer-b", _META),
        trace.SendRPC(b"peer-b", trace.RpcMeta()),
        trace.DropRPC(b"peer-b", _META, "queue-full"),
        trace.Join("news"),
        trace.Leave("news"),
        trace.Graft(b"peer-b", "news"),
        trace.Prune(b"peer-b", "news"),
        trace.NodeUp(),
        trace.NodeDown("crash"),
        trace.Refuse(b"peer-b", "ihave-limit", "news", 3),
        trace.Penalise(b"peer-b", "broken-promise", 1.5),
        trace.UndeliverableMessage(b"id-1", "news", "queue-full"),
        trace.SkipPublish("news", "publisher down"),
        trace.Stabilised("news", True),
        trace.SyncEnded(b"peer-b", "complete", 3, 1, 250),
        trace.FailPublish("news", "the disk is full"),
    )
]
