"""Proofs beside values: kept, preferred, and looked for."""

import pytest
from kad_rig import Newest, Rig

from rumormill.core import trace
from rumormill.core.effects import (
    Ask,
)
from rumormill.core.errors import LimitError
from rumormill.core.inputs import (
    Answered,
)
from rumormill.overlay.kademlia.messages import KadMessage, KadType, Record


class Sworn(Newest):
    """A validator whose values want an oath beside them."""

    def vouched(self, key: bytes, value: bytes, proof: bytes) -> bool:
        return proof == b"oath"


@pytest.mark.parametrize(
    ("proofs", "kept"),
    [
        ([b"oath", b""], b"oath"),
        ([b"oath", b"lie"], b"oath"),
        ([b"lie", b"oath"], b"oath"),
        ([b"", b"oath"], b"oath"),
        ([b"lie", b""], b"lie"),
    ],
)
def test_a_good_proof_is_not_replaced(proofs: list[bytes], kept: bytes) -> None:
    """Nobody makes a value worthless by storing it again without its proof, or with another."""
    rig = Rig(validators={"sworn": Sworn()})
    key = b"/sworn/x"
    for proof in proofs:
        put = KadMessage(KadType.PUT_VALUE, key, Record(key, b"v", proof=proof))
        assert rig.ask(b"a", put) is not None
    answer = rig.ask(b"b", KadMessage(KadType.GET_VALUE, key))
    assert answer is not None
    assert answer.record is not None
    assert (answer.record.value, answer.record.proof) == (b"v", kept)


def test_a_search_goes_on_until_a_value_has_its_proof() -> None:
    """Holders that know no proofs pass values on without; that is no lie, and no answer."""
    rig = Rig(corrections=0, validators={"sworn": Sworn()})
    rig.befriend(b"a", b"b", b"c")
    key = b"/sworn/x"
    rig.do("get_value", key)
    for ask, proof in zip(rig.all(Ask), (b"", b"lie", b"oath"), strict=True):
        assert rig.results == []
        found = KadMessage(KadType.GET_VALUE, key, Record(key, b"v", proof=proof))
        rig.give(Answered(ask.peer, ask.number, found))
    (result,) = rig.results
    assert (result.value, result.proof, result.reason) == (b"v", b"oath", "")
    assert rig.all(trace.Penalise) == []


def test_a_value_whose_proof_nobody_has_is_found_without() -> None:
    """What it is worth then is for the application to say."""
    rig = Rig(corrections=0, validators={"sworn": Sworn()})
    rig.befriend(b"a")
    key = b"/sworn/x"
    rig.do("get_value", key)
    rig.answer(rig.all(Ask), key=key, record=Record(key, b"v", proof=b"lie"))
    (result,) = rig.results
    assert (result.value, result.proof, result.reason) == (b"v", b"", "")


def test_what_we_publish_is_stored_and_repeated_with_its_proof() -> None:
    """The holders get it, and whoever asks us."""
    rig = Rig(validators={"sworn": Sworn()})
    rig.befriend(b"a")
    key = b"/sworn/x"
    rig.do("put_value", key, b"v", proof=b"oath")
    (put,) = rig.answer(rig.all(Ask))
    assert put.message.record.proof == b"oath"  # type: ignore[attr-defined]
    answer = rig.ask(b"b", KadMessage(KadType.GET_VALUE, key))
    assert answer is not None
    assert answer.record is not None
    assert answer.record.proof == b"oath"
    with pytest.raises(LimitError):
        rig.do("put_value", key, b"v", proof=bytes(rig.kad.config.limits.proof_bytes + 1))
