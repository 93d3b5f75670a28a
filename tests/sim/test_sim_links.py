"""Links: latency, jitter, loss, reordering, bandwidth, queues, and what is traced of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_rig import LATENCY, Net, Note, PairLatency

from rumormill.core.inputs import SendDropped
from rumormill.core.trace import DropRPC, RecvRPC, SendRPC
from rumormill.sim.link import CLOSED, LOST, PEER_DOWN, QUEUE_FULL

KILOBYTE = 1000


def pair(**options: object) -> Net:
    """Two connected peers, 0 having dialled 1; the time is a tenth of a second."""
    net = Net(2, **options)  # type: ignore[arg-type]
    net.connect(0, 1)
    assert net.engine.now == pytest.approx(0.1)
    return net


# Latency and order.


def test_a_message_takes_the_latency() -> None:
    """Sent now, there after the latency; both ends are traced."""
    net = pair()
    net.send(0, 1, "hello")
    net.run(0.049)
    assert net.texts(1) == []
    net.run(0.002)
    assert net.arrivals(1) == [(0.15, "hello")]
    assert [sent.send_to for sent in net.trace(SendRPC, 0)] == [net.host(1).id]
    assert [got.received_from for got in net.trace(RecvRPC, 1)] == [net.host(0).id]


def test_each_direction_has_its_own_latency() -> None:
    """A model may be uneven."""
    net = pair(latency=PairLatency({(0, 1): 0.01, (1, 0): 0.09}))
    net.send(0, 1, "there")
    net.send(1, 0, "back")
    net.run(1.0)
    assert net.arrivals(1) == [(0.11, "there")]
    assert net.arrivals(0) == [(0.19, "back")]


def test_processing_takes_its_time_after_the_latency() -> None:
    """The delay between arrival and handling is added once per message."""
    net = pair(processing_delay=0.005)
    net.send(0, 1, "one", "two")
    net.run(1.0)
    assert net.arrivals(1) == [(0.155, "one"), (0.155, "two")]


@given(st.integers(0, 2**32), st.lists(st.floats(0.0, 0.03), min_size=2, max_size=30))
def test_jitter_delays_and_never_reorders(seed: int, gaps: list[float]) -> None:
    """Each message takes up to `jitter` more, and a stream stays a stream."""
    net = pair(jitter=0.1, seed=seed)
    sent = []
    for number, gap in enumerate(gaps):
        sent.append(net.engine.now)
        net.send(0, 1, str(number))
        net.run(gap)
    net.run(1.0)
    assert net.texts(1) == [str(number) for number in range(len(gaps))]
    for (now, _), at in zip(net.arrivals(1), sent, strict=True):
        assert at + LATENCY - 1e-9 <= now <= at + LATENCY + 0.1 + 1e-9


def test_jitter_is_uniform() -> None:
    """Messages far apart are delayed by half the jitter on average, by none and by all of it."""
    net = pair(jitter=0.1)
    delays = []
    for number in range(400):
        at = net.engine.now
        net.send(0, 1, str(number))
        net.run(1.0)
        delays.append(net.arrivals(1)[-1][0] - at - LATENCY)
    assert sum(delays) / len(delays) == pytest.approx(0.05, abs=0.01)
    assert min(delays) < 0.005
    assert max(delays) > 0.095


def test_reordering_lets_messages_overtake() -> None:
    """With jitter and `reorder`, later messages come before earlier ones; none is lost."""
    net = pair(jitter=0.1, reorder=0.5)
    texts = [f"{number:03}" for number in range(200)]
    for text in texts:
        net.send(0, 1, text)
        net.run(0.001)
    net.run(1.0)
    assert net.texts(1) != texts
    assert sorted(net.texts(1)) == texts


# Loss.


def test_losses_are_counted_and_traced() -> None:
    """About the given share is lost; each loss is a DROP_RPC at the sender, nobody is told."""
    net = pair(loss=0.25)
    net.send(0, 1, *(str(number) for number in range(1000)))
    net.run(1.0)
    lost = net.trace(DropRPC, 0)
    assert {drop.reason for drop in lost} == {LOST}
    assert len(lost) + len(net.texts(1)) == 1000
    assert 200 < len(lost) < 300
    missing = {drop.meta.messages[0].message_id.decode() for drop in lost}
    assert missing.isdisjoint(net.texts(1))
    assert net.inputs(0, SendDropped) == []


def test_everything_can_be_lost() -> None:
    """A loss of one is a cable cut that nobody notices."""
    net = pair(loss=1.0)
    net.send(0, 1, "a", "b")
    net.run(1.0)
    assert (net.texts(1), len(net.trace(DropRPC, 0))) == ([], 2)


# Bandwidth.


def test_a_message_takes_time_to_leave_and_to_be_received() -> None:
    """100 bytes at 1000 bytes per second are 100 ms up and, at 2000, 50 ms down."""
    net = pair(upload=1000.0, download=2000.0)
    net.send(0, 1, "slow")
    net.run(1.0)
    assert net.arrivals(1) == [(0.1 + 0.1 + LATENCY + 0.05, "slow")]


def test_all_streams_of_a_peer_share_its_upload() -> None:
    """Three peers are sent to one after another, in the order of sending."""
    net = Net(4, upload=1000.0)
    for other in (1, 2, 3):
        net.connect(0, other)
    start = net.engine.now
    for other in (1, 2, 3):
        net.send(0, other, "x")
    net.run(1.0)
    times = [net.arrivals(other)[0][0] for other in (1, 2, 3)]
    assert times == pytest.approx([start + 0.1 * n + LATENCY for n in (1, 2, 3)])


def test_all_streams_of_a_peer_share_its_download() -> None:
    """Three messages that arrive together are received one after another."""
    net = Net(4, download=1000.0)
    for other in (1, 2, 3):
        net.connect(other, 0)
    start = net.engine.now
    for other in (1, 2, 3):
        net.send(other, 0, f"from {other}")
    net.run(1.0)
    times = [now for now, _ in net.arrivals(0)]
    assert times == pytest.approx([start + LATENCY + 0.1 * n for n in (1, 2, 3)])
    assert net.texts(0) == ["from 1", "from 2", "from 3"]


def test_a_message_under_way_does_not_block_the_download() -> None:
    """What a distant peer sent takes its place when it is there, not when it was sent."""
    net = Net(3, latency=PairLatency({(1, 0): 1.0, (0, 1): 1.0, (2, 0): 0.001}), download=1e6)
    net.network.dial(net.host(1), net.host(0).id)
    net.run(2.0)
    net.connect(2, 0)
    start = net.engine.now
    net.send(1, 0, "from afar")
    net.send(2, 0, "from next door")
    net.run(2.0)
    near, far = net.arrivals(0)
    assert (near[1], far[1]) == ("from next door", "from afar")
    assert near[0] == pytest.approx(start + 0.001 + 0.0001)
    assert far[0] == pytest.approx(start + 1.0 + 0.0001)


def test_a_lost_message_takes_upload_but_no_download() -> None:
    """Loss happens between the two."""
    net = pair(upload=1000.0, download=1000.0, loss=1.0)
    net.send(0, 1, "gone")
    assert net.host(0).upload_free == pytest.approx(0.2)
    net.run(1.0)
    assert net.host(1).download_free == 0.0


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=20))
def test_bandwidth_is_never_exceeded(sizes: list[int]) -> None:
    """The last byte comes exactly when the narrower of upload and download has carried all."""
    net = pair(upload=2000.0, download=1000.0)
    net.send(0, 1, *(Note(str(number), size) for number, size in enumerate(sizes)))
    net.run(1000.0)
    assert net.texts(1) == [str(number) for number in range(len(sizes))]
    first = 0.1 + sizes[0] / 2000.0 + LATENCY
    assert net.arrivals(1)[-1][0] >= first + sum(sizes) / 1000.0 - 1e-6


# Queues.


def test_what_does_not_fit_the_queue_is_dropped_traced_and_told() -> None:
    """Three messages may wait for the upload; the others are DROP_RPC and SendDropped."""
    net = pair(upload=1000.0, queue_limit=3)
    net.send(0, 1, "a", "b", "c", "d", "e")
    told = net.inputs(0, SendDropped)
    assert [(drop.message.text, drop.reason) for drop in told] == [
        ("d", QUEUE_FULL),
        ("e", QUEUE_FULL),
    ]
    assert {drop.peer for drop in told} == {net.host(1).id}
    assert [drop.reason for drop in net.trace(DropRPC, 0)] == [QUEUE_FULL] * 2
    assert len(net.trace(SendRPC, 0)) == 3
    net.run(1.0)
    assert net.texts(1) == ["a", "b", "c"]


def test_a_queue_empties_as_messages_leave() -> None:
    """After 100 ms one message has left and one more fits."""
    net = pair(upload=1000.0, queue_limit=2)
    net.send(0, 1, "a", "b", "c")
    net.run(0.1001)
    net.send(0, 1, "d", "e")
    net.run(1.0)
    assert net.texts(1) == ["a", "b", "d"]


def test_each_link_has_its_own_queue() -> None:
    """A full queue to one peer does not drop what goes to another."""
    net = Net(3, upload=1000.0, queue_limit=1)
    net.connect(0, 1)
    net.connect(0, 2)
    net.send(0, 1, "a", "b")
    net.send(0, 2, "c")
    net.run(1.0)
    assert (net.texts(1), net.texts(2)) == (["a"], ["c"])


# Links that end.


def test_messages_under_way_are_lost_when_the_link_closes() -> None:
    """What has not arrived when a connection ends is dropped and traced."""
    net = pair()
    net.send(0, 1, "late")
    net.network.disconnect(net.host(1), net.host(0).id)
    net.run(1.0)
    assert net.texts(1) == []
    assert [drop.reason for drop in net.trace(DropRPC, 0)] == [CLOSED]


def test_messages_under_way_to_a_peer_that_crashes_are_lost() -> None:
    """The trace says that the peer was down."""
    net = pair(download=1000.0)
    net.send(0, 1, "on the way")
    net.network.crash(net.host(1))
    net.run(1.0)
    assert [drop.reason for drop in net.trace(DropRPC, 0)] == [PEER_DOWN]


def test_sending_without_a_link_is_traced() -> None:
    """A machine that does not know yet that a peer is gone sends into the void, visibly."""
    net = pair()
    net.network.crash(net.host(1))
    net.send(0, 1, "hello?")
    assert [drop.reason for drop in net.trace(DropRPC, 0)] == [CLOSED]
    assert net.trace(SendRPC, 0) == []
