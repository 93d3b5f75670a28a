"""When a batch of a stream begins, and how far behind it says it is."""

from pathlib import Path
from typing import Any

import pytest
from spark_samples import fill

from rumormill.core.errors import ConfigError
from rumormill.log import EventLog
from rumormill.spark import behind_latest, source
from rumormill.spark.options import read_options
from rumormill.spark.source import StreamReader


class Clock:
    """A clock that stands still unless it is told."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


def following(home: Path, **given: str) -> StreamReader:
    options = {"home": str(home), "subscribe": "news", "startingOffsets": "earliest", **given}
    return StreamReader(read_options(options, streaming=True), ["offset"])


def test_a_batch_waits_for_enough_events_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first comes at once, as Kafka's does; later ones wait, at most `maxTriggerDelay`."""
    clock = Clock()
    monkeypatch.setattr(source, "time", clock)
    with EventLog(tmp_path) as log:
        fill(log, "news", 3)
        reader = following(tmp_path, minOffsetsPerTrigger="10", maxTriggerDelay="30s")
        limit = reader.getDefaultReadLimit()
        assert reader.latestOffset({"news": 0}, limit) == {"news": 3}
        fill(log, "news", 9, start=3)
        clock.now += 29
        assert reader.latestOffset({"news": 3}, limit) == {"news": 3}
        fill(log, "news", 1, start=12)
        assert reader.latestOffset({"news": 3}, limit) == {"news": 13}, "enough"
        fill(log, "news", 1, start=13)
        clock.now += 29
        assert reader.latestOffset({"news": 13}, limit) == {"news": 13}
        clock.now += 1
        assert reader.latestOffset({"news": 13}, limit) == {"news": 14}, "long enough"


def test_available_now_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is read to its end."""
    monkeypatch.setattr(source, "time", Clock())
    with EventLog(tmp_path) as log:
        fill(log, "news", 30)
    reader = following(tmp_path, minOffsetsPerTrigger="20", maxOffsetsPerTrigger="25")
    limit = reader.getDefaultReadLimit()
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"news": 0}, limit) == {"news": 25}
    assert reader.latestOffset({"news": 25}, limit) == {"news": 30}


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("90 s", 90), ("15m", 900), ("2H", 7200), ("1d", 86400)]
)
def test_delays_are_times_as_spark_writes_them(text: str, seconds: float) -> None:
    """The default is Kafka's."""
    place = {"home": "/h", "subscribe": "a"}
    assert read_options({**place, "maxTriggerDelay": text}, streaming=True).max_delay == seconds
    assert read_options(place, streaming=True).max_delay == 900
    with pytest.raises(ConfigError, match="not a time such as 30s"):
        read_options({**place, "maxTriggerDelay": "soon"}, streaming=True)
    few = {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}
    with pytest.raises(ConfigError, match="is above maxOffsetsPerTrigger"):
        read_options({**place, **few}, streaming=True)


def progress(end: str, latest: str) -> dict[str, Any]:
    return {"sources": [{"endOffset": end, "latestOffset": latest}]}


def test_how_far_behind_a_stream_is() -> None:
    """By topic and place, under Kafka's names."""
    found = behind_latest(
        progress('{"a": 5, "b": {"0": 1, "1": 9}}', '{"a": 8, "b": {"0": 2, "1": 9}, "c": 8}')
    )
    assert found == {
        "maxOffsetsBehindLatest": 8,
        "minOffsetsBehindLatest": 0,
        "avgOffsetsBehindLatest": 3.0,
    }
    assert behind_latest(progress("null", "null"))["avgOffsetsBehindLatest"] == 0
