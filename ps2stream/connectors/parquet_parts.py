"""Parts of Parquet files, read as the record batches of a pipeline's partition without Spark.

What a part holds depends on the files' names and sizes alone, so that a micro-batch that is read
again has the same rows in the same partitions and order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.errors import FailedPrecondition
from ps2stream.limits import BATCH_ROWS
from ps2stream.posts.post import bad

PART_BYTES = 4 << 20
"""Fewest bytes of files for which another partition is worth its task."""


class FilePart(NamedTuple):
    """The row groups of a file whose middle lies in the bytes [start, end). size: of the file, in
    bytes; modified_ms: when it was changed last, in Unix ms. Both as they were when it was
    listed."""

    path: str
    size: int
    modified_ms: int
    start: int
    end: int


class ColumnSource(NamedTuple):
    """A column to be read: the name that it is given, its name in the file, its type."""

    name: str
    source: str
    kind: Any


def split_files(files: Iterable[tuple[str, int, int]], most: int) -> list[list[FilePart]]:
    """Divides files of (path, size, modified_ms) into at most `most` partitions of about equally
    many bytes, in the order of the paths; empty files are left out, as Spark does."""
    ordered = sorted(file for file in files if file[1])
    total = sum(size for _, size, _ in ordered)
    if not total:
        return []
    count = min(most, -(-total // PART_BYTES))
    found: list[list[FilePart]] = [[] for _ in range(count)]
    before = 0
    for path, size, modified_ms in ordered:
        first, last = before * count // total, (before + size - 1) * count // total
        for number in range(first, last + 1):
            # The byte from which on `byte * count // total` is `number`.
            start = max(-(-number * total // count) - before, 0)
            end = min(-(-(number + 1) * total // count) - before, size)
            found[number].append(FilePart(path, size, modified_ms, start, end))
        before += size
    return [parts for parts in found if parts]


def read_parts(
    parts: Iterable[FilePart], columns: Sequence[ColumnSource]
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of parts, in their order, in batches of at most BATCH_ROWS. A column that a
    file does not have is null, as in Spark. Raises FailedPrecondition for a file that is gone or
    changed since it was listed, InvalidArgument for one that cannot be read as these columns."""
    for part in parts:
        _check_unchanged(part)
        try:
            with pq.ParquetFile(part.path) as file:
                groups = _find_groups(file.metadata, part)
                if groups:
                    yield from _read_groups(file, part.path, groups, columns)
        except (pa.ArrowException, OSError) as error:
            _check_unchanged(part)
            raise bad(part.path, f"cannot be read as Parquet: {error}") from None
        _check_unchanged(part)


def _check_unchanged(part: FilePart) -> None:
    try:
        found = Path(part.path).stat()
    except FileNotFoundError:
        raise FailedPrecondition(
            f"{part.path} is gone since Spark listed it: files of the source must stay as they are"
        ) from None
    modified_ms = found.st_mtime_ns // 1_000_000
    if part.modified_ms % 1000 == 0:  # as Java has it where it knows no milliseconds
        modified_ms -= modified_ms % 1000
    if found.st_size != part.size or modified_ms != part.modified_ms:
        raise FailedPrecondition(
            f"{part.path} was changed since Spark listed it: files of the source must stay as they "
            "are; write a file elsewhere and move it in as a whole"
        )


def _find_groups(metadata: Any, part: FilePart) -> list[int]:
    """Returns the row groups of a part: those whose middle lies in it, so that each is in one."""
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        first = group.column(0)
        offsets = [first.data_page_offset, first.dictionary_page_offset]
        start = min(offset for offset in offsets if offset)
        size = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
        if part.start <= min(start + size // 2, part.size - 1) < part.end:
            found.append(number)
    return found


def _read_groups(
    file: Any, path: str, groups: list[int], columns: Sequence[ColumnSource]
) -> Iterator[pa.RecordBatch]:
    names = _find_names(path, file.schema_arrow.names, columns)
    wanted = list(dict.fromkeys(n for n in names if n is not None))
    for part in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=wanted):
        found = []
        for column, name in zip(columns, names, strict=True):
            if name is None:
                found.append(pa.nulls(len(part), column.kind))
            else:
                found.append(_cast_column(path, name, part.column(name), column.kind))
        yield pa.RecordBatch.from_arrays(found, [column.name for column in columns])


def _find_names(
    path: str, there: Sequence[str], columns: Sequence[ColumnSource]
) -> list[str | None]:
    """Returns the file's name of each column, in whatever case, as Spark finds it."""
    found: list[str | None] = []
    for column in columns:
        alike = [name for name in there if name.lower() == column.source.lower()]
        if column.source in alike:
            alike = [column.source]
        if len(alike) > 1:
            raise bad(path, f"has columns {', '.join(alike)}; expected one {column.source}")
        if not alike and f"/{column.source}=" in path:
            raise bad(
                path, f"has {column.source} in the names of folders, which Spark reads: set "
                "reader to spark"
            )  # fmt: skip
        found.append(alike[0] if alike else None)
    return found


def _cast_column(path: str, name: str, values: Any, kind: Any) -> Any:
    if values.type == kind:
        return values
    try:
        if pa.types.is_timestamp(kind):
            if pa.types.is_date(values.type):
                values = values.cast(pa.timestamp(kind.unit))
            return values.cast(kind, safe=False)  # which leaves out what is below microseconds
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise bad(f"{path} column {name}", f"expected {kind}, got {values.type}: {error}") from None
