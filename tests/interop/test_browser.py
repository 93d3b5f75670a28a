"""The page of `examples/browser` in a headless Chromium: a peer over WebSocket, and through it."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from interop_asserts import TOPIC, mesh_of, refused
from interop_peer import PATIENCE, ForeignPeer, Program

from chromium import Page, page
from live_nodes import take_events
from rumormill.node.node import Node
from rumormill.wire.keys import PeerId

pytestmark = pytest.mark.interop

WS = "/ip4/127.0.0.1/tcp/0/ws"
HOSTILE = '<img src=x onerror="document.title=1"><b>bold</b> & Grüße'


@pytest.fixture
def opened(browser: str, page_address: str, tmp_path: Path) -> AbstractAsyncContextManager[Page]:
    """The page, with the topic filled in, when its script runs."""

    @asynccontextmanager
    async def ready() -> AsyncIterator[Page]:
        address = f"{page_address}#topic={quote(TOPIC)}"
        async with page(browser, tmp_path / "profile", address) as shown:
            await shown.until("#state", "not connected")
            yield shown

    return ready()


async def test_the_page_publishes_and_receives(
    opened: AbstractAsyncContextManager[Page],
) -> None:
    """Both ways with a rumormill node; what is said is text, whatever it looks like."""
    async with Node(None, listen=WS) as ours, opened as shown:
        events = await ours.subscribe(TOPIC)
        await shown.fill("#connect-form", "#ticket", ours.tickets[0])
        await shown.until("#state", "1 peer subscribes")
        await shown.until("#peers", "rumormill/")
        await ours.wait_until_ready(TOPIC, timeout=PATIENCE)
        receipt = await ours.publish(TOPIC, HOSTILE.encode())
        assert receipt.peers == 1
        await shown.until("#messages", HOSTILE)
        assert (
            await shown.evaluate("document.querySelectorAll('#messages :is(img, b)').length") == 0
        )
        await ours.publish(TOPIC, b"\xff\x00no text")
        await shown.until("#messages", b"\xff\x00no text".hex())
        await shown.fill("#publish-form", "#text", "from the page")
        *_, last = await take_events(events, 3)
        assert (last.data, str(PeerId(last.author))) == (
            b"from the page",
            await shown.text("#self"),
        )
        assert len(await shown.texts("#messages li")) == 3
        assert not refused(ours)


@pytest.mark.parametrize("partner", ["javascript", "golang"])
async def test_the_page_talks_through_a_node(
    request: pytest.FixtureRequest, partner: str, opened: AbstractAsyncContextManager[Page]
) -> None:
    """Page, rumormill, js or go in a row: each end reads what the other wrote and signed."""
    program: Program = request.getfixturevalue(partner)
    async with ForeignPeer(program) as other, Node(None, listen=WS) as ours, opened as shown:
        await ours.subscribe(TOPIC)
        await other.ask("subscribe", topic=TOPIC)
        await ours.connect(other.ticket)
        await shown.fill("#connect-form", "#ticket", ours.tickets[0])
        await mesh_of(ours, 2)
        await other.ask("waitForMesh", topic=TOPIC, count=1)
        await shown.until("#peers", "in the mesh")
        await shown.fill("#publish-form", "#text", "from the page")
        assert await other.received(TOPIC, 1) == [b"from the page"]
        assert await other.authors(TOPIC) == [await shown.text("#self")]
        await other.publish(TOPIC, [b"from far away"])
        await shown.until("#messages", "from far away")
        assert await shown.text("#peer-count") == "1"
        assert other.id in await shown.evaluate(
            "document.querySelector('#messages li:last-child .author').title"
        )


async def test_the_page_says_what_is_wrong_and_comes_back(
    opened: AbstractAsyncContextManager[Page], tmp_path: Path
) -> None:
    """A ticket that is none is refused aloud; a node that ended is dialled again when back."""
    async with opened as shown:
        await shown.fill("#connect-form", "#ticket", "no ticket")
        await shown.until("#problem", "Not connected: ")
        home = tmp_path / "home"
        async with Node(home, listen=WS) as ours:
            await ours.subscribe(TOPIC)
            ticket = ours.tickets[0]
            await shown.fill("#connect-form", "#ticket", ticket)
            await shown.until("#state", "1 peer subscribes")
            assert await shown.text("#problem") == ""
        await shown.until("#state", "not connected")
        await shown.fill("#publish-form", "#text", "alone")
        await shown.until("#problem", "Nobody was there")
        async with Node(home, listen=ticket.split("/p2p/")[0]) as again:
            await again.subscribe(TOPIC)
            await shown.until("#state", "1 peer subscribes")
