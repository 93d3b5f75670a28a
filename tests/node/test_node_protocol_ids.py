"""A node offers all versions of its protocol, or those that it was told to offer."""

import pytest

from live_nodes import run
from rumormill.core.errors import LocalError
from rumormill.node.node import Node
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_0, GOSSIPSUB_1_1, GOSSIPSUB_1_3

TOPIC = "versions"


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        (None, GOSSIPSUB_1_3),
        ([GOSSIPSUB_1_1, GOSSIPSUB_1_0], GOSSIPSUB_1_1),
        ([GOSSIPSUB_1_0], GOSSIPSUB_1_0),
    ],
)
def test_peers_agree_on_the_best_version_that_both_offer(
    offered: list[str] | None, agreed: str
) -> None:
    """Fewer versions on one side bind both, in both streams."""

    async def scenario() -> tuple[str, str]:
        async with Node(None, protocol_ids=offered) as one, Node(None) as other:
            await one.subscribe(TOPIC)
            await other.subscribe(TOPIC)
            await other.connect(one.tickets[0])
            await one.wait_until_ready(TOPIC)
            await other.wait_until_ready(TOPIC)
            return one.peers[0].protocol, other.peers[0].protocol

    assert run(scenario) == (agreed, agreed)


@pytest.mark.parametrize("offered", [[], ["/meshsub/9.9.9"], [GOSSIPSUB_1_3, "/chat/1.0.0"]])
def test_versions_that_the_protocol_does_not_have_are_refused(offered: list[str]) -> None:
    """The error names what was wrong and what there is, before anything is opened."""

    async def scenario() -> None:
        async with Node(None, protocol_ids=offered):
            pass

    with pytest.raises(LocalError, match=r"protocol_ids: .* gossipsub speaks /meshsub/1\.3\.0"):
        run(scenario)
