"""The logs of libp2p's gossipsub interoperability harness, made from a trace.

The harness (libp2p/test-plans, gossipsub-interop) judges a run by what each node printed: one file
per node, one JSON object per line, every line with an RFC 3339 `time` and a `msg`. A node first
says who it is ("PeerID"), and then names every copy of a message that reaches it ("Received
Message"), duplicates included. A node's own message is no copy: the analysis takes the publisher
out of the count.

The rule: this observer writes such a folder, `hosts/nodeN/rumormill.stdout`, which the harness's
analysis and checks read as if a real run had left it there.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from rumormill.core.ids import MessageId, PeerId
from rumormill.core.trace import DeliverMessage, DuplicateMessage
from rumormill.trace.entries import Batch, TraceError, writing

SHADOW_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""Where the clock of Shadow, the harness's simulator, starts; second 0 of a virtual clock."""


def harness_message_id(message_id: MessageId) -> str:
    """Write a message id as the harness does: eight bytes as a decimal number, others in hex."""
    if len(message_id) == 8:
        return str(int.from_bytes(message_id, "big"))
    return message_id.hex()


class HarnessLogs:
    """An observer that writes one log per node into a folder.

    Nodes are numbered in the order in which they are first seen.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._hosts = Path(folder) / "hosts"
        self._logs: dict[PeerId, Path] = {}
        self._encode = msgspec.json.Encoder().encode
        with writing(self._hosts):
            try:
                self._hosts.mkdir(parents=True)
            except FileExistsError as error:
                raise TraceError(f"{self._hosts} exists; harness logs need a new folder") from error

    def observe(self, batch: Batch) -> None:
        """Write the lines of a batch, one file after another."""
        lines: dict[PeerId, list[bytes]] = {}
        for now, peer, payload in batch:
            if peer not in self._logs:
                lines[peer] = [self._introduce(now, peer)]
            if not isinstance(payload, DeliverMessage | DuplicateMessage):
                continue
            if payload.received_from == peer and isinstance(payload, DeliverMessage):
                continue
            copy = {
                "id": harness_message_id(payload.message_id),
                "from": payload.received_from.hex(),
                "topic": payload.topic,
                "msg": "Received Message",
            }
            lines.setdefault(peer, []).append(self._line(now, copy))
        for peer, texts in lines.items():
            path = self._logs[peer]
            with writing(path):
                path.parent.mkdir(exist_ok=True)
                with open(path, "ab") as stream:
                    stream.write(b"\n".join((*texts, b"")))

    def close(self) -> None:
        """Nothing is held open."""

    def _introduce(self, now: float, peer: PeerId) -> bytes:
        number = len(self._logs)
        self._logs[peer] = self._hosts / f"node{number}" / "rumormill.stdout"
        names = {"id": peer.hex(), "node_id": number, "msg": "PeerID"}
        return self._line(now, names)

    def _line(self, now: float, fields: Mapping[str, object]) -> bytes:
        time = (SHADOW_EPOCH + timedelta(seconds=now)).isoformat(timespec="microseconds")
        return self._encode({"time": time, **fields, "level": "INFO"})
