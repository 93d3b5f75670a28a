"""Waiting for subscribers, where a topic must be entered before anything can be published in it."""

import pytest

from live_nodes import run
from rumormill.core.errors import LocalError
from rumormill.node.node import Node
from rumormill.protocols.pulsarcast.format import cid as cids


def test_a_subscriber_that_is_still_on_its_way_in_just_waits() -> None:
    """It is not entered a second time in order to publish; when the time is over, that is said."""

    async def story() -> None:
        async with Node(None, protocol="pulsarcast") as node:
            topic = cids.text(cids.of(b"a descriptor that nobody has"))
            await node.subscribe(topic)
            with pytest.raises(LocalError, match="has 0 of 1 wanted subscribers"):
                await node.wait_until_ready(topic, timeout=0.05)

    run(story)
