"""Which blocks may stand in the DHT, and what vouches for them.

A block is a topic descriptor or an event, stored as the original does: its dag-cbor bytes under its
CID. The hash proves that a block is what somebody named, and not who published it: anybody can name
a forged event in the link of one of his own. So an event's signatures travel beside it in the
record, and an event without is not believed. A descriptor is vouched for by its name: who has the
name has it from whoever he trusts with the topic.
"""

from rumormill.core.errors import DecodeError
from rumormill.core.identity import Verifier
from rumormill.overlay.kademlia.validators import ContentValidator
from rumormill.protocols.pulsarcast.codec import add_signatures
from rumormill.protocols.pulsarcast.descriptors import read_event
from rumormill.protocols.pulsarcast.signing import fault_of


class BlockValidator(ContentValidator):
    """Wants the signatures of events, unless the application does without."""

    def __init__(self, verifier: Verifier, *, required: bool) -> None:
        self._verifier = verifier
        self._required = required

    def vouched(self, key: bytes, value: bytes, proof: bytes) -> bool:
        """Whether a proof has the signatures of the event that the value is."""
        try:
            event = read_event(value)
        except DecodeError:
            return True  # a descriptor, or nothing that anybody will take for an event
        signed = add_signatures(event, proof)
        return fault_of(signed, self._verifier, required=self._required) is None
