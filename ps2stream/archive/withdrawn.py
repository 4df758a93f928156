"""Withdrawn objects of an archive: lines that a dispatcher's writer appends, and what readers leave
out because of them (docs/decisions/0032).

A line `[series, offset, id]` says that the objects of this dispatcher with this stored id below the
point (series, offset) are withdrawn. An object that came later under the same id is not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ps2stream.archive.layout import (
    WITHDRAWN,
    ArchivePoint,
    ArchiveSnapshot,
    describe_missing,
    dispatcher_folder,
)
from ps2stream.errors import invalid
from ps2stream.tenants import own, under

NEEDED = ("partition", "series", "offset", "tenant", "id")
"""Columns by which withdrawn objects are recognised."""


class WithdrawnObjects(NamedTuple):
    """What is withdrawn of an archive: for each dispatcher and stored id the point below which."""

    points: Mapping[tuple[int, str], ArchivePoint]

    def keep(self, part: Any) -> Any:
        """Returns the rows of a batch or table, with the columns NEEDED, that are not withdrawn."""
        if not self.points:
            return part
        names = pa.array(sorted(set(own([id for _, id in self.points]))), pa.string())
        is_maybe = pc.is_in(part.column("id"), value_set=names)
        maybe = np.flatnonzero(np.asarray(is_maybe))
        found = [part.column(name).take(pa.array(maybe)).to_pylist() for name in NEEDED]
        is_kept = np.ones(part.num_rows, np.bool_)
        for row, partition, series, offset, tenant, name in zip(maybe, *found, strict=True):
            point = self.points.get((partition, under(tenant, name)))
            is_kept[row] = point is None or ArchivePoint(series, offset) >= point
        return part if is_kept.all() else part.filter(pa.array(is_kept))

    def touches(self, path: Path) -> bool:
        """Returns whether a file has a withdrawn object. Raises InvalidArgument."""
        if not self.points:
            return False
        try:
            with pq.ParquetFile(path) as file:
                parts = file.iter_batches(65_536, columns=list(NEEDED))
                return any(self.keep(part).num_rows < part.num_rows for part in parts)
        except FileNotFoundError:
            raise describe_missing(path) from None


def read_withdrawn(snapshot: ArchiveSnapshot) -> WithdrawnObjects:
    """Returns what is withdrawn of an archive. Raises InvalidArgument."""
    points: dict[tuple[int, str], ArchivePoint] = {}
    for mark in snapshot.marks:
        path = dispatcher_folder(snapshot.path, mark.partition) / WITHDRAWN
        for series, offset, id in _read_lines(path):
            key, point = (mark.partition, id), ArchivePoint(series, offset)
            points[key] = max(point, points.get(key, point))
    return WithdrawnObjects(points)


def append_withdrawn(folder: Path, point: ArchivePoint, ids: Iterable[str]) -> None:
    """Appends that the objects with these stored ids below a point are withdrawn; durable when it
    returns. A line that a crash has cut off is ended, so that it counts for nothing. Raises
    OSError."""
    path = folder / WITHDRAWN
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(opened, "a+b") as file:
        if size := os.fstat(opened).st_size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        lines = (json.dumps([*point, id], ensure_ascii=True) + "\n" for id in ids)
        file.write("".join(lines).encode())
        file.flush()
        os.fsync(opened)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read_lines(path: Path) -> Iterator[tuple[int, int, str]]:
    """Yields the lines of a file that are whole; none where there is no file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise invalid(str(path), f"cannot be read: {error.strerror}") from None
    for line in data.split(b"\n"):
        try:
            series, offset, id = json.loads(line)
        except (ValueError, TypeError):
            continue  # of a writer that was killed, which writes it again
        yield series, offset, id
