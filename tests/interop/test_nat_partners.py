"""AutoNAT v2 and DCUtR with go-, js- and rust-libp2p, in the lab of NATs."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from interop_peer import Program

from nat_lab import NoLabError, run_alone

pytestmark = pytest.mark.interop

STORIES = Path(__file__).with_name("nat_partners.py")


def tell(program: Program, story: str, *arguments: str) -> Any:
    """Run a story with a foreign peer in the lab; return what came of it."""
    if shutil.which("nsenter") is None:
        pytest.skip("no lab of NATs for other programs: nsenter is not installed")
    told = json.dumps([program.command, str(program.folder)])
    try:
        return json.loads(run_alone(STORIES, story, told, *arguments))
    except NoLabError as error:
        pytest.skip(f"no lab of NATs: {error}")


RUST = pytest.param("rust", marks=pytest.mark.rust)
LEADERS = pytest.mark.parametrize("leader", ["we", "they"])


@pytest.mark.parametrize(
    ("partner", "who_dials"),
    [
        ("golang", "they"),
        ("javascript", "they"),
        # rust offers it to those who have dialled it.
        pytest.param("rust", "we", marks=pytest.mark.rust),
    ],
)
def test_they_dial_us_back(request: pytest.FixtureRequest, partner: str, who_dials: str) -> None:
    """The number comes, and a node of ours knows that it can be reached; a call under the peer's
    own id, as js and rust make it, does not take the place of the connection that there is."""
    found = tell(request.getfixturevalue(partner), "dialled", who_dials)
    assert found["ours"] == "reachable at /ip4/5.1.0.1/tcp/4001: peers have dialled it"
    assert found["at"] == "/ip4/5.1.0.1/tcp/4001: 1 of 1 peers could dial it"
    assert found["connected"]


@pytest.mark.parametrize("partner", ["golang", "javascript", RUST])
def test_we_dial_them_back(request: pytest.FixtureRequest, partner: str) -> None:
    """They call their address reachable when enough of ours have proven it."""
    found = tell(request.getfixturevalue(partner), "dial_back")
    assert found["theirs"] == [f"/ip4/{found['at']}/tcp/4001"]


@LEADERS
@pytest.mark.parametrize(
    ("partner", "way"), [("golang", ()), pytest.param("rust", ("listens",), marks=pytest.mark.rust)]
)
def test_holes_are_punched_with_each_other(
    request: pytest.FixtureRequest, leader: str, partner: str, way: tuple[str, ...]
) -> None:
    """Through two home routers, whichever of the two leads."""
    found = tell(request.getfixturevalue(partner), "punch", leader, "port restricted", *way)
    assert found["outcome"] == "punched"
    assert "/ip4/5.6.0.1/tcp/4001" in [
        each["address"].partition("/p2p/")[0] for each in found["theirs"]
    ]


@pytest.mark.parametrize(
    ("leader", "way"), [("we", "tells nothing"), ("they", "tells nothing"), ("they", "announces")]
)
def test_js_gets_out_of_the_relay_where_it_need_not_keep_its_port(
    javascript: Program, leader: str, way: str
) -> None:
    """It dials from any port, as a client whoever leads, and tells its address only if it was told
    to: a router that asks nothing of the far end lets it in, and so do we."""
    found = tell(javascript, "punch", leader, "full cone", "listens", way)
    assert found["outcome"] == "punched"
    assert found["direct"]
    assert [each["limited"] for each in found["theirs"]] == [False]
