"""Posts from Parquet files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.limits import BATCH_ROWS
from ps2stream.posts.arrow_columns import SCHEMA, post_column, post_columns
from ps2stream.posts.attribute_columns import check_payloads, choose_columns, convert_columns
from ps2stream.posts.members import AttributeChoice
from ps2stream.posts.post import KNOWN, bad

_BUFFER_BYTES = 1 << 18
"""How much of a column is read at a time; otherwise whole columns of a row group are."""
_pool_lock = Lock()


def open_parquet(path: str, file: IO[bytes]) -> Any:
    """Opens a Parquet file, whose columns are read into memory of the C library: Arrow's own
    allocator gives freed pages back to the kernel within milliseconds, and the next rows would wait
    for new ones. Raises InvalidArgument naming the file."""
    with _pool_lock:
        usual = pa.default_memory_pool()
        pa.set_memory_pool(pa.system_memory_pool())  # a reader keeps the pool that it starts with
        try:
            return pq.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise bad(path, f"expected a Parquet file: {error}") from None
        finally:
            pa.set_memory_pool(usual)


def read_parquet_posts(
    path: str,
    file: IO[bytes],
    batch: int,
    run: str,
    choice: AttributeChoice | None = None,
    complete: bool = True,
) -> Iterator[Any]:
    """Yields record batches of SCHEMA, as `readers.read_posts`; with a choice, also of the
    attributes, payload and until. complete: an absent id or time is made up, or left out."""
    source = file if file.seekable() else io.BytesIO(file.read())
    with open_parquet(path, source) as parquet:
        schema = parquet.schema_arrow
        columns = post_columns(path, schema)
        if choice is not None:
            choice.check_columns(path, schema.names)
        more = {} if choice is None else choose_columns(path, schema, KNOWN, choice)
        beside = [n for n in ("payload", "until") if choice is not None and n in schema.names]
        start = 0
        names = [*columns.values(), *more, *beside]
        known = [name for name in SCHEMA.names if complete or name in columns]
        for part in read_parquet_batches(path, parquet, batch, names):
            out = {n: post_column(path, n, columns, part, start, run) for n in known}
            if choice is not None:
                out |= convert_columns(path, more, part, start, choice)
            if "payload" in beside:
                out["payload"] = check_payloads(path, part, start)
            if "until" in beside:
                out["until"] = _check_ends(path, part.column("until"))
            start += len(part)
            yield pa.RecordBatch.from_arrays(list(out.values()), list(out))


def _check_ends(path: str, column: Any) -> Any:
    """Returns a column of ends. Raises InvalidArgument for one of another type."""
    if not (pa.types.is_timestamp(column.type) or pa.types.is_integer(column.type)):
        problem = f"expected timestamps or integers (Unix ms), got {column.type}"
        raise bad(f"{path} column until", problem)
    return column


def read_parquet_batches(
    path: str, parquet: Any, batch: int, names: Sequence[str]
) -> Iterator[Any]:
    """Yields some columns of a Parquet file. Raises InvalidArgument where it is damaged."""
    several = batch > 4 * BATCH_ROWS  # for fewer rows, other threads cost more than they save
    try:
        yield from parquet.iter_batches(batch, columns=list(names), use_threads=several)
    except (pa.ArrowException, OSError) as error:
        raise bad(path, f"expected a Parquet file that is whole: {error}") from None
