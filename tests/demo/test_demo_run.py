"""One run, from the inside: what it does when a node dies that nobody killed."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from live_nodes import run
from rumormill.demo.run import Run, demonstrate
from rumormill.demo.script import chosen, write_script


class Murderer:
    """A watcher that kills a node behind the back of the run it watches."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def begin(self, label: str, homes: Mapping[str, Path]) -> None:
        """Nobody looks at them."""

    def mark(self, kind: str, node: str, text: str) -> None:
        """Nobody draws it."""

    def advance(self, label: str, part: float) -> None:
        assert self.run is not None
        spared = [kill.node for kill in self.run._script.kills]
        victim = next(n for n in range(self.run._script.nodes) if n not in spared)
        process = self.run.network.daemons[victim]._process
        if process is not None and process.returncode is None:
            process.kill()


def test_a_node_that_dies_by_itself_fails_the_run_and_all_others_are_ended(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run says why in one sentence, and no process is left."""
    folder: Path = tmp_path_factory.mktemp("p")
    murderer = Murderer()
    begun: list[asyncio.subprocess.Process] = []
    spawn = asyncio.create_subprocess_exec

    async def counted(*words: object, **options: object) -> asyncio.subprocess.Process:
        begun.append(await spawn(*words, **options))  # type: ignore[arg-type]
        return begun[-1]

    def watched(self: Run, *arguments: object) -> None:
        begin(self, *arguments)  # type: ignore[arg-type]
        murderer.run = self

    begin = Run.__init__
    monkeypatch.setattr(Run, "__init__", watched)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", counted)
    script = write_script(3, 60, 1)

    async def story() -> None:
        (run,) = await demonstrate(chosen(["floodsub"]), script, folder, murderer)
        assert run.result is None
        assert run.error.endswith(": the daemon has stopped")
        assert len(begun) >= 3
        assert all(process.returncode is not None for process in begun)

    run(story)
    assert murderer.said[-1].startswith("floodsub failed: n")
    assert murderer.said[-1].endswith(f"its logs are in {folder / 'floodsub'}")
