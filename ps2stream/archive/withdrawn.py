"""Withdrawn objects of an archive: lines that a dispatcher's writer appends, and what readers leave
out because of them (docs/decisions/0032).

A line `[series, offset, id]` says that the objects of this dispatcher with this id below the point
(series, offset) are withdrawn. An object that came later under the same id is not. A line
`[series, offset, id, partition, lsn]` says that of another dispatcher, which was not there: of this
series only up to this LSN, or all where it is null (departed.py). Lines are numbered from 0. Those
that no file needs any more are removed from the beginning; then the first line of the file is
`[n]`, the number of the next one.
"""

from __future__ import annotations

import json
import logging
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ps2stream.archive.departed import ANY_LSN, DepartedRows, FirstRows
from ps2stream.archive.layout import (
    WITHDRAWN,
    ArchivePoint,
    ArchiveSnapshot,
    CompactedManifest,
    RawFile,
    describe_missing,
    dispatcher_folder,
    read_manifest,
    read_snapshot,
)
from ps2stream.errors import invalid
from ps2stream.protocol.frame import I64, U8, U64
from ps2stream.protocol.id_sets import hash_ids

log = logging.getLogger("ps2stream.archive")
NEEDED = ("partition", "series", "offset", "lsn", "id")
"""Columns by which withdrawn objects are recognised."""
_ATTEMPTS = 100
_NEVER = FirstRows(ArchivePoint(np.iinfo(np.int64).max, 0), ANY_LSN)


class WithdrawnLine(NamedTuple):
    """A line of a file: its number, its last byte's successor, its bytes, and what it says; the id
    is None for one that a crash has cut off or that is damaged, which counts for nothing. The
    partition is None for the dispatcher whose file it is."""

    number: int
    end: int
    data: bytes
    point: ArchivePoint
    id: str | None
    partition: int | None = None
    lsn: int = ANY_LSN


class NeededLines(NamedTuple):
    """Which lines of a dispatcher some file of the archive still needs: those from number `first`
    on, which what is compacted may not know, and those with a point beyond `below`, where the files
    begin that are not compacted. others: where those of each other dispatcher begin."""

    first: float
    below: ArchivePoint
    others: Mapping[int, FirstRows] = MappingProxyType({})

    def has(self, line: WithdrawnLine) -> bool:
        """Returns whether the line is needed."""
        if line.id is None:
            return False
        if line.number >= self.first:
            return True
        if line.partition is None:
            return line.point > self.below
        first = self.others.get(line.partition, _NEVER)
        is_later = first.point.series >= line.point.series and first.lsn > line.lsn
        return line.point > first.point and not is_later


class WithdrawnObjects(NamedTuple):
    """What is withdrawn of an archive: of each of n lines the dispatcher, the id, its hash, by
    which they are sorted, the point below which its objects are withdrawn, and the LSN up to which
    they are, of the series of the point. counts: by dispatcher how many lines its file has or had,
    so that these are the lines below that number."""

    hashes: U64
    partition: I64
    series: I64
    offset: I64
    lsn: I64
    ids: Any
    counts: Mapping[int, int]

    def __bool__(self) -> bool:
        return len(self.hashes) > 0

    def keep(self, part: Any) -> Any:
        """Returns the rows of a batch or table, with the columns NEEDED, that are not withdrawn."""
        if not self:
            return part
        names = part.column("id")
        hashes = _hash_names(names)
        first = np.searchsorted(self.hashes, hashes, "left")
        end = np.searchsorted(self.hashes, hashes, "right")
        maybe = np.flatnonzero(first < end)
        found = [part.column(name).take(pa.array(maybe)).to_pylist() for name in NEEDED]
        is_kept = np.ones(part.num_rows, np.bool_)
        for row, partition, series, offset, lsn, name in zip(maybe.tolist(), *found, strict=True):
            is_kept[row] = not any(
                self.partition[line] == partition
                and (series, offset) < (self.series[line], self.offset[line])
                and (series < self.series[line] or lsn <= self.lsn[line])
                and self.ids[line].as_py() == name
                for line in range(first[row], end[row])
            )
        return part if is_kept.all() else part.filter(pa.array(is_kept))

    def touches(self, path: Path) -> bool:
        """Returns whether a file has a withdrawn object. Raises InvalidArgument."""
        if not self:
            return False
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                parts = file.iter_batches(65_536, columns=list(NEEDED))
                return any(self.keep(part).num_rows < part.num_rows for part in parts)
        except FileNotFoundError:
            raise describe_missing(path) from None


def read_archive(path: str | Path) -> tuple[ArchiveSnapshot, WithdrawnObjects]:
    """Reads what is in an archive, and what is withdrawn of that. Raises InvalidArgument."""
    for _ in range(_ATTEMPTS):
        snapshot = read_snapshot(path)
        withdrawn = read_withdrawn(snapshot)
        # Lines that a compaction has made needless may have been removed before they were read.
        if read_manifest(snapshot.path).generation == snapshot.manifest.generation:
            return snapshot, withdrawn
    raise invalid(str(path), "is compacted again and again; try again")


def read_withdrawn(snapshot: ArchiveSnapshot) -> WithdrawnObjects:
    """Returns what is withdrawn of the files of an archive, while nobody compacts it. Logs lines
    that are damaged. Raises InvalidArgument."""
    numbers: tuple[array[int], ...] = array("q"), array("q"), array("q"), array("q")
    ids: list[str] = []
    counts: dict[int, int] = {}
    raw: dict[int, list[RawFile]] = {mark.partition: [] for mark in snapshot.marks}
    for partition, path in snapshot.raw:
        if (file := RawFile.parse(path.name)) is not None:
            raw[partition].append(file)
    manifest = snapshot.manifest
    others = {p: FirstRows(_find_begin(manifest, p, files), 0) for p, files in raw.items()}
    for mark in snapshot.marks:
        needed = find_needed(manifest, mark.partition, raw[mark.partition], others)
        path = dispatcher_folder(snapshot.path, mark.partition) / WITHDRAWN
        is_damaged = False
        for line in read_lines(path):
            counts[mark.partition] = line.number + 1
            is_damaged |= line.id is None
            if line.id is not None and needed.has(line):
                of = mark.partition if line.partition is None else line.partition
                for column, value in zip(numbers, (of, *line.point, line.lsn), strict=True):
                    column.append(value)
                ids.append(line.id)
        if is_damaged and (unread := find_damaged(path)):
            log.warning("%s", describe_damage(path, unread))
    names = pa.array(ids, pa.string())
    hashes = _hash_names(names)
    order = np.argsort(hashes, kind="stable")
    of_line, series, offset, lsn = (np.array(column, np.int64)[order] for column in numbers)
    names = names.take(pa.array(order))
    return WithdrawnObjects(hashes[order], of_line, series, offset, lsn, names, counts)


def find_needed(
    manifest: CompactedManifest,
    partition: int,
    raw: Iterable[RawFile],
    others: Mapping[int, FirstRows] = MappingProxyType({}),
) -> NeededLines:
    """Returns which lines of a dispatcher are needed. raw: its files, compacted or not, and what it
    has yet to write; others: where what others have, and is not compacted, begins."""
    known = manifest.withdrawn.get(partition, 0) if manifest.generation else np.inf
    return NeededLines(known, _find_begin(manifest, partition, raw), others)


def _find_begin(
    manifest: CompactedManifest, partition: int, raw: Iterable[RawFile]
) -> ArchivePoint:
    through = manifest.through.get(partition, ArchivePoint(0, -1))
    begins = [ArchivePoint(f.series, f.first) for f in raw if f.reaches > through]
    return min(begins, default=_NEVER.point)


def append_withdrawn(
    folder: Path, point: ArchivePoint, ids: Iterable[str], departed: Sequence[DepartedRows] = ()
) -> None:
    """Appends that the objects with these ids below a point are withdrawn, and those of dispatchers
    that are not there; durable when it returns. A line that a crash has cut off is ended, so that
    it counts for nothing. Raises OSError."""
    path = folder / WITHDRAWN
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(opened, "a+b") as file:
        if size := os.fstat(opened).st_size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        lines = [
            json.dumps(line) + "\n"
            for id in ids
            for line in ([*point, id], *(rows.make_line(id) for rows in departed))
        ]
        file.write("".join(lines).encode())
        file.flush()
        os.fsync(opened)
    _sync_folder(folder)


def find_needless(path: Path, needed: NeededLines) -> tuple[int, int]:
    """Returns the number of the first line of a file that is needed, and the byte where it begins;
    (0, 0) unless it is worth it to remove those before, as they are half of the file. Raises
    InvalidArgument."""
    number = end = 0
    for line in read_lines(path):
        if needed.has(line):
            break
        number, end = line.number + 1, line.end
    return (number, end) if end and 2 * end >= path.stat().st_size else (0, 0)


def remove_lines(path: Path, number: int, end: int, replace: Callable[[Path, bytes], None]) -> None:
    """Removes the lines of a file before this number, which begins at this byte. replace: replaces
    a file as a whole, durably, so that whoever is killed, they are all there or none. Raises
    OSError."""
    _sync_folder(path.parent)  # files that needed them stay gone
    with path.open("rb") as file:
        file.seek(end)
        replace(path, b"[%d]\n" % number + file.read())


def find_damaged(path: Path) -> list[int]:
    """Returns the numbers of whole lines of a file that cannot be read, so that what they withdrew
    is not withdrawn. The beginning of a line that a killed writer left is none of them: the writer
    wrote it again behind. Raises InvalidArgument."""
    unread: dict[int, bytes] = {}
    for line in read_lines(path):
        if line.id is None:
            unread[line.number] = line.data.rstrip(b"\n\0")  # a power cut may leave zeros
        elif unread:
            again = [n for n, begin in unread.items() if line.data.startswith(begin)]
            for number in again:
                del unread[number]
    return [*unread]


def describe_damage(path: Path, numbers: Sequence[int]) -> str:
    """Returns what damaged lines of a file mean, and what to do."""
    which = ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")
    return (
        f"{path}: {len(numbers)} damaged, number {which} (from 0), so what they withdrew is read "
        "again; restore the file, or withdraw these ids once more"
    )


def read_lines(path: Path) -> Iterator[WithdrawnLine]:
    """Yields the whole lines of a file; none where there is no file. Raises InvalidArgument."""
    number = end = 0
    try:
        with path.open("rb") as file:
            for data in file:
                if not data.endswith(b"\n"):
                    return  # it is being written, or was cut off
                is_first, end = not end, end + len(data)
                match _parse_line(data):
                    case [int() as series, int() as offset, str() as id]:
                        yield WithdrawnLine(number, end, data, ArchivePoint(series, offset), id)
                    case [
                        int() as series,
                        int() as offset,
                        str() as id,
                        int() as of,
                        int() | None as top,
                    ]:
                        point, lsn = ArchivePoint(series, offset), ANY_LSN if top is None else top
                        yield WithdrawnLine(number, end, data, point, id, of, lsn)
                    case [int() as begins] if is_first:
                        number = begins
                        continue
                    case _:  # of a writer that was killed, which writes it again; or damaged
                        yield WithdrawnLine(number, end, data, ArchivePoint(0, 0), None)
                number += 1
    except FileNotFoundError:
        return
    except OSError as error:
        raise invalid(str(path), f"cannot be read: {error.strerror}") from None


def _parse_line(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _hash_names(names: Any) -> U64:
    """Returns hash_ids of an Arrow column of strings."""
    if isinstance(names, pa.ChunkedArray):
        names = names.combine_chunks()
    names = names.cast(pa.string())
    sizes = np.asarray(pc.binary_length(names), np.int64)
    off = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    joined: U8 = np.zeros(0, np.uint8)
    if off[-1]:
        raw = np.frombuffer(names.buffers()[1], np.int32)[names.offset :]
        joined = np.frombuffer(names.buffers()[2], np.uint8)[raw[0] : raw[0] + off[-1]]
    return hash_ids(off, joined)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
