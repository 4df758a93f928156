"""A file that grows, is renamed or truncated: its lines, each with where the next one begins.

A file is known by its inode and a hash of its first bytes, so that neither a rename nor a new file
with the old name is mistaken for the other.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ps2stream.errors import FailedPrecondition, invalid

log = logging.getLogger(__name__)

LINE_BYTES = 1 << 20
HEAD_BYTES = 1024
READ_BYTES = 1 << 20
SETTLE_S = 2.0
"""Seconds for which a file that was replaced must not grow: its writer may not have noticed yet."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A place in a file: its inode, a hash of its first `head` bytes, and the offset of the next
    byte to read."""

    inode: int = 0
    head: int = 0
    digest: str = ""
    offset: int = 0


class TailLine(NamedTuple):
    """A line without its end, where it begins and where the next one does, in the file `inode`.
    data: None for one of more than LINE_BYTES."""

    data: bytes | None
    start: int
    end: int
    inode: int


class FileTail:
    """Reads the lines of `path` from a place. ends_partial: whether a last line without its end is
    a line; without, it waits for its end, but where the file was replaced. Raises InvalidArgument
    for a file that cannot be read."""

    def __init__(self, path: Path, place: FilePlace, ends_partial: bool) -> None:
        self._path = path
        self._ends_partial = ends_partial
        self._replaced = False
        self._quiet_at = 0.0
        self._partial = b""
        self._too_long = False
        self._file: BinaryIO | None = None
        self._waiting: list[Path] = []
        self.is_new = True
        """Whether the next line is the first of its file."""
        self._open_at(place)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    @property
    def is_finished(self) -> bool:
        """Whether nothing more is expected of the file that is being read."""
        return self._is_over() or self._ends_partial

    def place(self, offset: int) -> FilePlace:
        """Returns a place in the file that is being read, as of the lines before `offset`."""
        assert self._file is not None
        head = min(offset, HEAD_BYTES)
        return FilePlace(self._inode, head, _hash_head(self._file, head), offset)

    def read_first_line(self) -> bytes:
        """Returns the first line of the file that is being read, for one of CSV."""
        assert self._file is not None
        data = os.pread(self._file.fileno(), LINE_BYTES, 0)
        return data.partition(b"\n")[0]

    def read_lines(self) -> list[TailLine]:
        """Returns the next lines, none at the end of what is there. The lines are of one file."""
        assert self._file is not None
        if self._is_truncated():
            log.warning("%s was truncated; it is read from its beginning", self._path)
            self._begin(self._file, 0)
        while data := self._read_more():
            self._quiet_at = time.monotonic() + SETTLE_S
            if lines := self._split_lines(data):
                return lines
        return self._end_partial() if self._is_over() or self._ends_partial else []

    def _read_more(self) -> bytes:
        assert self._file is not None
        return os.pread(self._file.fileno(), READ_BYTES, self._offset + len(self._partial))

    def go_on(self) -> bool:
        """Goes on to the file that replaced this one, once its end is reached. Returns whether
        there may be more to read."""
        if self._replaced:
            return self._is_over() and self._replace()
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        if found.st_ino != self._inode:  # what is still in the old one is read first
            self._replaced, self._quiet_at = True, time.monotonic() + SETTLE_S
        return self._replaced and self._ends_partial

    def _is_over(self) -> bool:
        return self._replaced and (self._ends_partial or time.monotonic() >= self._quiet_at)

    def _replace(self) -> bool:
        """Opens the next file, and returns whether it is there."""
        path = self._waiting[0] if self._waiting else self._path
        try:
            file = path.open("rb")
        except FileNotFoundError:
            del self._waiting[:1]  # renamed again; the one in its place comes later
            return False
        assert self._file is not None
        self._file.close()
        log.info("%s is read from its beginning", path)
        del self._waiting[:1]
        self._replaced = path != self._path
        self._begin(file, 0)
        return True

    def _begin(self, file: BinaryIO, offset: int) -> None:
        self._file = file
        self._inode = os.fstat(file.fileno()).st_ino
        self._offset = offset
        self._partial, self._too_long = b"", False
        self._known = (0, "")
        self.is_new = offset == 0

    def _is_truncated(self) -> bool:
        """Returns whether the file is shorter than what was read, or begins otherwise."""
        assert self._file is not None
        if os.fstat(self._file.fileno()).st_size < self._offset + len(self._partial):
            return True
        head, digest = self._known
        if head and _hash_head(self._file, head) != digest:
            return True
        if head < HEAD_BYTES and head < self._offset:
            head = min(self._offset, HEAD_BYTES)
            self._known = (head, _hash_head(self._file, head))
        return False

    def _split_lines(self, data: bytes) -> list[TailLine]:
        whole = self._partial + data
        out = []
        start = 0
        while (end := whole.find(b"\n", start)) >= 0:
            out.append(self._make_line(whole[start:end], end + 1 - start))
            start = end + 1
        self._partial = whole[start:]
        if len(self._partial) > LINE_BYTES:  # its bytes are dropped, and it is reported as a line
            self._too_long = True
            self._offset += len(self._partial)
            self._partial = b""
        return out

    def _make_line(self, data: bytes, size: int) -> TailLine:
        start, self._offset = self._offset, self._offset + size
        is_bad = self._too_long or len(data) > LINE_BYTES
        self._too_long = False
        return TailLine(None if is_bad else data, start, self._offset, self._inode)

    def _end_partial(self) -> list[TailLine]:
        if not self._partial and not self._too_long:
            return []
        data, self._partial = self._partial, b""
        return [self._make_line(data, len(data))]

    # --- after a restart ------------------------------------------------------

    def _open_at(self, place: FilePlace) -> None:
        """Opens the file that a place is in, and notes those that came after it."""
        if place.inode:
            for path in [self._path, *_list_rotated(self._path)]:
                if _is_at(path, place):
                    file = path.open("rb")
                    if path != self._path:
                        self._replaced = True
                        self._waiting = _list_later(path, self._path)
                    self._begin(file, place.offset)
                    self._known = (place.head, place.digest)
                    return
            log.warning(
                "the file that was read before is gone: what it had after byte %d is not published",
                place.offset,
            )
        try:
            if not self._path.is_file() and self._path.exists():
                raise invalid("file", f"{self._path} is not a regular file")
            self._begin(self._path.open("rb"), 0)
        except OSError as error:
            raise invalid("file", f"cannot read {self._path}: {error.strerror}") from None


def _list_rotated(path: Path) -> list[Path]:
    """Returns the files beside this one that are named as rotated ones are, oldest first."""
    names = (f"{path.name}.", f"{path.name}-")
    packed = (".gz", ".xz", ".zst", ".bz2", ".lock", ".new", ".state")
    try:
        found = [
            (each.stat().st_mtime_ns, each)
            for each in path.parent.iterdir()
            if each.name.startswith(names) and not each.name.endswith(packed) and each.is_file()
        ]
    except OSError as error:
        raise FailedPrecondition(f"cannot list {path.parent}: {error.strerror}") from None
    return [each for _, each in sorted(found)]


def _list_later(path: Path, newest: Path) -> list[Path]:
    """Returns the rotated files that were written after this one, oldest first."""
    at = path.stat().st_mtime_ns
    rotated = _list_rotated(newest)
    return [each for each in rotated if each.stat().st_mtime_ns > at and each != path]


def _is_at(path: Path, place: FilePlace) -> bool:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            same = found.st_ino == place.inode and found.st_size >= place.offset
            return same and _hash_head(file, place.head) == place.digest
    except OSError:
        return False


def _hash_head(file: BinaryIO, size: int) -> str:
    return hashlib.sha256(os.pread(file.fileno(), size, 0)).hexdigest()[:32]


class CsvRecords:
    """Joins lines to records of CSV: a quoted cell may go over the end of a line."""

    def __init__(self) -> None:
        self._held: list[TailLine] = []
        self._quotes = 0
        self._size = 0

    def join_lines(self, lines: Iterable[TailLine]) -> Iterator[TailLine]:
        """Yields the records that are complete; the last lines wait for what follows."""
        for line in lines:
            self._held.append(line)
            self._quotes += 0 if line.data is None else line.data.count(b'"')
            self._size += line.end - line.start
            if not self._quotes % 2 or self._size > LINE_BYTES:
                yield from self.flush()

    def flush(self) -> Iterator[TailLine]:
        """Yields the lines that wait, as one record."""
        if held := self._held:
            parts = [each.data for each in held if each.data is not None]
            good = len(parts) == len(held) and self._size <= LINE_BYTES
            data = b"\n".join(parts) if good else None
            yield TailLine(data, held[0].start, held[-1].end, held[0].inode)
        self._held, self._quotes, self._size = [], 0, 0
