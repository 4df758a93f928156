"""Reading an archive: its objects as Arrow batches, each object once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.archive.columns import SCHEMA
from ps2stream.archive.layout import describe_missing
from ps2stream.archive.withdrawn import NEEDED, WithdrawnObjects, read_archive
from ps2stream.errors import invalid


def read_batches(path: str, columns: Sequence[str], rows: int = 50_000) -> Iterator[Any]:
    """Yields these columns of all objects of an archive, at most `rows` at a time: by hour and cell
    what is compacted, then by dispatcher and offset. Withdrawn ones are left out. Raises
    InvalidArgument."""
    snapshot, withdrawn = read_archive(path)
    yield from read_files(snapshot.files, withdrawn, columns, rows)


def read_files(
    files: Sequence[Path], withdrawn: WithdrawnObjects | None, columns: Sequence[str], rows: int
) -> Iterator[Any]:
    """Yields the same of some files of an archive, in their order. withdrawn: None if nothing is.
    Raises InvalidArgument."""
    wanted = list(columns)
    read = [*wanted, *(name for name in NEEDED if name not in wanted)]
    for name in map(str, files):
        try:
            with pq.ParquetFile(name, page_checksum_verification=True) as file:
                _check_schema(name, file.schema_arrow, read if withdrawn else wanted)
                left = file.metadata.num_rows
                for part in file.iter_batches(rows, columns=read if withdrawn else wanted):
                    left -= part.num_rows
                    yield withdrawn.keep(part).select(wanted) if withdrawn else part
            if left:  # a page whose head is damaged is passed over
                raise invalid(name, f"is damaged: {left} of its objects are missing")
        except FileNotFoundError:
            raise describe_missing(Path(name)) from None
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise invalid(name, f"cannot be read: {error}") from None


def _check_schema(name: str, found: pa.Schema, columns: Sequence[str]) -> None:
    """No checksum of Parquet covers the names and types of columns."""
    for column in columns:
        at = found.get_field_index(column)
        known = SCHEMA.field(column).type if column in SCHEMA.names else None  # of counts of terms
        if at < 0 or known not in (None, found.field(at).type):
            raise invalid(name, f"is damaged: it has no column {column} of its type")


def count_rows(path: str) -> int:
    """Returns the number of objects in an archive, without withdrawn ones. Raises
    InvalidArgument."""
    snapshot, withdrawn = read_archive(path)
    if withdrawn:
        return sum(part.num_rows for part in read_batches(path, ["offset"]))
    try:
        return sum(int(pq.read_metadata(name).num_rows) for name in snapshot.files)
    except FileNotFoundError as error:
        raise describe_missing(Path(str(error.filename or path))) from None
    except (pa.ArrowException, OSError) as error:
        raise invalid(path, f"cannot be read: {error}") from None
