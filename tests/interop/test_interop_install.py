"""Where a foreign implementation cannot be installed, its tests say so; in CI they fail."""

from collections.abc import Callable
from pathlib import Path

import interop_install
import pytest
from interop_peer import Program


@pytest.fixture
def _without_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


NEEDS_TOOL = pytest.mark.parametrize(
    ("install", "tool"),
    [
        (interop_install.javascript, "npm"),
        (interop_install.pulsarcast, "npm"),
        (interop_install.golang, "go"),
        (interop_install.rust, "cargo"),
    ],
)


@NEEDS_TOOL
@pytest.mark.usefixtures("_without_tools")
def test_without_a_tool_the_tests_are_skipped_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, install: Callable[[], Program], tool: str
) -> None:
    """A developer without npm, go or cargo sees what is missing."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"{tool} is not installed"):
        interop_install.installed(install)


@NEEDS_TOOL
@pytest.mark.usefixtures("_without_tools")
def test_in_ci_nothing_is_skipped(
    monkeypatch: pytest.MonkeyPatch, install: Callable[[], Program], tool: str
) -> None:
    """A CI machine without them fails instead of proving nothing."""
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=f"{tool} is not installed"):
        interop_install.installed(install)


def test_a_failed_installation_is_not_taken_for_a_finished_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An environment counts only once all of it is there; the next run begins again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pins = tmp_path / "pins"
    pins.write_text("one==1")
    attempts: list[Path] = []

    def build(folder: Path) -> None:
        attempts.append(folder)
        assert not list(folder.iterdir())
        (folder / "half").touch()
        if len(attempts) == 1:
            raise interop_install.NotInstallableError("the network is gone")

    with pytest.raises(interop_install.NotInstallableError):
        interop_install._environment("kind", [pins], build)
    folder = interop_install._environment("kind", [pins], build)
    assert interop_install._environment("kind", [pins], build) == folder
    assert attempts == [folder, folder]
    pins.write_text("one==2")
    assert interop_install._environment("kind", [pins], build) != folder
