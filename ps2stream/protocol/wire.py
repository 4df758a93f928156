"""The encoder of delivery batches: columns straight into Protocol Buffers bytes.

`deliver_batch` writes the bytes of `DeliverResponse{batch: DeliverBatch}` of
protos/ps2stream/v1. Packed fields of fixed width are the bytes of the columns; repeated strings
and packed varints are written by a kernel, so that no row takes a Python step.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import NamedTuple

import numpy as np
from numba import njit

from ps2stream.protocol.frame import F64, I64, U8, U32, U64, sealed
from ps2stream.protocol.span_kernels import copy_span

StringColumn = tuple[I64, U8]  # offsets int64[n + 1], UTF-8 bytes
MessageColumn = tuple[I64, U8]  # offsets int64[n + 1], the bytes of messages

_VARINT, _FIXED64, _BYTES = 0, 1, 2


class DeliveryShed(NamedTuple):
    """The fields of ShedLoad, see its message."""

    partition: int
    from_ms: int
    to_ms: int
    from_offset: int
    to_offset: int
    objects: int
    sampled_matches: int
    share: float


class DeliveryGap(NamedTuple):
    """The pairs numbered first..last (inclusive session_seq) were dropped: `pairs` of them, or
    an unknown number where that is 0; `shed` if load was shed."""

    first: int
    last: int
    pairs: int
    shed: DeliveryShed | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class DeliveryColumns:
    """A batch of one session. pair_objects index the object columns; a column that was not
    requested is None. session_seq is the number of the first pair, the others follow on."""

    session_seq: int
    new_handles: U64 | I64
    new_query_ids: StringColumn
    pair_handles: U64 | I64
    pair_objects: U32
    object_ids: StringColumn
    object_offsets: U64 | I64
    partition: int
    lon: F64 | None = None
    lat: F64 | None = None
    time_ms: I64 | None = None
    text: StringColumn | None = None
    gap: DeliveryGap | None = None
    attributes: MessageColumn | None = None
    payloads: MessageColumn | None = None


def deliver_batch(batch: DeliveryColumns) -> bytes:
    """Returns the bytes of a DeliverResponse with this batch. Lone surrogates, which Protocol
    Buffers strings cannot hold, become U+FFFD."""
    parts = [
        _encode_number(1, batch.session_seq),
        *_encode_fixed(2, batch.new_handles, "<u8"),
        _encode_strings(3, batch.new_query_ids),
        *_encode_fixed(4, batch.pair_handles, "<u8"),
        *_encode_varints(5, batch.pair_objects),
        _encode_strings(6, batch.object_ids),
        *_encode_fixed(7, batch.object_offsets, "<u8"),
        _encode_number(8, batch.partition),
    ]
    if batch.lon is not None:
        parts += _encode_fixed(9, batch.lon, "<f8")
    if batch.lat is not None:
        parts += _encode_fixed(10, batch.lat, "<f8")
    if batch.time_ms is not None:
        parts += _encode_fixed(11, batch.time_ms, "<i8")
    if batch.text is not None:
        parts.append(_encode_strings(12, batch.text))
    if batch.gap is not None:
        parts.append(encode_message(13, _encode_gap(batch.gap)))
    if batch.attributes is not None:
        parts.append(_encode_messages(14, batch.attributes))
    if batch.payloads is not None:
        parts.append(_encode_messages(15, batch.payloads))
    size = sum(map(len, parts))
    return b"".join((_encode_tag(1, _BYTES), _encode_varint(size), *parts))


def encode_message(field: int, data: bytes) -> bytes:
    """Returns the field, one of the first 15, with the encoded message `data`."""
    return _encode_tag(field, _BYTES) + _encode_varint(len(data)) + data


def _encode_gap(gap: DeliveryGap) -> bytes:
    out = b"".join(_encode_number(i, value) for i, value in enumerate(gap[:3], start=1))
    if gap.shed is None:
        return out
    *numbers, share = gap.shed
    shed = b"".join(_encode_number(i, value) for i, value in enumerate(numbers, start=1))
    if share:
        shed += _encode_tag(8, _FIXED64) + struct.pack("<d", share)
    return out + encode_message(4, shed)


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encode_tag(field: int, wire_type: int) -> bytes:
    return bytes((field << 3 | wire_type,))


def _encode_number(field: int, value: int) -> bytes:
    return _encode_tag(field, _VARINT) + _encode_varint(value) if value else b""


def _encode_fixed(field: int, column: U64 | I64 | F64, dtype: str) -> tuple[bytes, ...]:
    if not len(column):
        return ()
    body = column.astype(dtype, copy=False).tobytes()
    return _encode_tag(field, _BYTES), _encode_varint(len(body)), body


def _encode_varints(field: int, column: U32) -> tuple[bytes, ...]:
    if not len(column):
        return ()
    out = np.empty(5 * len(column), np.uint8)
    size = put_varints(sealed(column.astype(np.uint32, copy=False)), out)
    return _encode_tag(field, _BYTES), _encode_varint(size), out[:size].tobytes()


def _encode_strings(field: int, column: StringColumn) -> bytes:
    off, data = column
    n = len(off) - 1
    if n <= 0:
        return b""
    out = np.empty(int(off[-1] - off[0]) + 6 * n, np.uint8)
    size = put_strings(field << 3 | _BYTES, sealed(off), sealed(data), out)
    return out[:size].tobytes()


def _encode_messages(field: int, column: MessageColumn) -> bytes:
    off, data = column
    out = np.empty(len(data) + 6 * (len(off) - 1), np.uint8)
    size = put_messages(field << 3 | _BYTES, sealed(off), sealed(data), out)
    return out[:size].tobytes()


@njit(cache=True, nogil=True)
def put_varints(column: U32, out: U8) -> int:
    """Writes uint32 values as varints; returns the number of bytes written. `out` has 5 a value."""
    at = 0
    for i in range(len(column)):
        value = column[i]
        while value >= 0x80:
            out[at] = value & 0x7F | 0x80
            value >>= 7
            at += 1
        out[at] = value
        at += 1
    return at


@njit(cache=True, nogil=True)
def put_strings(tag: int, off: I64, data: U8, out: U8) -> int:
    """Writes each string as tag, length, bytes; returns the number of bytes written. `out` has
    six more a string than the data. WTF-8 surrogates (ED A0..BF xx) become EF BF BD."""
    at = 0
    is_plain = True
    for k in range(off[0], off[len(off) - 1]):
        is_plain &= data[k] != 0xED
    for i in range(len(off) - 1):
        out[at] = tag
        at += 1
        size = off[i + 1] - off[i]
        while size >= 0x80:
            out[at] = size & 0x7F | 0x80
            size >>= 7
            at += 1
        out[at] = size
        at += 1
        j = off[i]
        end = off[i + 1]
        if is_plain:
            to, begin = np.uint64(at), np.uint64(j)
            for k in range(np.uint64(end - j)):
                out[to + k] = data[begin + k]
            at += end - j
            continue
        while j < end:
            byte = data[j]
            if byte == 0xED and j + 2 < end and data[j + 1] >= 0xA0:
                out[at] = 0xEF
                out[at + 1] = 0xBF
                out[at + 2] = 0xBD
                at += 3
                j += 3
            else:
                out[at] = byte
                at += 1
                j += 1
    return at


@njit(cache=True, nogil=True)
def put_messages(tag: int, off: I64, data: U8, out: U8) -> int:
    """Writes each message as tag, length, bytes; returns the number of bytes written. `out` has
    six more a message than the data."""
    at = 0
    for i in range(len(off) - 1):
        out[at] = tag
        at += 1
        size = off[i + 1] - off[i]
        rest = size
        while rest >= 0x80:
            out[at] = rest & 0x7F | 0x80
            rest >>= 7
            at += 1
        out[at] = rest
        at += 1
        copy_span(out, at, data, off[i], size)
        at += size
    return at
