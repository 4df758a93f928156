"""The columns of a table of matches, made of objects, the ids of queries, and their pairs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from ps2stream.inprocess.gather_kernels import (
    RECORD,
    SPARE,
    gather_ids,
    repeat_texts,
    repeat_words,
    write_records,
)
from ps2stream.inprocess.query_index import Pairs
from ps2stream.planner.counting import ragged
from ps2stream.protocol.frame import I64, U64, Array, sealed
from ps2stream.service.arrow import strings

TEXT_BYTES = (1 << 31) - 1
"""The most bytes of a column of strings in a batch, whose offsets have 32 bits."""
PAIRS = ("query", "query_id", "object")
"""The first columns of a table of matches; those of the objects follow."""
_KEPT = 2
"""A batch is kept whole if it has at most so many times the bytes of its matches."""
_Maker = Callable[[], pa.Array]


@dataclass(frozen=True, eq=False)
class MatchedBatch:
    """A batch of n objects, their numbers among all objects, int64[n], and their matches."""

    batch: pa.RecordBatch
    number: I64
    pairs: Pairs

    def __len__(self) -> int:
        """The number of matches."""
        return len(self.pairs.query)

    def take_matches(self, first: int, last: int) -> MatchedBatch:
        """Returns these of the matches, with all objects."""
        off = np.clip(self.pairs.off, first, last) - first
        return replace(self, pairs=Pairs(off, self.pairs.query[first:last]))

    def drop_unmatched(self, is_alone: bool) -> MatchedBatch:
        """Returns the same matches, without the objects that do not match if these would take much
        memory. is_alone: nobody else keeps the table that the batch may be a part of."""
        size = self.batch.get_total_buffer_size() if is_alone else self.batch.nbytes
        if size <= _KEPT * sum(column.nbytes for column in self.pairs):
            return self
        count = np.diff(self.pairs.off)
        rows = np.flatnonzero(count)
        off = np.append(0, np.cumsum(count[rows]))
        pairs = Pairs(off, self.pairs.query)
        return MatchedBatch(self.batch.take(pa.array(rows)), self.number[rows], pairs)


def number_objects(batch: pa.RecordBatch, first: int, pairs: Pairs) -> MatchedBatch:
    """Returns a batch whose objects are numbered from `first` on."""
    return MatchedBatch(batch, np.arange(first, first + len(batch)), pairs)


class QueryIds:
    """The ids of queries, string[n], gathered for matches."""

    def __init__(self, ids: pa.Array) -> None:
        off, data = ragged(ids)
        self._off, self._data = sealed(off), sealed(data)
        self.longest = int(np.diff(self._off).max(initial=0))

    @cached_property
    def _record(self) -> U64:
        record: U64 = np.empty(RECORD * len(self._off) - RECORD + SPARE // 8, np.uint64)
        write_records(self._off, self._data, record)
        return sealed(record)

    def gather(self, rows: I64) -> pa.Array:
        """Returns the ids of these rows, which have at most TEXT_BYTES all told."""
        n = len(rows)
        offsets, off = _allocate(n + 1, np.int32)
        texts, text = _allocate(n * self.longest, np.uint8, resizable=True)
        size = gather_ids(self._record, self._data, sealed(rows), off, text)
        del text  # or it could not be resized
        texts.resize(size)
        return pa.StringArray.from_buffers(n, offsets, texts)


def name_columns(schema: pa.Schema) -> dict[str, str]:
    """Returns the columns of objects by their names in a table of matches: `id` becomes object_id,
    and so does any whose name is taken."""
    found: dict[str, str] = {}
    for given in schema.names:
        name = given
        while name == "id" or name in PAIRS or name in found:
            name = f"object_{name}"
        found[name] = given
    return found


def build_columns(
    found: MatchedBatch, ids: QueryIds, names: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the matches with all columns of MatchTable, or with those of these names that the
    objects have: one record batch, or several where offsets of 32 bits would not suffice."""
    if _bound_text_bytes(found, ids) > TEXT_BYTES and len(found) > 1:
        half = len(found) // 2
        yield from build_columns(found.take_matches(0, half), ids, names)
        yield from build_columns(found.take_matches(half, len(found)), ids, names)
        return
    makers = _list_makers(found, ids)
    wanted = [name for name in makers if names is None or name in names]
    yield pa.RecordBatch.from_arrays([makers[name]() for name in wanted], wanted)


def _list_makers(found: MatchedBatch, ids: QueryIds) -> Mapping[str, _Maker]:
    """Returns what makes each column, by its name."""
    off, query = map(sealed, found.pairs)
    makers: dict[str, _Maker] = {
        "query": lambda: pa.array(query),
        "query_id": lambda: ids.gather(query),
        "object": lambda: _repeat(pa.array(found.number), off),
    }
    for name, given in name_columns(found.batch.schema).items():
        makers[name] = partial(_repeat, found.batch.column(given), off)
    return makers


def _bound_text_bytes(found: MatchedBatch, ids: QueryIds) -> int:
    """Returns at least the bytes that the texts of a column will have."""
    count = np.diff(found.pairs.off)
    bound: int = found.batch.nbytes * int(count.max(initial=0))
    if bound > TEXT_BYTES:
        texts = [c for c in found.batch.columns if c.type in (pa.string(), pa.binary())]
        bound = max((int(np.diff(_split_texts(c)[0]) @ count) for c in texts), default=0)
    return max(bound, len(found) * ids.longest)


def _repeat(column: pa.Array, off: I64) -> pa.Array:
    """Returns the value of each object once for each of its matches, of which `off` says where they
    begin."""
    n, kind = int(off[-1]), column.type
    if not column.null_count:
        if pa.types.is_primitive(kind) and kind.bit_width == 64:
            words, out = _allocate(n, np.uint64)
            repeat_words(_view_words(column), off, out)
            return pa.Array.from_buffers(kind, n, [None, words])
        if _has_texts(kind):
            text_off, text = _split_texts(column)
            wide = kind in (pa.large_string(), pa.large_binary())
            offsets, out_off = _allocate(n + 1, np.int64 if wide else np.int32)
            texts, out = _allocate(int(np.diff(text_off) @ np.diff(off)), np.uint8)
            repeat_texts(sealed(text_off), sealed(text), off, out_off, out)
            return pa.Array.from_buffers(kind, n, [None, offsets, texts])
    return column.take(pa.array(np.repeat(np.arange(len(off) - 1), np.diff(off))))


def _has_texts(kind: pa.DataType) -> bool:
    """Returns whether a column of this type has offsets and bytes."""
    return bool(kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()))


def _split_texts(column: pa.Array) -> tuple[I64, Array]:
    return strings(pa.record_batch([column], [""]), "")


def _view_words(column: pa.Array) -> U64:
    """Returns values of 64 bits as words."""
    buffer, n = column.buffers()[1], len(column)
    if buffer is None or not n:
        return sealed(np.zeros(n, np.uint64))
    return sealed(np.require(np.frombuffer(buffer, np.uint64, n, 8 * column.offset), None, "A"))


def _allocate(count: int, dtype: type[np.generic], resizable: bool = False) -> tuple[Any, Array]:
    """Returns a buffer of Arrow's for so many elements, and a view with SPARE more. Its allocator
    gives memory again that was used, where NumPy's would have it cleared by the kernel."""
    size = (count + SPARE) * np.dtype(dtype).itemsize
    buffer = pa.allocate_buffer(size, resizable=resizable)
    return buffer, np.frombuffer(buffer, dtype)
