"""`bench/peers.py`: who is left out is named with the reason; what is printed, pages can have."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench" / "peers.py"


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    """The bench as a module."""
    spec = importlib.util.spec_from_file_location("bench_peers", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_who_cannot_be_had_is_left_out_with_the_reason(
    peers: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where there is no cargo, and nothing that the interop tests have installed."""
    for name in ("PATH", "HOME", peers.CACHE_VARIABLE):
        monkeypatch.setenv(name, str(tmp_path))
    assert list(peers.foreign_systems(["rust-libp2p", "js-libp2p"])) == []
    assert capsys.readouterr().err.splitlines() == [
        "rust-libp2p is left out: cargo is not installed",
        f"js-libp2p is left out: `make test-interop` has not installed it in {tmp_path}",
    ]


def test_every_system_that_drops_has_a_pace_to_begin_with(peers: ModuleType) -> None:
    """In each row that it takes part in."""
    assert [*peers.FOREIGN] == [*peers.FOREIGN_PACE]
    assert {tuple(paces) for paces in peers.FOREIGN_PACE.values()} == {peers.SETTINGS[:3]}


class Watched:
    """An arena in which nothing is lost below a rate."""

    def __init__(self, most: float) -> None:
        self.most, self.runs = most, 0

    def run(self, count: int, rate: float) -> dict[str, float]:
        self.runs += 1
        return {"rate": rate, "lost": float(rate > self.most)}


@pytest.mark.parametrize("most", [300.0, 2_000.0, 11_000.0])
def test_the_highest_rate_without_loss_is_found_within_a_seventh(
    peers: ModuleType, most: float
) -> None:
    """In few runs, from below and from above."""
    stage = Watched(most)
    found = peers.loss_free(stage, 2_000.0)
    assert most / 1.15 <= found["rate"] <= most
    assert stage.runs <= 12
    with pytest.raises(RuntimeError, match="loses messages even at"):
        peers.loss_free(Watched(0.0), 2_000.0)


def test_tables_are_printed_as_pages_have_them(peers: ModuleType) -> None:
    """Medians; a dash where nothing was measured, no column that nobody has a figure for."""
    ours = peers.System("rumormill", list)
    theirs = peers.System("go-libp2p", list)
    for cpu in (300.0, 250.4, 100.0):
        ours.note("1 -> 1", cpu=cpu, best=4000.0, lost=0.0)
    theirs.note("1 -> 1", cpu=1250.0, slow=800.0)
    theirs.note("mesh", lost=3.0)
    assert list(peers.tables([ours, theirs])) == [
        "| µs of CPU per delivery | one to one | at 100 a second |",
        "|---|---|---|",
        "| rumormill | 250 | – |",
        "| go-libp2p | 1,250 | 800 |",
        "",
        "|  | messages a second, one to one |",
        "|---|---|",
        "| rumormill | 4,000 |",
        "",
        "go-libp2p, mesh: 3 lost",
    ]
    assert list(peers.comparisons([ours, theirs])) == [
        "1 -> 1   rumormill = 0.200 x go-libp2p   (at most 1.000: holds)"
    ]
