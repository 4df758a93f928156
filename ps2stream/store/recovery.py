"""A segment log's directory as its last owner left it, checked and taken over.

Two things tell what a crash leaves from damage: a header is written only when all before it is
durable, and the mark names what had been synced. The mark is written in place and not synced,
so it may lag behind but is never ahead.

Each owner first replaces the mark by one of its own. A process that was stopped while it owned
the log finds that out after its next sync, and acknowledges nothing.
What it still writes never counts, for the new mark says where the new owner found the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from ps2stream.errors import DataDirectoryError, Unavailable
from ps2stream.store.access import explain_denial, is_denied
from ps2stream.store.disk import FULL, Disk, DiskFile
from ps2stream.store.frames import FRAME, HEADER, MARK, LogMark, SegmentHeader, walk_frames

_NAME = re.compile(r"([0-9]{12})\.segment")
_ADVICE = "Restore a copy of {}; to continue without its contents, move it away"


@dataclasses.dataclass(slots=True, eq=False)
class LogSegment:
    """A file of the log, of `size` bytes. `file` is open while there may be something to
    write; `begun` says whether the header is written."""

    number: int
    base: int
    size: int
    file: DiskFile | None = None
    begun: bool = True

    def path(self, directory: Path) -> Path:
        return segment_path(directory, self.number)


@dataclasses.dataclass(slots=True, eq=False)
class RecoveredLog:
    """A directory taken over: its segments, where they end, the new owner's mark."""

    segments: list[LogSegment]
    end: int
    mark: LogMark
    mark_file: DiskFile


def check_made(path: Path, disk: Disk) -> None:
    """Raises DataDirectoryError if there is no log in the directory. One that was removed under a
    running service must not begin anew: its positions and offsets would be given twice."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = disk.list(path)
    if "mark" not in names:
        raise DataDirectoryError(
            f"{path} was removed while the service runs; put it back, or restart the service"
        )


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"{number:012}.segment"


def damage_error(path: Path, base: int, position: int, why: str) -> DataDirectoryError:
    """Returns the error for a segment, beginning at `base`, that is not sound at `position`."""
    return DataDirectoryError(
        f"{path}: the log is damaged at position {position} (byte {HEADER + position - base} of "
        f"the file): {why}. {_ADVICE.format(path.parent)}"
    )


@contextlib.contextmanager
def translate_read_errors(path: Path) -> Iterator[None]:
    """Turns an OSError into a DataDirectoryError that names the file."""
    try:
        yield
    except OSError as error:
        if is_denied(error):
            raise DataDirectoryError(
                f"{path} cannot be read: {explain_denial(path, error)}"
            ) from error
        raise DataDirectoryError(
            f"{path} cannot be read: {error.strerror}. {_ADVICE.format(path.parent)}"
        ) from error


def take_over(path: Path, disk: Disk) -> RecoveredLog:
    """Checks the directory, which is locked, then makes it the caller's.

    Raises DataDirectoryError when something that was synced is damaged or missing; the
    directory then stays as it was. Raises Unavailable when the disk is too full to begin.
    """
    try:
        return _take_over(path, disk)
    except OSError as error:
        if error.errno in FULL:
            raise Unavailable(f"the log {path} cannot be opened: {error.strerror}") from error
        why = explain_denial(path, error)
        raise DataDirectoryError(f"{path} cannot be used: {why}") from error


def _take_over(path: Path, disk: Disk) -> RecoveredLog:
    names = disk.list(path)
    mark = file = None
    if "mark" in names:
        mark = _read_mark(path, disk)
        file = _write_own_mark(path, disk, names, mark)
        names = disk.list(path)  # from here on no earlier owner acknowledges anything
    numbers = sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))
    segments = _list_begun_segments(
        path, disk, [n for n in numbers if mark is None or n >= mark.first]
    )
    _check_chain(path, segments, mark)
    end = _find_end(path, disk, segments, mark)

    for number in numbers:
        if not segments or not segments[0].number <= number <= segments[-1].number:
            disk.remove(segment_path(path, number))  # trimmed, or never begun
    if segments:
        _settle_segment(segments[-1], path, disk, end, mark)
    number = segments[-1].number + 1 if segments else 1
    mark = LogMark(segments[0].number if segments else number, number, end, end)
    if file is None:
        file = _write_own_mark(path, disk, names, mark)
    else:
        file.pwritev([mark.encode()], 0)
        file.sync()
    return RecoveredLog(segments, end, mark, file)


def _read_mark(path: Path, disk: Disk) -> LogMark:
    file = disk.open(path / "mark")
    try:
        advice = (
            f"It is unknown whether the log is complete. Restore a copy of {path}; to continue "
            "with the existing data, remove this file"
        )
        return LogMark.decode(file.pread(MARK + 1, 0), path / "mark", advice)
    finally:
        file.close()


def _write_own_mark(path: Path, disk: Disk, names: list[str], mark: LogMark) -> DiskFile:
    """Replaces the mark durably by one in a new file, which is returned; on a full disk, the
    old file is."""
    new = path / "mark.new"
    if new.name in names:
        disk.remove(new)
    try:
        file = disk.create(new, MARK)
    except OSError as error:
        if error.errno in FULL and "mark" in names:
            return disk.open(path / "mark")  # a log on a full disk can still be read
        raise
    file.pwritev([mark.encode()], 0)
    file.sync()
    disk.rename(new, path / "mark")
    disk.sync(path)
    return file


def _list_begun_segments(path: Path, disk: Disk, numbers: list[int]) -> list[LogSegment]:
    """Returns the segments with a header; those at the end that have none hold nothing."""
    found: list[LogSegment] = []
    for number in numbers:
        name = segment_path(path, number)
        file = disk.open(name)
        size = file.size()
        header = SegmentHeader.decode(file.pread(HEADER, 0), name, _ADVICE.format(path))
        file.close()
        if header is None:
            continue
        if header.number != number:
            raise DataDirectoryError(
                f"{name} contains segment {header.number}, so it was renamed; give each file of "
                "the directory its original name"
            )
        found.append(LogSegment(number, header.base, size))
    return found


def _check_chain(path: Path, segments: list[LogSegment], mark: LogMark | None) -> None:
    """Checks that no segment is missing before the last, and that each is as long as the next one
    says."""
    if not segments:
        return
    first = segments[0].number if mark is None else mark.first
    for number, segment in enumerate(segments, first):
        if segment.number != number:
            raise DataDirectoryError(
                f"{segment_path(path, number)} or its header is missing. {_ADVICE.format(path)}"
            )
        if mark is not None and number == mark.number and segment.base != mark.base:
            why = f"it should begin at {mark.base}"
            raise damage_error(segment.path(path), segment.base, segment.base, why)
    for segment, after in pairwise(segments):
        stop = segment.base + segment.size - HEADER
        if not segment.base < after.base <= stop:
            raise damage_error(
                segment.path(path), segment.base, stop, f"it should continue to {after.base}"
            )


def _find_end(path: Path, disk: Disk, segments: list[LogSegment], mark: LogMark | None) -> int:
    """Returns where the sound records of the last segment end; drops segments without one."""
    end = None  # of the last segment, where it is known
    if mark is not None and segments and mark.number == segments[-1].number + 1:
        end = mark.base
    while segments:
        last = segments[-1]
        stop = last.base + last.size - HEADER if end is None else end
        file = disk.open(last.path(path))
        reached = last.base
        for position, record in walk_frames(file, last.base, last.base, stop):
            reached = position + FRAME + len(record)
        file.close()
        if end is not None and reached < end:
            raise damage_error(last.path(path), last.base, reached, f"it should continue to {end}")
        end = reached
        if end > last.base:
            break
        segments.pop()
    end = end or 0
    if mark is not None and end < mark.end:
        raise DataDirectoryError(
            f"{path}: the end of the log is damaged or missing: intact records end at position "
            f"{end}, but everything up to {mark.end} was acknowledged. Restore a copy; to "
            f"continue without the rest, remove {path / 'mark'}"
        )
    return end


def _settle_segment(
    last: LogSegment, path: Path, disk: Disk, end: int, mark: LogMark | None
) -> None:
    """Makes durable what was found in the last segment, and cuts off the rest.

    What lies above the mark is written again: a failed sync may have left it in memory alone,
    where it counts as written.
    """
    start = 0
    if mark is not None and mark.number >= last.number:
        start = mark.end - last.base  # a header's size before what the mark does not name
    file = disk.open(last.path(path))
    last.size = HEADER + end - last.base
    file.pwritev([file.pread(last.size - start, start)], start)
    file.truncate(last.size)
    file.sync()
    file.close()
