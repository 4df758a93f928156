"""Reading an archive: its objects as Arrow batches, each object once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

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
            with pq.ParquetFile(name) as file:
                if not withdrawn:
                    yield from file.iter_batches(rows, columns=wanted)
                    continue
                for part in file.iter_batches(rows, columns=read):
                    yield withdrawn.keep(part).select(wanted)
        except FileNotFoundError:
            raise describe_missing(Path(name)) from None
        except (pa.ArrowException, OSError) as error:
            raise invalid(name, f"cannot be read: {error}") from None


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
