"""A segment log's directory as its last owner left it, checked and taken over.

What a crash leaves is told from damage by two witnesses: a header is written only when all
before it is durable, and the mark names what had been synced. The mark is written in place
and not synced, so it may stay behind but is never ahead.

Each owner first puts a mark of its own in the place of the last one. A process that was
stopped while it had the log finds that out after its next sync, and acknowledges nothing.
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
from ps2stream.store.disk import FULL, Disk, File
from ps2stream.store.frames import FRAME, HEADER, MARK, Header, Mark, walk

_NAME = re.compile(r"([0-9]{12})\.segment")
_ADVICE = "Restore a copy of {}; to go on without what it holds, move it away"


@dataclasses.dataclass(slots=True, eq=False)
class Segment:
    """A file of the log; `size` in bytes. `file` is open while there may be something to
    write, `begun` is whether the header is written."""

    number: int
    base: int
    size: int
    file: File | None = None
    begun: bool = True

    def path(self, directory: Path) -> Path:
        return segment_path(directory, self.number)


@dataclasses.dataclass(slots=True, eq=False)
class Found:
    """A directory taken over: its segments, where they end, the new owner's mark."""

    segments: list[Segment]
    end: int
    mark: Mark
    mark_file: File


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"{number:012}.segment"


def damaged(path: Path, base: int, position: int, why: str) -> DataDirectoryError:
    """The segment `path`, which begins at `base`, is not sound at `position`."""
    return DataDirectoryError(
        f"{path}: the log is damaged at position {position} (byte {HEADER + position - base} of "
        f"the file): {why}. {_ADVICE.format(path.parent)}"
    )


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """An OSError becomes a DataDirectoryError that names the file."""
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


def take_over(path: Path, disk: Disk) -> Found:
    """Check the directory, which is locked, then make it the caller's.

    Raises DataDirectoryError when something that was synced is damaged or missing, and the
    directory is as it was then; Unavailable when the disk is too full to begin.
    """
    try:
        return _take_over(path, disk)
    except OSError as error:
        if error.errno in FULL:
            raise Unavailable(f"the log {path} cannot be opened: {error.strerror}") from error
        why = explain_denial(path, error)
        raise DataDirectoryError(f"{path} cannot be used: {why}") from error


def _take_over(path: Path, disk: Disk) -> Found:
    names = disk.list(path)
    mark = file = None
    if "mark" in names:
        mark = _read_mark(path, disk)
        file = _own_mark(path, disk, names, mark)
        names = disk.list(path)  # from here on nobody else is acknowledged anything
    numbers = sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))
    segments = _begun(path, disk, [n for n in numbers if mark is None or n >= mark.first])
    _check_chain(path, segments, mark)
    end = _find_end(path, disk, segments, mark)

    for number in numbers:
        if not segments or not segments[0].number <= number <= segments[-1].number:
            disk.remove(segment_path(path, number))  # trimmed, or never begun
    if segments:
        _settle(segments[-1], path, disk, end, mark)
    number = segments[-1].number + 1 if segments else 1
    mark = Mark(segments[0].number if segments else number, number, end, end)
    if file is None:
        file = _own_mark(path, disk, names, mark)
    else:
        file.pwritev([mark.encode()], 0)
        file.sync()
    return Found(segments, end, mark, file)


def _read_mark(path: Path, disk: Disk) -> Mark:
    file = disk.open(path / "mark")
    try:
        advice = (
            f"Whether the log is whole cannot be known. Restore a copy of {path}; to go on with "
            "what there is, remove this file"
        )
        return Mark.decode(file.pread(MARK + 1, 0), path / "mark", advice)
    finally:
        file.close()


def _own_mark(path: Path, disk: Disk, names: list[str], mark: Mark) -> File:
    """The mark in a new file under the old name, durable."""
    new = path / "mark.new"
    if new.name in names:
        disk.remove(new)
    try:
        file = disk.create(new, MARK)
    except OSError as error:
        if error.errno in FULL and "mark" in names:
            return disk.open(path / "mark")  # on a full disk one can still read
        raise
    file.pwritev([mark.encode()], 0)
    file.sync()
    disk.rename(new, path / "mark")
    disk.sync(path)
    return file


def _begun(path: Path, disk: Disk, numbers: list[int]) -> list[Segment]:
    """The segments with a header; those at the end that have none hold nothing."""
    found: list[Segment] = []
    for number in numbers:
        name = segment_path(path, number)
        file = disk.open(name)
        size = file.size()
        header = Header.decode(file.pread(HEADER, 0), name, _ADVICE.format(path))
        file.close()
        if header is None:
            continue
        if header.number != number:
            raise DataDirectoryError(
                f"{name} is segment {header.number} under the name of another; name each file "
                "of the directory as it was"
            )
        found.append(Segment(number, header.base, size))
    return found


def _check_chain(path: Path, segments: list[Segment], mark: Mark | None) -> None:
    """No segment is missing before the last, and each is as long as the next one says."""
    if not segments:
        return
    first = segments[0].number if mark is None else mark.first
    for number, segment in enumerate(segments, first):
        if segment.number != number:
            raise DataDirectoryError(
                f"{segment_path(path, number)} is missing, or its header. {_ADVICE.format(path)}"
            )
        if mark is not None and number == mark.number and segment.base != mark.base:
            why = f"it should begin at {mark.base}"
            raise damaged(segment.path(path), segment.base, segment.base, why)
    for segment, after in pairwise(segments):
        stop = segment.base + segment.size - HEADER
        if not segment.base < after.base <= stop:
            raise damaged(
                segment.path(path), segment.base, stop, f"it should go on to {after.base}"
            )


def _find_end(path: Path, disk: Disk, segments: list[Segment], mark: Mark | None) -> int:
    """Where the sound records of the last segment end; segments without one are dropped."""
    end = None  # that of the last segment, once it is known
    if mark is not None and segments and mark.number == segments[-1].number + 1:
        end = mark.base
    while segments:
        last = segments[-1]
        stop = last.base + last.size - HEADER if end is None else end
        file = disk.open(last.path(path))
        reached = last.base
        for position, record in walk(file, last.base, last.base, stop):
            reached = position + FRAME + len(record)
        file.close()
        if end is not None and reached < end:
            raise damaged(last.path(path), last.base, reached, f"it should go on to {end}")
        end = reached
        if end > last.base:
            break
        segments.pop()
    end = end or 0
    if mark is not None and end < mark.end:
        raise DataDirectoryError(
            f"{path}: the end of the log is damaged or missing: sound records end at position "
            f"{end}, and all up to {mark.end} was acknowledged. Restore a copy; to go on without "
            f"the rest, remove {path / 'mark'}"
        )
    return end


def _settle(last: Segment, path: Path, disk: Disk, end: int, mark: Mark | None) -> None:
    """Make durable what was found in the last segment, and cut off the rest.

    What lies above the mark is written again: a failed sync may have left it in memory alone,
    where it counts as written.
    """
    start = 0
    if mark is not None and mark.number >= last.number:
        start = mark.end - last.base  # that is a header's size before what it does not name
    file = disk.open(last.path(path))
    last.size = HEADER + end - last.base
    file.pwritev([file.pread(last.size - start, start)], start)
    file.truncate(last.size)
    file.sync()
    file.close()
