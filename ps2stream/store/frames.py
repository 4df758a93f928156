"""Layout of a segment log's files in bytes.

A segment file is a header, then frames without a gap, then zeros. A frame is its size, a
CRC-32 of (size, position, record) and the record. It counts at its own position only, so
nothing that was left or moved there counts. The mark is a file beside the segments.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from ps2stream.errors import DataDirectoryError

FORMAT = 1
MAX_FRAME = (1 << 32) - 1  # bytes

_CHECKED = struct.Struct("<4sI")  # magic, CRC-32 of the body
_HEADER = struct.Struct("<qqq")  # format, number, base
_MARK = struct.Struct("<qqqqq")  # format, first, number, base, end
_FRAME = struct.Struct("<II")  # size with this, CRC-32
_SEED = struct.Struct("<Iq")  # size, position

HEADER = _CHECKED.size + _HEADER.size  # bytes before the first frame
MARK = _CHECKED.size + _MARK.size
FRAME = _FRAME.size  # bytes of a frame beside its record


class SegmentHeader(NamedTuple):
    """Header of a segment: its number, and the position of its first record, at which the
    segment before it ends. Once it is written, all before it is durable."""

    number: int
    base: int

    def encode(self) -> bytes:
        """Returns HEADER bytes."""
        return encode_checked(b"PS2s", _HEADER.pack(FORMAT, *self))

    @classmethod
    def decode(cls, raw: bytes, path: Path, advice: str) -> Self | None:
        """Returns the header, or None when none is written yet. Raises DataDirectoryError with
        the path and, when it is damaged, the advice."""
        if not raw.strip(b"\0"):
            return None
        return cls(*decode_checked(b"PS2s", _HEADER, raw, path, advice))


class LogMark(NamedTuple):
    """Mark of a log. The segments from `first` on must be there, and all records up to `end`,
    which lies in the segment `number`; that one begins at `base`, and may be missing while
    base == end."""

    first: int
    number: int
    base: int
    end: int

    def encode(self) -> bytes:
        """Returns MARK bytes."""
        return encode_checked(b"PS2g", _MARK.pack(FORMAT, *self))

    @classmethod
    def decode(cls, raw: bytes, path: Path, advice: str) -> Self:
        """Returns the mark. Raises DataDirectoryError, like Header.decode."""
        return cls(*decode_checked(b"PS2g", _MARK, raw, path, advice))


def encode_checked(magic: bytes, body: bytes) -> bytes:
    """Returns the body behind a magic number of four bytes and a checksum of both."""
    return _CHECKED.pack(magic, zlib.crc32(magic + body)) + body


def decode_checked(
    magic: bytes, form: struct.Struct, raw: bytes, path: Path | str, advice: str
) -> tuple[int, ...]:
    """Returns the values of a body whose first one is FORMAT, without that. Raises
    DataDirectoryError with the path; the advice says what to do about damage."""
    body = raw[_CHECKED.size :]
    if len(body) != form.size or raw != encode_checked(magic, body):
        raise DataDirectoryError(
            f"{path} is damaged at byte 0, or was written by another program. {advice}"
        )
    found, *values = form.unpack(body)
    if found != FORMAT:
        age = "newer" if found > FORMAT else "older"
        raise DataDirectoryError(
            f"{path} has format {found}, {age} than {FORMAT}, the one that this version reads; "
            "use the version that wrote it, or another directory"
        )
    return tuple(values)


def frames(positions: Sequence[int], records: Sequence[bytes]) -> list[bytes]:
    """Returns the buffers to write for records that follow one another, at these positions."""
    if len(records) == 1:  # as in most syncs
        record, size = records[0], FRAME + len(records[0])
        crc = zlib.crc32(record, zlib.crc32(_SEED.pack(size, positions[0])))
        return [_FRAME.pack(size, crc), record]
    sizes = [FRAME + size for size in map(len, records)]
    seeds = map(zlib.crc32, map(_SEED.pack, sizes, positions))
    out = [b""] * (2 * len(records))
    out[::2] = map(_FRAME.pack, sizes, map(zlib.crc32, records, seeds))
    out[1::2] = records
    return out


class FrameSource(Protocol):
    """The part of a file that frames are read from."""

    def pread(self, size: int, at: int, /) -> bytes: ...


def walk_frames(
    file: FrameSource, base: int, position: int, stop: int, step: int = 1 << 20
) -> Generator[tuple[int, bytes], None, int]:
    """Yields (position, record) of the sound frames that follow one another from `position`,
    where one begins, to `stop` in a segment that begins at `base`; returns where they end.
    Reads `step` bytes at a time. Raises OSError."""
    block, at = b"", 0
    unpack, seed, crc32 = _FRAME.unpack_from, _SEED.pack, zlib.crc32
    while position < stop:
        if len(block) - at < FRAME:
            block, at = file.pread(step, HEADER + position - base), 0
            if len(block) < FRAME:
                break
        size, crc = unpack(block, at)
        if size < FRAME or size > stop - position:
            break
        if len(block) - at < size:
            block, at = file.pread(max(size, step), HEADER + position - base), 0
            if len(block) < size:
                break
        record = block[at + FRAME : at + size]
        if crc32(record, crc32(seed(size, position))) != crc:
            break
        yield position, record
        position += size
        at += size
    return position
