"""An append-only log in segment files: the `Log` of ports.py on a disk.

Appending only buffers; room on the disk is reserved before, so a full disk shows at `append`,
which refuses, and never at `sync`. After any other error nothing more is written:
what a failed sync left on the disk is only known after a restart (recovery.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Self

from ps2stream.errors import Unavailable
from ps2stream.store.disk import FULL, Disk, DiskFile, DiskLock, OsDisk
from ps2stream.store.frames import (
    FRAME,
    HEADER,
    MAX_FRAME,
    LogMark,
    SegmentHeader,
    frames,
    walk_frames,
)
from ps2stream.store.recovery import (
    LogSegment,
    RecoveredLog,
    check_made,
    damage_error,
    segment_path,
    take_over,
    translate_read_errors,
)

_BASE = attrgetter("base")
_READ = 8 << 10  # bytes at first when one record is read
_CACHED = 1 << 20  # bytes at the end that stay in the page cache


class SegmentLog:
    """A Log in a directory. Make one with `SegmentLog.open`.

    One thread may append while another syncs (a group commit) and others read, scan and trim.
    """

    def __init__(
        self, path: Path, disk: Disk, held: DiskLock, segment_bytes: int, found: RecoveredLog
    ):
        self.path = path
        self._mark_path = path / "mark"
        self._disk = disk
        self._held = held
        self._segment_bytes = segment_bytes
        self._segments = found.segments
        self._number = found.mark.number  # of the next segment
        self._mark, self._mark_file = found.mark, found.mark_file
        self._synced = self._end = found.end
        self._limit = -1  # where the room of the last segment ends; -1: none may be used
        self._fresh: dict[int, bytes] = {}  # appended records, by position
        self._writing: dict[int, bytes] = {}  # and those that a sync is writing
        self._unsealed: list[LogSegment] = []  # those not yet written to their end
        self._reader: tuple[LogSegment, DiskFile] | None = None  # the last sealed segment read from
        self._failed = ""
        self._refused = ("", 0, 0)  # the problem, its errno, and the bytes that had no room
        self._lock = threading.Lock()  # guards all the fields
        self._syncing = threading.Lock()  # one sync at a time
        self._marking = threading.Lock()  # guards the mark

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        disk: Disk | None = None,
        segment_bytes: int = 64 << 20,
        again: bool = False,
    ) -> Self:
        """Opens the log in the directory `path`, or makes one; new segments take `segment_bytes`
        at once, or as much as a longer record needs. `again`: it is there, and makes none.

        All headers, the chain of segments and the last segment with records are checked here,
        the others as they are read. Raises DataDirectoryError when it is in use, damaged or of
        another format, Unavailable when the disk is too full to begin.
        """
        if segment_bytes <= HEADER + FRAME:
            raise ValueError(f"segment_bytes: must be above {HEADER + FRAME}, got {segment_bytes}")
        path = Path(path)
        disk = disk or OsDisk()
        if again:
            check_made(path, disk)
        held = disk.lock(path)
        try:
            return cls(path, disk, held, segment_bytes, take_over(path, disk))
        except BaseException:
            held.close()
            raise

    def close(self) -> None:
        with self._syncing, self._lock:
            self._failed = self._failed or "it is closed"
            self._limit = -1
            for segment in self._unsealed:
                segment.file = None  # a reader that holds it goes on
            self._reader = None
            self._mark_file.close()
            self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading -------------------------------------------------------------------

    @property
    def first(self) -> int:
        with self._lock:
            return self._segments[0].base if self._segments else self._end

    @property
    def end(self) -> int:
        return self._end

    @property
    def synced(self) -> int:
        return self._synced

    def read(self, position: int) -> bytes:
        with self._lock:
            for waiting in (self._fresh, self._writing):
                if (record := waiting.get(position)) is not None:
                    return record
            at = bisect_right(self._segments, position, key=_BASE) - 1
            if at < 0 or position >= self._synced:
                raise KeyError(position)
            segment, stop = self._segments[at], self._find_stop(self._segments, at, self._synced)
            path = segment.path(self.path)
            with translate_read_errors(path):
                file = segment.file or self._open_sealed(segment)
        with translate_read_errors(path):
            for _, record in walk_frames(file, segment.base, position, stop, _READ):
                return record
        raise damage_error(path, segment.base, position, "no intact record begins there")

    def scan(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        with self._lock:
            waiting = [*self._writing.items(), *self._fresh.items()]
            segments, synced = self._segments[:], self._synced
        return self._scan_segments(start, segments, synced, waiting)

    def _scan_segments(
        self, start: int, segments: list[LogSegment], synced: int, waiting: list[tuple[int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        for at, segment in enumerate(segments):
            position, stop = max(start, segment.base), self._find_stop(segments, at, synced)
            if position >= stop:
                continue
            path = segment.path(self.path)
            with translate_read_errors(path):
                with self._lock:
                    if segment.number < self._segments[0].number:
                        continue  # trimmed in the meantime
                    file = segment.file or self._disk.open(path)
                reached = yield from walk_frames(file, segment.base, position, stop)
            if reached < stop:
                raise damage_error(path, segment.base, reached, "no intact record begins there")
        for position, record in waiting:
            if position >= start:
                yield position, record

    def _open_sealed(self, segment: LogSegment) -> DiskFile:
        if self._reader is None or self._reader[0] is not segment:
            self._reader = segment, self._disk.open(segment.path(self.path))
        return self._reader[1]

    @staticmethod
    def _find_stop(segments: list[LogSegment], at: int, synced: int) -> int:
        """Returns where the synced records of a segment end."""
        return min(segments[at + 1].base, synced) if at + 1 < len(segments) else synced

    # --- writing -------------------------------------------------------------------

    def append(self, record: bytes) -> int:
        with self._lock:
            position = self._end
            end = position + FRAME + len(record)
            if end > self._limit:
                self._begin_segment(end - position)
            self._fresh[position] = record
            self._end = end
            return position

    def sync(self) -> int:
        with self._syncing:
            with self._lock:
                self._check_usable()
                end = self._end
                if end == self._synced:
                    return end
                batch = self._writing = self._fresh
                self._fresh = {}
                todo = self._unsealed[:]
            try:
                self._write_batch(batch, todo)
                self._check_owned()
            except OSError as error:
                raise self._record_failure(error) from error
            except BaseException as error:
                self._record_failure(error)  # how far it came is unknown
                raise
            with self._marking, contextlib.suppress(OSError):
                # A mark that lags behind is still true.
                last = todo[-1]
                self._set_mark(LogMark(self._mark.first, last.number, last.base, end))
            with self._lock:
                self._synced = end
                self._writing = {}
                for segment in todo[:-1]:
                    segment.file = None
                del self._unsealed[: len(todo) - 1]
            return end

    def trim(self, before: int) -> None:
        with self._lock:
            self._check_usable()
            # A segment ends where the next one begins. The last with synced records stays: it
            # tells the end.
            known = bisect_right(self._segments, min(before, self._synced - 1), key=_BASE)
            gone = self._segments[: max(0, known - 1)]
            if not gone:
                return
            del self._segments[: len(gone)]
            self._reader = None  # an open file would keep its room
        try:
            self._check_owned()
            with self._marking:
                # Durable before a file goes: a segment that is missing from `first` on is lost.
                self._set_mark(self._mark._replace(first=gone[-1].number + 1))
                self._mark_file.sync()
            for segment in gone:
                self._disk.remove(segment.path(self.path))
            self._disk.sync(self.path)
        except OSError as error:
            raise self._record_failure(error) from error

    def _begin_segment(self, frame: int) -> None:
        """Makes room for a frame of so many bytes at the end, in a new segment."""
        self._check_usable()
        if frame > MAX_FRAME:
            raise ValueError(
                f"record: {frame - FRAME} bytes are over the limit of {MAX_FRAME - FRAME}"
            )
        size = max(self._segment_bytes, HEADER + frame)
        try:
            self._check_owned()
            file = self._disk.create(segment_path(self.path, self._number), size)
        except OSError as error:
            if error.errno in FULL:
                why = f"{error.strerror} for {size:,} bytes"
                problem = f"there is no space for the log {self.path}: {why}"
                self._refused = problem, error.errno or 0, size
                raise Unavailable(problem) from error
            self._failed, self._limit = str(error), -1
            raise Unavailable(f"the log {self.path} cannot be written: {error}") from error
        self._refused = ("", 0, 0)
        segment = LogSegment(self._number, self._end, size, file, begun=False)
        self._segments.append(segment)
        self._unsealed.append(segment)
        self._number += 1
        self._limit = self._end + size - HEADER

    def _write_batch(self, batch: dict[int, bytes], segments: list[LogSegment]) -> None:
        """Writes and syncs the batch. A segment begins when the one before is durable."""
        positions, records = list(batch), list(batch.values())
        cuts = [bisect_left(positions, s.base) for s in segments[1:]]
        for segment, start, stop in zip(segments, [0, *cuts], [*cuts, len(records)], strict=True):
            if start == stop:
                continue
            out = frames(positions[start:stop], records[start:stop])
            at = HEADER + positions[start] - segment.base
            if not segment.begun:
                self._disk.sync(self.path)
                out.insert(0, SegmentHeader(segment.number, segment.base).encode())
                at = 0
            assert segment.file is not None
            segment.file.pwritev(out, at)
            segment.file.sync()
            segment.file.uncache(HEADER + positions[stop - 1] - segment.base - _CACHED)
            segment.begun = True

    def _set_mark(self, mark: LogMark) -> None:
        self._mark = mark
        self._mark_file.pwritev([self._mark.encode()], 0)

    def _check_owned(self) -> None:
        """Raises OSError when this owner's mark is gone, or another's is in its place."""
        if not self._disk.is_in_place(self._mark_path, self._mark_file):
            problem = "another process has taken it over, or it was removed"
            raise OSError(errno.ESTALE, problem)

    def _check_usable(self) -> None:
        if self._failed:
            raise Unavailable(self._describe_failure())

    def _describe_failure(self) -> str:
        return f"the log {self.path} accepts no records until a restart: {self._failed}"

    @property
    def problem(self) -> str:
        with self._lock:
            if self._failed:
                return self._describe_failure()
            problem, why, size = self._refused
        try:
            self._check_owned()
            # A quota shows only when something is written.
            has_room = why == errno.ENOSPC and self._disk.has_room(self.path, size)
        except OSError as error:
            return f"the log {self.path} cannot be written: {error}"
        return "" if has_room else problem

    def _record_failure(self, error: BaseException) -> Unavailable:
        with self._lock:
            self._failed, self._limit = str(error) or type(error).__name__, -1
        return Unavailable(f"the log {self.path} cannot be written: {error}")

    @property
    def bytes(self) -> int:
        with self._lock:
            return sum(segment.size for segment in self._segments)
