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
from collections.abc import Callable, Mapping
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

    `node_ids` gives peers their numbers; a peer that is not in it gets the next free one when it is
    first seen. `peer_text` writes a peer id (libp2p's text form is base58; hexadecimal does for the
    simulator), and `start` is the moment at which the trace's clock shows zero.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        node_ids: Mapping[PeerId, int] | None = None,
        peer_text: Callable[[PeerId], str] = bytes.hex,
        start: datetime = SHADOW_EPOCH,
    ) -> None:
        self._hosts = Path(folder) / "hosts"
        self._wanted = dict(node_ids or {})
        self._peer_text = peer_text
        self._start = start
        self._logs: dict[PeerId, Path] = {}
        self._next = 1 + max(self._wanted.values(), default=-1)
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
                "from": self._peer_text(payload.received_from),
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
        number = self._wanted.get(peer)
        if number is None:
            number = self._next
            self._next += 1
        self._logs[peer] = self._hosts / f"node{number}" / "rumormill.stdout"
        names = {"id": self._peer_text(peer), "node_id": number, "msg": "PeerID"}
        return self._line(now, names)

    def _line(self, now: float, fields: Mapping[str, object]) -> bytes:
        time = (self._start + timedelta(seconds=now)).isoformat(timespec="microseconds")
        return self._encode({"time": time, **fields, "level": "INFO"})
