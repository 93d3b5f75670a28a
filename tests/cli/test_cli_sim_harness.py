"""`rumormill sim --harness-logs`: a run as libp2p's gossipsub-interop analysis reads it."""

import json
from pathlib import Path

from processes import rumormill


def test_every_node_logs_its_id_and_every_copy_that_it_received(tmp_path: Path) -> None:
    """One log per node: a PeerID line, then a line per copy, duplicates included."""
    folder = tmp_path / "logs"
    done = rumormill("sim", "--peers", "12", "--degree", "4", "--messages", "3", "--json",
                     "--harness-logs", str(folder))  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    received = 0
    for number in range(12):
        log = folder / "hosts" / f"node{number}" / "rumormill.stdout"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert (lines[0]["msg"], lines[0]["node_id"]) == ("PeerID", number)
        received += sum(line["msg"] == "Received Message" for line in lines)
    assert received == figures["remote_deliveries"] + figures["duplicates"]


def test_a_folder_that_exists_is_not_written_over(tmp_path: Path) -> None:
    """One sentence that names the folder, and a failure."""
    (tmp_path / "hosts").mkdir()
    done = rumormill("sim", "--peers", "12", "--degree", "4", "--harness-logs", str(tmp_path))
    assert done.returncode != 0
    assert "exists; harness logs need a new folder" in done.stderr
