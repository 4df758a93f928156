"""Dispatchers of an archive that are not there: which of their objects a withdrawal concerns that
others note, and whether all of their objects are in the archive (docs/decisions/0032).

What a dispatcher accepted before it left has LSNs up to that of any withdrawal that is noted while
it is away, and what it accepts once it is there again has higher ones. So the LSN decides, also of
objects that are in its log still, and come into the archive when it is there again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ps2stream.archive.layout import (
    ENDED,
    ArchiveMark,
    ArchivePoint,
    CompactedManifest,
    encode_document,
    list_dispatchers,
    list_raw,
    read_document,
    read_mark,
)
from ps2stream.errors import InvalidArgument

ANY_LSN = (1 << 63) - 1
"""Stands for every LSN."""
_END = 1 << 62
"""Above any offset."""


class DepartedRows(NamedTuple):
    """Objects of a dispatcher that is not there: those below `point`, and of the series of the
    point only those with an LSN up to `lsn`."""

    partition: int
    point: ArchivePoint
    lsn: int

    def make_line(self, id: str) -> list[Any]:
        """Returns the line that withdraws those with this id."""
        return [*self.point, id, self.partition, None if self.lsn == ANY_LSN else self.lsn]


class FirstRows(NamedTuple):
    """The beginning of a dispatcher's objects that are not compacted, or that may still come: their
    point, and an LSN that those of the point's series and later ones reach."""

    point: ArchivePoint
    lsn: int


def find_departed(root: Path, first: int, lsn: int, identity: str) -> list[DepartedRows]:
    """Returns what the dispatchers from number `first` on have accepted before the LSN, as of which
    they were not there. identity: of a log of the same service. Raises OSError."""
    found = []
    for partition, folder in list_dispatchers(root):
        if partition < first:
            continue
        mark, top = _read_sound_mark(folder), lsn
        if mark is None:
            point = ArchivePoint(0, _END)
        else:
            # Of another service, whose LSNs are others, and which does not come back.
            top = lsn if _ledger_of(mark.identity) == _ledger_of(identity) else ANY_LSN
            is_all = read_ended(folder) == mark.point
            point = mark.point if is_all else ArchivePoint(mark.series, _END)
        found.append(DepartedRows(partition, point, top))
    return found


def find_first_rows(root: Path, manifest: CompactedManifest, but: int) -> Mapping[int, FirstRows]:
    """Returns where the objects begin that are not compacted, or may still come, of all dispatchers
    but one; those are left out that have none. Raises InvalidArgument, OSError."""
    found = {}
    for partition, folder in list_dispatchers(root):
        if partition == but:
            continue
        # The mark first: of what is written after it has been read, it has the lowest LSN.
        mark, ended = read_mark(folder), read_ended(folder)
        through = manifest.through.get(partition, ArchivePoint(0, -1))
        raw = [file for file in list_raw(folder) if file.reaches > through]
        if raw:
            point = ArchivePoint(raw[0].series, raw[0].first)
            found[partition] = FirstRows(point, _read_lowest_lsn(folder / raw[0].name))
        elif mark is None:
            found[partition] = FirstRows(ArchivePoint(0, 0), 0)
        elif ended != mark.point:
            found[partition] = FirstRows(mark.point, mark.lsn)
    return found


def note_ended(folder: Path, point: ArchivePoint, replace: Callable[[Path, bytes], None]) -> None:
    """Notes that all objects of a dispatcher's log are in the archive, which are those below its
    mark's point, and that no more come before another writer begins. Raises OSError."""
    replace(folder / ENDED, encode_document(point._asdict()))


def read_ended(folder: Path) -> ArchivePoint | None:
    """Returns the point below which all objects of a dispatcher's log are in the archive, if that
    is its mark's; None where it is not known to be so."""
    path = folder / ENDED
    try:
        return ArchivePoint(**read_document(path.read_bytes(), path))
    except (OSError, InvalidArgument, TypeError):
        return None


def forget_ended(folder: Path) -> None:
    """Notes that more may come. Raises OSError."""
    (folder / ENDED).unlink(missing_ok=True)


def _read_sound_mark(folder: Path) -> ArchiveMark | None:
    """Returns the mark of a dispatcher; None also if it is damaged, which readers report."""
    try:
        return read_mark(folder)
    except InvalidArgument:
        return None


def _ledger_of(identity: str) -> str:
    return identity.partition("-")[0]


def _read_lowest_lsn(path: Path) -> int:
    """Returns the lowest LSN of a file's objects, which have rising ones; 0 if it is not known."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ps2stream.archive.columns import SCHEMA  # pyarrow, which writers mostly do without

    try:
        group = pq.read_metadata(path).row_group(0)
        return int(group.column(SCHEMA.get_field_index("lsn")).statistics.min)
    except (OSError, AttributeError, pa.ArrowException):
        return 0
