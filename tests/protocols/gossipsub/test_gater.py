"""The gater: under overload, whose messages get in."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import ConfigError
from rumormill.protocols.gossipsub.config import GaterParams
from rumormill.protocols.gossipsub.gater import Gater
from rumormill.protocols.pubsub import reasons

A, B = b"A", b"B"
HOST = "1.2.3.4"


def gater(**values):
    defaults = {"threshold": 0.1, "global_decay": 0.9, "source_decay": 0.999}
    params = GaterParams(**(defaults | values))
    params.validate()
    return Gater(params, random.Random(1))


def overload(gate, peer=A, now=0.0):
    gate.validate_message()
    gate.reject_message(peer, reasons.VALIDATION_THROTTLED, now)


def test_peer_gater():
    """Everybody is let in until validation throttles; then by merit; then everybody again."""
    gate = gater(retain_stats=3600.0)
    gate.add_peer(A, HOST, 0.0)
    assert gate.accepts(A, 0.0)
    gate.validate_message()
    assert gate.accepts(A, 0.0)
    gate.reject_message(A, reasons.VALIDATION_THROTTLED, 0.0)
    assert gate.accepts(A, 0.0)

    for _ in range(100):
        gate.reject_message(A, reasons.VALIDATION_IGNORED, 0.0)
        gate.reject_message(A, reasons.VALIDATION_FAILED, 0.0)
    assert not all(gate.accepts(A, 0.0) for _ in range(1000))
    for _ in range(100):
        gate.deliver_message(A, "t")
    assert any(gate.accepts(A, 0.0) for _ in range(1000))

    for tick in range(1, 101):
        gate.refresh(float(tick))
    assert gate.accepts(A, 59.0)

    gate.remove_peer(A, 100.0)
    assert A not in gate._addresses
    assert HOST in gate._accounts
    gate.refresh(3701.0)
    assert HOST not in gate._accounts


def test_peer_gater_removes_inbound_only_peer_stats():
    """Events of a peer that is not connected, or no longer, open no account."""
    gate = gater()
    gate.reject_message(A, reasons.VALIDATION_FAILED, 0.0)
    gate.deliver_message(A, "t")
    gate.duplicate_message(A)
    gate.remove_peer(A, 0.0)
    assert gate._accounts == {}
    assert gate._addresses == {}
    gate.add_peer(A, HOST, 0.0)
    gate.reject_message(A, reasons.VALIDATION_FAILED, 0.0)
    for _ in range(2):
        gate.remove_peer(A, 0.0)
        assert gate._addresses == {}
        assert gate._accounts[HOST].connected == 0
        assert gate._accounts[HOST].expires > 0


def test_peer_gater_inbound_close_does_not_bypass_outbound_cleanup():
    """An account stays open while any peer at its address is connected, each counted once."""
    gate = gater(retain_stats=1.0)
    for _ in range(2):
        gate.add_peer(A, HOST, 0.0)
    gate.add_peer(B, HOST, 0.0)
    gate.reject_message(A, reasons.VALIDATION_FAILED, 0.0)
    gate.remove_peer(B, 0.0)
    gate.remove_peer(B, 0.0)
    gate.refresh(10.0)
    assert gate._accounts[HOST].connected == 1
    assert A in gate._addresses
    gate.remove_peer(A, 10.0)
    assert gate._accounts[HOST].connected == 0
    gate.refresh(20.0)
    assert gate._accounts == {}


def test_peers_at_one_address_share_their_account():
    """A new name at an old address inherits its record, so new names are no way out."""
    gate = gater()
    gate.add_peer(A, HOST, 0.0)
    overload(gate)
    for _ in range(1000):
        gate.reject_message(A, reasons.VALIDATION_FAILED, 0.0)
    gate.remove_peer(A, 0.0)
    gate.add_peer(B, HOST, 1.0)
    accepted = sum(gate.accepts(B, 1.0) for _ in range(100))
    assert accepted < 10


def test_a_good_peer_passes_while_a_bad_one_is_held_back():
    """The chance is the share of useful messages."""
    gate = gater()
    gate.add_peer(A, HOST, 0.0)
    gate.add_peer(B, "5.6.7.8", 0.0)
    overload(gate)
    for _ in range(100):
        gate.deliver_message(A, "t")
        gate.duplicate_message(B)
        gate.reject_message(B, reasons.VALIDATION_FAILED, 0.0)
    assert all(gate.accepts(A, 0.0) for _ in range(200))
    assert sum(gate.accepts(B, 0.0) for _ in range(200)) < 20


def test_quiet_puts_the_gater_to_sleep():
    """A minute without overload and everybody is let in again."""
    gate = gater()
    gate.add_peer(A, HOST, 0.0)
    overload(gate)
    for _ in range(10_000):
        gate.reject_message(A, reasons.VALIDATION_FAILED, 0.0)
    assert not any(gate.accepts(A, 60.0) for _ in range(50))
    assert all(gate.accepts(A, 60.1) for _ in range(50))


def test_topics_can_weigh_more():
    """A delivery in a priority topic makes up for more."""
    gate = gater(topic_delivery_weights={"blocks": 50.0})
    gate.add_peer(A, HOST, 0.0)
    gate.deliver_message(A, "blocks")
    gate.deliver_message(A, "other")
    assert gate._accounts[HOST].deliver == 51


@pytest.mark.parametrize(
    "values",
    [
        {"threshold": 0},
        {"global_decay": 1},
        {"source_decay": 0},
        {"decay_interval": 0.5},
        {"decay_to_zero": 1},
        {"quiet": 0.5},
        {"duplicate_weight": 0},
        {"ignore_weight": 0.5},
        {"reject_weight": 0.5},
        {"addresses_max": 0},
        {"threshold": float("nan")},
    ],
)
def test_impossible_parameters_are_refused(values):
    """Each rule of go's validation."""
    GaterParams().validate()
    with pytest.raises(ConfigError):
        GaterParams(**values).validate()


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 9), st.floats(0, 1e5)),
        max_size=60,
    )
)
def test_accounts_never_exceed_their_bound(steps):
    """Addresses come and go; the table stays within its limit and its counts true."""
    gate = gater(addresses_max=3, retain_stats=100.0)
    now = 0.0
    for join, peer, host, pause in steps:
        now += pause
        if join:
            gate.add_peer(b"%d" % peer, str(host), now)
        else:
            gate.remove_peer(b"%d" % peer, now)
        gate.refresh(now)
        assert len(gate._accounts) <= 3
        assert sum(account.connected for account in gate._accounts.values()) == len(gate._addresses)
