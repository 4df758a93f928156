"""Posts from Parquet files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.posts.arrow_columns import SCHEMA, post_column, post_columns
from ps2stream.posts.post import bad


def open_parquet(path: str, file: IO[bytes]) -> Any:
    """Opens a Parquet file. Raises InvalidArgument naming it."""
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise bad(path, f"expected a Parquet file: {error}") from None


def read_parquet_posts(path: str, file: IO[bytes], batch: int, run: str) -> Iterator[Any]:
    """Yields record batches of SCHEMA, as `readers.read_posts`."""
    source = file if file.seekable() else io.BytesIO(file.read())
    with open_parquet(path, source) as parquet:
        columns = post_columns(path, parquet.schema_arrow)
        start = 0
        for part in read_parquet_batches(path, parquet, batch, list(columns.values())):
            out = [post_column(path, name, columns, part, start, run) for name in SCHEMA.names]
            start += len(part)
            yield pa.RecordBatch.from_arrays(out, schema=SCHEMA)


def read_parquet_batches(
    path: str, parquet: Any, batch: int, names: Sequence[str]
) -> Iterator[Any]:
    """Yields some columns of a Parquet file. Raises InvalidArgument where it is damaged."""
    try:
        yield from parquet.iter_batches(batch, columns=list(names))
    except (pa.ArrowException, OSError) as error:
        raise bad(path, f"expected a Parquet file that is whole: {error}") from None
