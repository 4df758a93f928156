"""The order of matches, and the values of objects and queries for each of them.

Values are copied in chunks of a fixed size, and what is too much is overwritten by the next value.
So `out` has SPARE elements more than there are values.
"""

# Numba gives an intrinsic its first argument.
# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: disable-error-code=call-arg
from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from ps2stream.space.prefetch import prefetch

SPARE = 32
RANKED = 128
"""The most matches of an object that are sorted by counting, for each, those below."""
RECORD = 2
"""Words of an id's record: its text, and its size in the last byte; or, if that is LONG, where it
begins in the column of ids, and its size."""
LONG = 255
_INLINE = 8 * RECORD - 1
_TOP_BYTE = np.uint64(56)
_LANES = 16
_AHEAD = 32
_LAST = np.int32(np.iinfo(np.int32).max)


@intrinsic
def _copy_chunk(_context: Any, out: Any, to: Any, data: Any, at: Any) -> Any:
    """Copies SPARE bytes from data[at] on to out[to] and behind it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), SPARE).as_pointer()

        def point_to(which: int) -> Any:
            array = context.make_array(signature.args[which])(context, builder, args[which])
            return builder.bitcast(builder.gep(array.data, [args[which + 1]]), vector)

        chunk = builder.load(point_to(2), align=1)
        builder.store(chunk, point_to(0), align=1)
        return context.get_dummy_value()

    return types.void(out, types.int64, data, types.int64), codegen


@intrinsic
def _count_below(_context: Any, words: Any, at: Any, bound: Any) -> Any:
    """Returns how many of the 16 words from words[at] on, int32, are below a bound."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(32), _LANES)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        where = builder.bitcast(builder.gep(data, [args[1]]), vector.as_pointer())
        empty = ir.Constant(vector, ir.Undefined)
        one = builder.insert_element(empty, args[2], ir.IntType(32)(0))
        bounds = builder.shuffle_vector(one, empty, ir.Constant(vector, [0] * _LANES))
        below = builder.icmp_signed("<", builder.load(where, align=4), bounds)
        count = builder.ctpop(builder.bitcast(below, ir.IntType(_LANES)))
        return builder.zext(count, ir.IntType(64))

    return types.int64(words, types.int64, types.int32), codegen


@njit(cache=True, nogil=True)
def order_matches(row, handle, off, query):
    """Writes the matches by their objects, and those of an object in the order of their queries.

    row: the objects, uint32[n], which do not fall; handle: int64[n], the rows of the queries, below
    2^31, plus one; an object has each once. off: int64[objects + 1], zero at first: where the
    matches of each object begin. query: int64[n], the rows.
    """
    for i in range(row.shape[0]):
        off[row[i] + 1] = i + 1
    lanes = np.empty(RANKED, np.int32)
    for r in range(off.shape[0] - 1):
        begin = off[r]
        off[r + 1] = max(begin, off[r + 1])
        count = off[r + 1] - begin
        if count > RANKED:
            for k in range(count):
                query[begin + k] = handle[begin + k] - 1
            query[begin : begin + count].sort()
            continue
        if count == 1:
            query[begin] = handle[begin] - 1
            continue
        for k in range(np.uint64(count)):
            lanes[k] = np.int32(handle[begin + k])
        for k in range(count, -(-count // _LANES) * _LANES):
            lanes[k] = _LAST
        for i in range(count):
            own, below = lanes[i], np.int64(0)
            for first in range(0, count, _LANES):
                below += _count_below(lanes, first, own)
            query[begin + below] = np.int64(own) - 1


@njit(cache=True, nogil=True)
def repeat_words(word, off, out):
    """Writes the word of each object once for each of its matches."""
    for r in range(off.shape[0] - 1):
        one = word[r]
        for at in range(off[r], off[r + 1], _LANES):
            for k in range(_LANES):
                out[at + k] = one


@njit(cache=True, nogil=True)
def repeat_texts(text_off, text, off, out_off, out):
    """Writes the text of each object, a ragged column, once for each of its matches, as one."""
    last, to = text.shape[0] - SPARE, np.int64(0)
    out_off[0] = 0
    for r in range(off.shape[0] - 1):
        begin, size = text_off[r], text_off[r + 1] - text_off[r]
        is_inside = begin + size <= last
        for i in range(off[r], off[r + 1]):
            if is_inside:
                for at in range(0, size, SPARE):
                    _copy_chunk(out, to + at, text, begin + at)
            else:
                for at in range(size):
                    out[to + at] = text[begin + at]
            to += size
            out_off[i + 1] = to


@njit(cache=True, nogil=True)
def write_records(id_off, ids, record):
    """Writes a record of RECORD words for each id, a ragged column of at least one byte each, so
    that one line of the cache has all of a short id."""
    for i in range(id_off.shape[0] - 1):
        begin, size = id_off[i], id_off[i + 1] - id_off[i]
        at = RECORD * i
        if size > _INLINE:
            record[at] = np.uint64(begin)
            record[at + 1] = np.uint64(size) | np.uint64(LONG) << _TOP_BYTE
            continue
        record[at], record[at + 1] = np.uint64(0), np.uint64(size) << _TOP_BYTE
        for k in range(size):
            record[at + k // 8] |= np.uint64(ids[begin + k]) << np.uint64(8 * (k % 8))


@njit(cache=True, nogil=True)
def gather_ids(record, ids, rows, out_off, out):
    """Writes the ids of these rows as a ragged column, and returns its bytes. record: of
    `write_records`, and SPARE bytes behind it."""
    data, n, to = record.view(np.uint8), rows.shape[0], np.int64(0)
    out_off[0] = 0
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(record, RECORD * rows[i + _AHEAD])
        at = RECORD * rows[i]
        size = np.int64(record[at + 1] >> _TOP_BYTE)
        if size == LONG:
            begin = np.int64(record[at])
            size = np.int64(record[at + 1] & np.uint64(0xFFFFFFFF))
            for k in range(size):
                out[to + k] = ids[begin + k]
        else:
            _copy_chunk(out, to, data, 8 * at)
        to += size
        out_off[i + 1] = to
    return to
