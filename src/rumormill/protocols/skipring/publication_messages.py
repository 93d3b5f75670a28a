"""What subscribers write to each other about publications (Algorithm 5), as values.

They are letters like those of `messages`, with bodies in the fields 12 to 15. The paper's messages
carry one node or prefix each; here all that one message gives rise to travels in one answer, so
that a chain has as many messages as the trie has levels, and not as it has nodes.
"""

from typing import ClassVar, Final, TypeAlias

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.core.ids import Topic
from rumormill.core.trace import MessageMeta, OperationMeta, RpcMeta
from rumormill.overlay.patricia import HASH_BYTES, Prefix, Summary
from rumormill.protocols.skipring.config import MAX_NODES, MAX_PUBLICATIONS
from rumormill.protocols.skipring.envelope import PUBLICATION, Publication
from rumormill.protocols.skipring.messages import Body, Letter
from rumormill.wire.fields import Nested, Number, Octets
from rumormill.wire.protobuf import field_size
from rumormill.wire.schema import Layout, Schema


class Want(msgspec.Struct, frozen=True, gc=False):
    """All publications whose keys start with `prefix`, from the first one behind `after`."""

    prefix: Prefix
    after: bytes = b""


_NODE_BYTES: Final = 256
"""A node or want: a prefix of at most 32 bytes, a hash or key of 32, framing, unknown fields."""


def _hash(data: bytes) -> bytes:
    if len(data) != HASH_BYTES:
        raise DecodeError("bad-hash", f"a hash of {len(data)} bytes")
    return data


_NODE: Final = Schema(
    lambda length, bits, value: Summary(Prefix(bits, length), value),
    {
        "label.length": Number(1),
        "label.bits": Octets(2, 32),
        "hash": Octets(3, HASH_BYTES, read=_hash, missing="bad-hash"),
    },
    max_bytes=_NODE_BYTES,
)
_WANT: Final = Schema(
    lambda length, bits, after: Want(Prefix(bits, length), after),
    {"prefix.length": Number(1), "prefix.bits": Octets(2, 32), "after": Octets(3, 32)},
    max_bytes=_NODE_BYTES,
)


def _nodes(number: int) -> Nested:
    return Nested(number, _NODE, max_count=MAX_NODES)


def _wants(number: int) -> Nested:
    return Nested(number, _WANT, max_count=MAX_NODES)


class CheckTrie(Letter, msgspec.Struct, gc=False):
    """Compare these nodes of the sender's trie with your own (CHECKTRIE)."""

    field: ClassVar[int] = 12
    operation: ClassVar[str] = "check-trie"
    body: ClassVar[Body] = Layout({"nodes": _nodes(1)})
    topic: Topic
    nodes: tuple[Summary, ...]
    cached_meta: RpcMeta | None = None


class CheckAndPublish(Letter, msgspec.Struct, gc=False):
    """Compare these nodes, and send the publications that the sender lacks (CHECKANDPUBLISH)."""

    field: ClassVar[int] = 13
    operation: ClassVar[str] = "check-and-publish"
    body: ClassVar[Body] = Layout({"nodes": _nodes(1), "wants": _wants(2)})
    topic: Topic
    nodes: tuple[Summary, ...]
    wants: tuple[Want, ...]
    cached_meta: RpcMeta | None = None


def _meta_of(letter: Letter, publications: tuple[Publication, ...], rest_size: int = 0) -> RpcMeta:
    data_size = sum([field_size(each.size) for each in publications])
    return RpcMeta(
        tuple([MessageMeta(each.id, letter.topic) for each in publications]),
        size=letter.framed(data_size + rest_size),
        data_size=data_size,
        operations=(OperationMeta(letter.operation, letter.topic),),
    )


class PublishBundle(Letter, msgspec.Struct, gc=False):
    """Publications that the receiver asked for (PUBLISH), and what did not fit beside them."""

    field: ClassVar[int] = 14
    operation: ClassVar[str] = "publish"
    body: ClassVar[Body] = Layout(
        {
            "publications": Nested(1, PUBLICATION, max_count=MAX_PUBLICATIONS),
            "rest": _wants(2),
        }
    )
    topic: Topic
    publications: tuple[Publication, ...]
    rest: tuple[Want, ...] = ()
    """What the receiver may ask for next in order to get the remainder."""
    cached_meta: RpcMeta | None = None

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this message."""
        meta = self.cached_meta
        if meta is None:
            meta = self.cached_meta = _meta_of(self, self.publications, _REST.size(self))
        return meta

    @property
    def urgent(self) -> bool:
        """It is data."""
        return False


_REST: Final = PublishBundle.body.only("rest")


class PublishNew(Letter, msgspec.Struct, gc=False):
    """A new publication, on its way along all edges (PUBLISHNEW)."""

    field: ClassVar[int] = 15
    operation: ClassVar[str] = "publish-new"
    body: ClassVar[Body] = Layout({"publication": Nested(1, PUBLICATION, missing="no-publication")})
    topic: Topic
    publication: Publication
    cached_meta: RpcMeta | None = None

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this message."""
        meta = self.cached_meta
        if meta is None:
            meta = self.cached_meta = _meta_of(self, (self.publication,))
        return meta

    @property
    def urgent(self) -> bool:
        """It is data."""
        return False


PublicationMessage: TypeAlias = CheckTrie | CheckAndPublish | PublishBundle | PublishNew

PUBLICATION_MESSAGES: tuple[type[PublicationMessage], ...] = (
    CheckTrie,
    CheckAndPublish,
    PublishBundle,
    PublishNew,
)
