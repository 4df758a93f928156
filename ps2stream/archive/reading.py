"""Reading an archive: its objects as Arrow batches, each object once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.archive.layout import describe_missing, read_snapshot
from ps2stream.errors import invalid


def list_files(path: str) -> list[str]:
    """Returns the files of an archive that together have each of its objects once, as paths for
    pyarrow and Spark alike. Raises InvalidArgument."""
    return [str(file) for file in read_snapshot(path).files]


def read_batches(path: str, columns: Sequence[str], rows: int = 50_000) -> Iterator[Any]:
    """Yields these columns of all objects of an archive, at most `rows` at a time: by hour and cell
    what is compacted, then by dispatcher and offset. Raises InvalidArgument."""
    for name in list_files(path):
        try:
            with pq.ParquetFile(name) as file:
                yield from file.iter_batches(rows, columns=list(columns))
        except FileNotFoundError:
            raise describe_missing(Path(name)) from None
        except (pa.ArrowException, OSError) as error:
            raise invalid(name, f"cannot be read: {error}") from None


def count_rows(path: str) -> int:
    """Returns the number of objects in an archive. Raises InvalidArgument."""
    try:
        return sum(int(pq.read_metadata(name).num_rows) for name in list_files(path))
    except FileNotFoundError as error:
        raise describe_missing(Path(str(error.filename or path))) from None
    except (pa.ArrowException, OSError) as error:
        raise invalid(path, f"cannot be read: {error}") from None
