"""What subscribers write to each other about publications (Algorithm 5), as values.

They are letters like those of `messages`, with bodies in the fields 12 to 15. The paper's messages
carry one node or prefix each; here all that one message gives rise to travels in one answer, so
that a chain has as many messages as the trie has levels, and not as it has nodes.
"""

from typing import ClassVar, TypeAlias

import msgspec

from rumormill.core.ids import Topic
from rumormill.core.trace import MessageMeta, OperationMeta, RpcMeta
from rumormill.overlay.patricia import Prefix, Summary
from rumormill.protocols.skipring.envelope import Publication
from rumormill.protocols.skipring.messages import Letter
from rumormill.wire.protobuf import field_size, varint_size


class Want(msgspec.Struct, frozen=True, gc=False):
    """All publications whose keys start with `prefix`, from the first one behind `after`."""

    prefix: Prefix
    after: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of the encoded want: prefix as fields 1 and 2, after = 3."""
        size = prefix_size(self.prefix)
        return size + field_size(len(self.after)) if self.after else size


def prefix_size(prefix: Prefix) -> int:
    """Bytes of a prefix: its number of bits and its bytes, both left out when there are none."""
    if not prefix.length:
        return 0
    return 1 + varint_size(prefix.length) + field_size(len(prefix.bits))


def nodes_size(nodes: tuple[Summary, ...]) -> int:
    """Bytes of a list of nodes in a body: prefix as fields 1 and 2, hash = 3."""
    return sum([field_size(prefix_size(node.label) + field_size(len(node.hash))) for node in nodes])


def _wants_size(wants: tuple[Want, ...]) -> int:
    return sum([field_size(want.size) for want in wants])


class CheckTrie(Letter, msgspec.Struct, gc=False):
    """Compare these nodes of the sender's trie with your own (CHECKTRIE)."""

    field: ClassVar[int] = 12
    operation: ClassVar[str] = "check-trie"
    topic: Topic
    nodes: tuple[Summary, ...]
    cached_meta: RpcMeta | None = None

    @property
    def body_size(self) -> int:
        """Field 1: nodes."""
        return nodes_size(self.nodes)


class CheckAndPublish(Letter, msgspec.Struct, gc=False):
    """Compare these nodes, and send the publications that the sender lacks (CHECKANDPUBLISH)."""

    field: ClassVar[int] = 13
    operation: ClassVar[str] = "check-and-publish"
    topic: Topic
    nodes: tuple[Summary, ...]
    wants: tuple[Want, ...]
    cached_meta: RpcMeta | None = None

    @property
    def body_size(self) -> int:
        """Fields 1 and 2: nodes, wants."""
        return nodes_size(self.nodes) + _wants_size(self.wants)


def _meta_with_publications(
    letter: Letter, publications: tuple[Publication, ...], size: int
) -> RpcMeta:
    return RpcMeta(
        tuple([MessageMeta(each.id, letter.topic) for each in publications]),
        size=size,
        data_size=sum([field_size(each.size) for each in publications]),
        operations=(OperationMeta(letter.operation, letter.topic),),
    )


class PublishBundle(Letter, msgspec.Struct, gc=False):
    """Publications that the receiver asked for (PUBLISH), and what did not fit beside them."""

    field: ClassVar[int] = 14
    operation: ClassVar[str] = "publish"
    topic: Topic
    publications: tuple[Publication, ...]
    rest: tuple[Want, ...] = ()
    """What the receiver may ask for next in order to get the remainder."""
    cached_meta: RpcMeta | None = None

    @property
    def body_size(self) -> int:
        """Fields 1 and 2: publications, rest."""
        size = sum([field_size(publication.size) for publication in self.publications])
        return size + _wants_size(self.rest)

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this message."""
        meta = self.cached_meta
        if meta is None:
            meta = _meta_with_publications(self, self.publications, self.size)
            self.cached_meta = meta
        return meta

    @property
    def urgent(self) -> bool:
        """It is data."""
        return False


class PublishNew(Letter, msgspec.Struct, gc=False):
    """A new publication, on its way along all edges (PUBLISHNEW)."""

    field: ClassVar[int] = 15
    operation: ClassVar[str] = "publish-new"
    topic: Topic
    publication: Publication
    cached_meta: RpcMeta | None = None

    @property
    def body_size(self) -> int:
        """Field 1: publication."""
        return field_size(self.publication.size)

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this message."""
        meta = self.cached_meta
        if meta is None:
            meta = _meta_with_publications(self, (self.publication,), self.size)
            self.cached_meta = meta
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
