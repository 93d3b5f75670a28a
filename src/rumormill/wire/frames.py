"""Frames on a stream: an unsigned varint that says how long, and then so many bytes.

The rule: a length is judged before a byte of its frame is kept. What `FrameReader` holds is never
more than one unfinished frame, and of that only bytes that arrived; and what it was given and has
not been asked for yet, because of many frames it returns so many at a time.

The prefix is libp2p's unsigned varint, which has to be as short as possible.
"""

from rumormill.core.errors import DecodeError
from rumormill.wire.protobuf import varint

_MAX_PREFIX_BITS = 63
_FRAMES_AT_A_TIME = 16
"""Our choice: two milliseconds' work if each of them is a message to be verified."""
_BYTES_AT_A_TIME = 16 * 1024
"""Our choice: a frame that is longer may hold hundreds of things to be verified."""


def frame(data: bytes) -> bytes:
    """Put the length in front."""
    return varint(len(data)) + data


class FrameReader:
    """Cuts a stream of bytes into frames, however the stream was cut into pieces.

    `error` is set once the stream broke a rule; nothing can be read from it any more.
    """

    __slots__ = ("_at", "_buffer", "_length", "_shift", "_value", "error", "max_bytes", "unread")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.error: DecodeError | None = None
        self.unread = b""
        """Holds what waits for another call of `feed`, because there were many frames before it."""
        self._at = 0  # where in it: bytes are copied when more come, and not at every call
        self._value = self._shift = 0
        self._length = -1
        self._buffer = bytearray()

    @property
    def unfinished(self) -> bool:
        """Whether the stream so far ends inside a frame or its length."""
        return self._shift > 0 or self._length >= 0

    @property
    def held(self) -> int:
        """How many bytes of an unfinished frame are here."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Take what arrived; return the frames that it completed, in order, so many at a time.

        A bad length raises `DecodeError`, and so does every call after it. Frames that ended
        before the bad length in the same piece are returned first; the call after that raises,
        and `error` tells at once.
        """
        if self.error is not None:
            raise self.error
        position = 0
        if self.unread:
            if data:
                data = self.unread[self._at :] + data
            else:
                data, position = self.unread, self._at
            self.unread = b""
        frames: list[bytes] = []
        end, last = len(data), position + _BYTES_AT_A_TIME
        while position < end or self._length == 0:
            if frames and (len(frames) == _FRAMES_AT_A_TIME or position >= last):
                self.unread, self._at = data, position
                break
            if self._length < 0:
                if not self._shift and end - position > 2:
                    # Nearly every frame: a prefix of one byte or two, as short as possible, and
                    # all of the frame is here.
                    size, start = data[position], position + 1
                    if size >= 0x80:
                        high = data[start]
                        start += 1
                        size = size & 0x7F | high << 7 if 0 < high < 0x80 else end
                    stop = start + size
                    if stop <= end and size <= self.max_bytes:
                        frames.append(data[start:stop])
                        position = stop
                        continue
                try:
                    position = self._read_prefix(data, position, end)
                except DecodeError as error:
                    self.error = error
                    if not frames:
                        raise
                    break
                continue
            missing = self._length - len(self._buffer)
            stop = position + missing
            if stop > end:
                self._buffer += data[position:]
                break
            if self._buffer:
                self._buffer += data[position:stop]
                frames.append(bytes(self._buffer))
                self._buffer.clear()
            else:
                frames.append(data[position:stop])
            self._length = -1
            position = stop
        return frames

    def _read_prefix(self, data: bytes, position: int, end: int) -> int:
        """Read as much of a length as there is; set `_length` when it is complete."""
        while position < end:
            byte = data[position]
            position += 1
            self._value |= (byte & 0x7F) << self._shift
            self._shift += 7
            if self._value > self.max_bytes:
                # Said as soon as the digits so far are too large: the rest only adds to them.
                raise DecodeError("frame-too-long", f"allowed are {self.max_bytes} bytes")
            if byte < 0x80:
                if byte == 0 and self._shift > 7:
                    raise DecodeError("bad-varint", "a length is not as short as possible")
                self._length = self._value
                self._value = self._shift = 0
                break
            if self._shift >= _MAX_PREFIX_BITS:
                raise DecodeError("bad-varint", "a length is longer than nine bytes")
        return position
