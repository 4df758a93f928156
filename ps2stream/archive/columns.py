"""The columns of an archive's files, and their conversion from a dispatcher's objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ps2stream.protocol.frame import I64, U8
from ps2stream.protocol.opaque import split_opaque
from ps2stream.protocol.rows import ObjectRows

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),  # the dispatcher
        pa.field("series", pa.int32(), nullable=False),  # with it and the offset, the object
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("lsn", pa.int64(), nullable=False),  # as of which it was matched
        pa.field("archived", pa.int64(), nullable=False),  # Unix ms; at most delay_s late
        pa.field("id", pa.string(), nullable=False),  # the publisher's
        pa.field("time", pa.int64(), nullable=False),  # Unix ms
        pa.field("until", pa.int64()),  # Unix ms; the end of its validity
        pa.field("lon", pa.float64(), nullable=False),
        pa.field("lat", pa.float64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("attributes", pa.binary()),  # an Attributes message of object.proto
        pa.field("payload", pa.binary()),  # a Payload message of object.proto
    ]
)


REPEATED = ("partition", "series", "lsn", "archived", "until")
"""Columns with few values in a file; a dictionary of any other would only take time."""


class ArchivedBatch(NamedTuple):
    """A batch of objects as their log has it: the offset of the first one, the LSN of all, and
    the columns."""

    offset: int
    lsn: int
    rows: ObjectRows


def make_table(
    batches: Sequence[ArchivedBatch], partition: int, series: int, archived_ms: int
) -> Any:
    """Returns a table of SCHEMA of batches, at least one, by rising offset."""
    rows = ObjectRows.concat([_without_terms(batch.rows) for batch in batches])
    sizes = [len(batch.rows) for batch in batches]
    n = len(rows)
    offsets = [np.arange(b.offset, b.offset + k) for b, k in zip(batches, sizes, strict=True)]
    opaque = split_opaque(rows.opaque_off, rows.opaque, n)
    until = rows.until if len(rows.until) else np.zeros(n, np.int64)
    columns = {
        "partition": np.full(n, partition, np.int32),
        "series": np.full(n, series, np.int32),
        "offset": np.concatenate(offsets),
        "lsn": np.repeat([batch.lsn for batch in batches], sizes).astype(np.int64),
        "archived": np.full(n, archived_ms, np.int64),
        "id": make_ragged(pa.string(), rows.id_off, rows.id),
        "time": rows.time,
        "until": pa.array(until, mask=until == 0),
        "lon": rows.lon,
        "lat": rows.lat,
        "text": make_ragged(pa.string(), rows.text_off, rows.text),
        "attributes": _absent_if_empty(opaque.attributes_off, opaque.attributes),
        "payload": _absent_if_empty(opaque.payload_off, opaque.payload),
    }
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def make_ragged(kind: Any, off: I64, data: U8) -> Any:
    """Returns a ragged column of at most 2 GiB as an Arrow column of strings or bytes."""
    buffers = [None, pa.py_buffer(off.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(kind, len(off) - 1, buffers)


def _without_terms(rows: ObjectRows) -> ObjectRows:
    """Returns rows of a log, which have no terms, as those of objects that have none."""
    return rows.with_terms(np.zeros(len(rows) + 1, np.int64), np.zeros(0, np.uint64), 0)


def _absent_if_empty(off: I64, data: U8) -> Any:
    column = make_ragged(pa.binary(), off, data)
    is_empty = np.diff(off) == 0
    if not is_empty.any():
        return column
    return pc.if_else(pa.array(is_empty), pa.scalar(None, pa.binary()), column)
