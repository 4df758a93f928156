"""Arrow streams of plain columns, which are read in place.

Most publications have the columns of the service alone, of plain types and without nulls. What
pyarrow takes to read one is more than all else that a small publication needs. So the heads of
such a stream are read here, by Arrow's format (Schema.fbs and Message.fbs, version 5), and its
columns are views. Everything else, and all that looks wrong, is left to pyarrow (arrow.py).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.limits import BATCH_ROWS
from ps2stream.protocol.frame import I64, U8, Array
from ps2stream.service import arrow
from ps2stream.service.object_row_kernels import find_offsets

SCHEMAS = 64
"""Schemas that are remembered."""
SCHEMA_BYTES = 4 << 10
"""The size of the largest that is."""
_MARK = 0xFFFFFFFF  # before each message
_END = struct.pack("<Ii", _MARK, 0)
_VERSION_5 = 4  # MetadataVersion.V5
_SCHEMA, _RECORD_BATCH = 1, 3  # MessageHeader
_NO_TEXT = np.frombuffer(b"", np.uint8)


class _ColumnLayout(NamedTuple):
    """The type of a column: of its values, or of its offsets if it is a text."""

    name: str
    dtype: np.dtype[Any]
    is_text: bool


class _StreamLayout(NamedTuple):
    """What a schema says of the record batch behind it: the columns, and how their lengths and null
    counts, and the places and sizes of their buffers, are packed."""

    columns: Sequence[_ColumnLayout]
    nodes: struct.Struct
    buffers: struct.Struct


class PlainColumns(NamedTuple):
    """The columns of n rows by name: numbers, 8 bytes each, and texts as ragged UTF-8."""

    rows: int
    numbers: Mapping[str, Array]
    texts: Mapping[str, tuple[I64, U8]]


class PlainColumnReader:
    """Reads streams of the columns that `columns` and `required` name, see `arrow.open_batch`.

    A client's streams all begin with the same schema, so that the schemas of streams are
    remembered by their bytes."""

    def __init__(self, columns: Mapping[str, str], required: Sequence[str]) -> None:
        self._columns = columns
        self._required = required
        self._layouts: dict[bytes, _StreamLayout | None] = {}

    def read(self, data: bytes) -> PlainColumns | None:
        """Returns the columns of the stream as views; None if it is not for this reader."""
        try:
            mark, size = struct.unpack_from("<Ii", data)
            start = 8 + size
            if mark != _MARK or not 0 < size <= SCHEMA_BYTES:
                return None
            layout = self._find_layout(data[:start])
            return None if layout is None else _read_columns(data, start, layout)
        except struct.error:  # it is cut short
            return None

    def _find_layout(self, schema: bytes) -> _StreamLayout | None:
        layouts = self._layouts  # another thread may begin anew meanwhile
        if schema not in layouts:
            if len(layouts) >= SCHEMAS:
                layouts = self._layouts = {}
            layouts[schema] = self._read_layout(schema)
        return layouts[schema]

    def _read_layout(self, schema: bytes) -> _StreamLayout | None:
        found = _find_message(schema, 8, _SCHEMA)
        if found is None or found.body_bytes:
            return None
        [order] = _find_slots(schema, found.table, 1)
        if order and struct.unpack_from("<h", schema, order) != (0,):  # of the bytes of numbers
            return None
        try:
            found_schema = pa.ipc.read_schema(pa.py_buffer(schema))
            if arrow.find_violations(found_schema, self._columns, self._required):
                return None
            columns = [_choose_layout(field) for field in found_schema]
        except (pa.ArrowException, OSError, ValueError):  # a name may not be UTF-8
            return None
        known = [column for column in columns if column is not None]
        if len(known) < len(columns):
            return None
        buffers = sum(3 if column.is_text else 2 for column in known)
        nodes = struct.Struct(f"<{2 * len(known)}q")
        return _StreamLayout(known, nodes, struct.Struct(f"<{2 * buffers}q"))


class _FoundMessage(NamedTuple):
    """Where the table of a message's header begins, and how many bytes follow the message."""

    table: int
    body_bytes: int


def _find_message(data: bytes, start: int, kind: int) -> _FoundMessage | None:
    """Finds the header of the message whose flatbuffer is at `start`; None if it is of another kind
    or version."""
    (root,) = struct.unpack_from("<I", data, start)
    version, of_kind, header, body = _find_slots(data, start + root, 4)
    if not version or not of_kind or not header:
        return None
    if struct.unpack_from("<h", data, version) != (_VERSION_5,):
        return None
    if struct.unpack_from("<B", data, of_kind) != (kind,):
        return None
    (table,) = struct.unpack_from("<I", data, header)
    (body_bytes,) = struct.unpack_from("<q", data, body) if body else (0,)
    return _FoundMessage(header + table, body_bytes)


def _find_slots(data: bytes, table: int, count: int) -> Sequence[int]:
    """Returns the positions of the first fields of a flatbuffers table, 0 for absent ones. Raises
    struct.error if the table is not in `data`."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    if vtable < 0:
        raise struct.error("bad table")
    (size,) = struct.unpack_from("<H", data, vtable)
    known = min(max(size // 2 - 2, 0), count)
    slots = struct.unpack_from(f"<{known}H", data, vtable + 4)
    return [table + slot if slot else 0 for slot in slots] + [0] * (count - known)


def _read_pairs(data: bytes, slot: int, packed: struct.Struct) -> Sequence[tuple[int, int]]:
    """Returns the vector of pairs that a field refers to; none if it has another length than
    `packed`."""
    (vector,) = struct.unpack_from("<I", data, slot)
    at = slot + vector
    (count,) = struct.unpack_from("<I", data, at)
    if 16 * count != packed.size:
        return ()
    numbers = packed.unpack_from(data, at + 4)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _choose_layout(field: pa.Field) -> _ColumnLayout | None:
    kind = field.type
    if pa.types.is_string(kind):
        return _ColumnLayout(field.name, np.dtype(np.int32), is_text=True)
    if pa.types.is_large_string(kind):
        return _ColumnLayout(field.name, np.dtype(np.int64), is_text=True)
    if pa.types.is_float64(kind):
        return _ColumnLayout(field.name, np.dtype(np.float64), is_text=False)
    if pa.types.is_int64(kind) or (pa.types.is_timestamp(kind) and kind.unit == "ms"):
        return _ColumnLayout(field.name, np.dtype(np.int64), is_text=False)
    return None


def _read_columns(data: bytes, start: int, layout: _StreamLayout) -> PlainColumns | None:
    """Reads the message at `start`, which must be a record batch and the last message."""
    mark, size = struct.unpack_from("<Ii", data, start)
    body = start + 8 + size
    if mark != _MARK or size <= 0 or body % 8:
        return None
    found = _find_message(data, start + 8, _RECORD_BATCH)
    if found is None or not 0 <= found.body_bytes <= len(data) - body:
        return None
    batch, end = found
    if data[body + end :] not in (b"", _END):
        return None
    length, of_nodes, of_buffers, *others = _find_slots(data, batch, 5)
    # Neither compressed, nor with buffers of which only the heads tell how many there are.
    if not length or not of_nodes or not of_buffers or any(others):
        return None
    (rows,) = struct.unpack_from("<q", data, length)
    lengths = _read_pairs(data, of_nodes, layout.nodes)
    buffers = _read_pairs(data, of_buffers, layout.buffers)
    if not 0 < rows <= BATCH_ROWS or set(lengths) != {(rows, 0)} or not buffers:
        return None
    for at, many in buffers:
        if at < 0 or many < 0 or at % 8 or at + many > end:
            return None
    numbers: dict[str, Array] = {}
    texts: dict[str, tuple[I64, U8]] = {}
    places = iter(buffers)
    for name, dtype, is_text in layout.columns:
        (_, of_nulls), (at, many), values = next(places), next(places), rows + is_text
        if of_nulls or many < values * dtype.itemsize:
            return None
        column = np.frombuffer(data, dtype, values, body + at)
        if not is_text:
            numbers[name] = column
            continue
        at, many = next(places)
        text = np.frombuffer(data, np.uint8, many, body + at) if many else _NO_TEXT
        off = find_offsets(column, text)
        if not len(off):
            return None
        texts[name] = off, text[column[0] : column[rows]]
    return PlainColumns(rows, numbers, texts)
