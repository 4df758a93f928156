"""Layout of a log in a topic: frames, as in a segment file, cut into chunks.

A chunk is a message of Kafka: its value holds whole frames, or a part of a single large one, and
its key a header. The chunks of a log follow one another by position, so that one that is missing
is noticed. Every header names the log and where it begins, so that the last chunk, which is never
trimmed, tells all that a new owner must know.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Self

from ps2stream.store.frames import (
    FORMAT,
    FRAME,
    HEADER,
    MAX_FRAME,
    decode_checked,
    encode_checked,
    frames,
    walk_frames,
)
from ps2stream.store.identity import LogIdentity

CHUNK = 960 << 10
"""Bytes of frames in a chunk; Kafka accepts messages of 1,048,588 bytes unless told otherwise."""
MESSAGE = CHUNK + (32 << 10)
"""Bytes of a message at most, with its key and what Kafka adds."""
MAX_RECORD = 512 << 20
"""Bytes of a record: a sync is one transaction, which is held in memory."""
assert MAX_RECORD <= MAX_FRAME - FRAME

_MAGIC = b"PS2k"
_HEADER = struct.Struct("<8q")  # format, then the fields
_NO_LOG = -1  # incarnation of a log that has no identity yet
_SPARSE = 256 << 10  # bytes between two chunks whose offsets are remembered


class ChunkHeader(NamedTuple):
    """Header of a chunk. base: the position of its first byte; continues: 1 if it goes on with the
    frame of the chunk before, else 0; first: the log is kept from this position on; the others
    are those of LogIdentity."""

    base: int
    continues: int
    first: int
    ledger: int = 0
    incarnation: int = _NO_LOG
    generation: int = 0
    lsn: int = 0

    @property
    def identity(self) -> LogIdentity | None:
        """The identity of the log; None where it has none yet."""
        return None if self.incarnation == _NO_LOG else LogIdentity(*self[3:])

    def encode(self) -> bytes:
        """Returns the key of the message."""
        return encode_checked(_MAGIC, _HEADER.pack(FORMAT, *self))

    @classmethod
    def decode(cls, raw: bytes, place: str) -> Self:
        """Returns the header. Raises DataDirectoryError, which names the place."""
        advice = "Delete what others wrote there, or use another prefix"
        return cls(*decode_checked(_MAGIC, _HEADER, raw, place, advice))


class LogChunk(NamedTuple):
    """A chunk as it is stored: the offset of its message, its header and its frames."""

    offset: int
    header: ChunkHeader
    data: bytes

    @property
    def end(self) -> int:
        """The position behind its last byte."""
        return self.header.base + len(self.data)


def cut_chunks(
    positions: Sequence[int], records: Sequence[bytes]
) -> Iterator[tuple[int, int, bytes]]:
    """Yields (base, continues, data) of chunks with the frames of these records, which follow one
    another."""
    end = positions[-1] + FRAME + len(records[-1]) if positions else 0
    start = 0
    while start < len(records):
        base = positions[start]
        # The first record that does not end within the chunk.
        stop = bisect_right(positions, base + CHUNK) - (base + CHUNK < end)
        stop = max(start + 1, stop)
        data = b"".join(frames(positions[start:stop], records[start:stop]))
        yield base, 0, data[:CHUNK]
        for at in range(CHUNK, len(data), CHUNK):
            yield base + at, 1, data[at : at + CHUNK]
        start = stop


class ChunkRun:
    """Chunks that follow one another, from which frames are read."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._data: list[bytes] = []
        self.end = 0
        self.bytes = 0

    @property
    def base(self) -> int:
        """The position of the first byte; `end` when there is none."""
        return self._bases[0] if self._bases else self.end

    def append(self, base: int, data: bytes) -> None:
        """Appends a chunk; one that does not follow on the others takes their place."""
        if base != self.end:
            self._bases, self._data, self.bytes = [], [], 0
        if data:
            self._bases.append(base)
            self._data.append(data)
        self.end = base + len(data)
        self.bytes += len(data)

    def shrink(self, limit: int) -> None:
        """Drops the oldest chunks once there are more than twice as many bytes as the limit."""
        if self.bytes > 2 * limit:
            gone = bisect_left(self._bases, self.end - limit)
            self.bytes -= sum(map(len, islice(self._data, gone)))
            del self._bases[:gone], self._data[:gone]

    def copy_from(self, position: int) -> ChunkRun:
        """Returns a run of its own with the chunks from the one on that holds a position."""
        at = max(bisect_right(self._bases, position) - 1, 0)
        run = ChunkRun()
        run._bases, run._data, run.end = self._bases[at:], self._data[at:], self.end
        run.bytes = self.end - run.base
        return run

    def pread(self, size: int, position: int) -> bytes:
        """Returns so many bytes from a position, fewer at the end."""
        at = bisect_right(self._bases, position) - 1
        if at < 0:
            return b""
        skip = position - self._bases[at]
        found = self._data[at][skip : skip + size]
        if len(found) == size or at + 1 == len(self._data):
            return found
        parts, missing = [found], size - len(found)
        for data in islice(self._data, at + 1, None):
            if missing <= 0:
                break
            parts.append(data[:missing])
            missing -= len(parts[-1])
        return b"".join(parts)

    def read(self, position: int) -> bytes | None:
        """Returns the record at a position; None if no intact frame begins there."""
        for _, record in walk_frames(self, HEADER, position, self.end, 8 << 10):
            return record
        return None


class ChunkOffsets:
    """Offsets of some chunks in which a frame begins, by position: those that are as far apart as
    is worth remembering. Any thread may use it."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._offsets: list[int] = []
        self._lock = threading.Lock()

    def add(self, chunk: LogChunk) -> None:
        """Remembers the chunk, unless one nearby is known."""
        base = chunk.header.base
        with self._lock:
            at = bisect_right(self._positions, base)
            near = at and base - self._positions[at - 1] < _SPARSE
            if not (near or chunk.header.continues):
                self._positions.insert(at, base)
                self._offsets.insert(at, chunk.offset)

    def find(self, position: int) -> tuple[int, int] | None:
        """Returns position and offset of the last known chunk that begins there or before."""
        with self._lock:
            at = bisect_right(self._positions, position) - 1
            return None if at < 0 else (self._positions[at], self._offsets[at])

    def find_next(self, position: int) -> tuple[int, int] | None:
        """Returns position and offset of the first known chunk that begins after a position."""
        with self._lock:
            at = bisect_right(self._positions, position)
            if at == len(self._positions):
                return None
            return self._positions[at], self._offsets[at]

    def drop(self, before: int) -> None:
        """Forgets the chunks before a position."""
        with self._lock:
            gone = bisect_left(self._positions, before)
            del self._positions[:gone], self._offsets[:gone]
