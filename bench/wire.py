"""Claim: noise and yamux together cost little more than the cipher they cannot do without.

Measures CPU time per 1 KiB message through both machines (send, frame, encrypt, decrypt, unframe,
consume) as a ratio to bare ChaCha20-Poly1305 encryption and decryption of the same message in the
same run, for one message per write and for many, and the same inside a private network's cipher.
Rounds alternate, the minimum counts.
"""

import time
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from rumormill.libp2p.multistream import MULTISTREAM, encode_line
from rumormill.libp2p.noise import NoiseHandshake, NoiseSession
from rumormill.libp2p.pnet import PrivateNetwork, PrivateSession
from rumormill.libp2p.yamux import YamuxSession
from rumormill.libp2p.yamux_types import DataReceived
from rumormill.wire.keys import PrivateKey

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGE = bytes(1024)
MESSAGES = 4096
ROUNDS = 7


def connect() -> tuple[NoiseSession, NoiseSession]:
    dialler = NoiseHandshake(
        PrivateKey(bytes(32)), initiator=True, static_secret=b"1" * 32, ephemeral_secret=b"2" * 32
    )
    listener = NoiseHandshake(
        PrivateKey(bytes(32)), initiator=False, static_secret=b"3" * 32, ephemeral_secret=b"4" * 32
    )
    for _ in range(2):
        listener.receive(dialler.data_to_send())
        dialler.receive(listener.data_to_send())
    if dialler.session is None or listener.session is None:
        raise RuntimeError("the handshake did not finish")
    return dialler.session, listener.session


def connect_privately() -> tuple[PrivateSession, PrivateSession]:
    network, greeting = PrivateNetwork(bytes(32)), encode_line(MULTISTREAM)
    dialler = network.session(b"1" * 24, outbound=True)
    listener = network.session(b"2" * 24, outbound=False)
    listener.decrypt(dialler.encrypt(greeting))
    dialler.decrypt(listener.encrypt(greeting))
    return dialler, listener


def bare_cipher() -> None:
    cipher = ChaCha20Poly1305(bytes(32))
    encrypt, decrypt = cipher.encrypt, cipher.decrypt
    for number in range(MESSAGES):
        nonce = number.to_bytes(12)
        decrypt(nonce, encrypt(nonce, MESSAGE, None), None)


def through_the_wire(per_write: int, *, private: bool = False) -> None:
    near, far = connect()
    cover, uncover = bytes, bytes
    if private:
        near_private, far_private = connect_privately()
        cover, uncover = near_private.encrypt, far_private.decrypt
    client, server = YamuxSession(client=True), YamuxSession(client=False)
    stream_id = client.open_stream()
    server.receive(client.data_to_send())
    server.accept(stream_id)
    received = 0
    for _ in range(MESSAGES // per_write):
        for _ in range(per_write):
            client.send(stream_id, MESSAGE)
        wire = cover(near.encrypt(client.data_to_send()))
        for event in server.receive(far.decrypt(uncover(wire))):
            if isinstance(event, DataReceived):
                received += len(event.data)
                server.consumed(stream_id, len(event.data))
        if updates := server.data_to_send():
            client.receive(near.decrypt(far.encrypt(updates)))
    if received != MESSAGES * len(MESSAGE):
        raise RuntimeError(f"{received} bytes arrived")


def handshakes() -> None:
    for _ in range(MESSAGES // 64):
        connect()


def main() -> None:
    cases: dict[str, Callable[[], None]] = {
        "bare ChaCha20-Poly1305": bare_cipher,
        "noise + yamux, 1 message per write": lambda: through_the_wire(1),
        "noise + yamux, 8 messages per write": lambda: through_the_wire(8),
        "noise + yamux, 32 messages per write": lambda: through_the_wire(32),
        "private, 1 message per write": lambda: through_the_wire(1, private=True),
        "private, 32 messages per write": lambda: through_the_wire(32, private=True),
    }
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(ROUNDS):
        for name, run in cases.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    floor = best["bare ChaCha20-Poly1305"]
    for name, seconds in best.items():
        print(f"{name:40} {seconds / MESSAGES * 1e6:7.2f} µs/message   {seconds / floor:5.2f} ×")
    start = time.process_time()
    handshakes()
    seconds = (time.process_time() - start) / (MESSAGES // 64)
    print(f"{'handshake, both sides':40} {seconds * 1e6:7.0f} µs")
    start = time.process_time()
    for _ in range(MESSAGES // 64):
        connect_privately()
    seconds = (time.process_time() - start) / (MESSAGES // 64)
    print(f"{'private greeting, both sides':40} {seconds * 1e6:7.0f} µs")


if __name__ == "__main__":
    main()
