"""Fan-out: the pairs of a batch, split by session, with each object once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ps2stream.batch import F64, I64, U32
from ps2stream.merger.kernels import runs, take_spans
from ps2stream.merger.names import Snapshot
from ps2stream.messages import Payload
from ps2stream.wire import Deliver, StringColumn

FIELD_TEXT, FIELD_POSITION, FIELD_TIME = 1, 2, 4  # bits of Attach.fields
MAX_BYTES = 1 << 20  # estimated size at which a delivery is split
_OVERHEAD = 2_048  # bytes of Python and NumPy objects an entry takes beside its columns


@dataclasses.dataclass(slots=True, eq=False)
class Entry:
    """Pairs of one session, numbered first..last, with all that a stream may ask for.

    `names` resolves the handles; `own_names` (sorted handles, ids) replaces it in an entry
    that may outlive the names.
    """

    first: int
    handle: I64
    index: U32
    partition: int
    offset: I64
    id: StringColumn
    time: I64
    lon: F64
    lat: F64
    text: StringColumn
    names: Snapshot | None
    own_names: tuple[I64, StringColumn] | None = None

    @property
    def last(self) -> int:
        return self.first + len(self.handle) - 1

    @property
    def cost(self) -> int:
        """Bytes held."""
        size = _OVERHEAD + 12 * len(self.handle) + 48 * len(self.offset)
        size += len(self.id[1]) + len(self.text[1])
        if self.own_names is not None:
            handles, (_, data) = self.own_names
            size += 16 * len(handles) + len(data)
        return size

    def keep_names(self) -> None:
        """Carry the names along, for a stay in the backlog."""
        if self.names is not None:
            handles = np.unique(self.handle)
            self.own_names = handles, self.names.of(handles)
            self.names = None

    def ids_of(self, handles: I64) -> StringColumn:
        """The client's ids of some of the entry's handles."""
        if self.names is not None:
            return self.names.of(handles)
        if self.own_names is None:
            raise ValueError("an entry has lost its names")
        known, (off, data) = self.own_names
        return take((off, data), np.searchsorted(known, handles))

    def deliver(self, fields: int, new: I64) -> Deliver:
        """The batch for a stream that asked for `fields` and needs the `new` handles named."""
        return Deliver(
            session_seq=self.first,
            new_handles=new,
            new_query_ids=self.ids_of(new),
            pair_handles=self.handle,
            pair_objects=self.index,
            object_ids=self.id,
            object_offsets=self.offset,
            partition=self.partition,
            lon=self.lon if fields & FIELD_POSITION else None,
            lat=self.lat if fields & FIELD_POSITION else None,
            time_ms=self.time if fields & FIELD_TIME else None,
            text=self.text if fields & FIELD_TEXT else None,
        )


def take(column: StringColumn, rows: I64) -> StringColumn:
    """Rows of a string column as a new one."""
    off, data = column
    out: StringColumn = take_spans(off[:-1], off[1:], data, rows)
    return out


def by_session(row: U32, handle: I64, session: I64) -> Iterator[tuple[int, U32, I64]]:
    """(session, its rows, its handles), the order within a session kept."""
    if not len(session):
        return
    low, high = int(session.min()), int(session.max())
    if low == high:
        yield low, row, handle
        return
    # NumPy sorts 16-bit integers by radix.
    keys = session.astype(np.uint16) if low >= 0 and high < 1 << 16 else session
    order = np.argsort(keys, kind="stable")
    session, row, handle = session[order], row[order], handle[order]
    cuts = [0, *(np.flatnonzero(np.diff(session)) + 1).tolist(), len(session)]
    names = session[cuts[:-1]].tolist()
    for name, a, b in zip(names, cuts[:-1], cuts[1:], strict=True):
        yield name, row[a:b], handle[a:b]


def entries(payload: Payload, row: U32, handle: I64, first: int, names: Snapshot) -> list[Entry]:
    """The pairs (sorted by row) of one session as entries numbered from `first`, split where
    one would grow beyond about MAX_BYTES."""
    out = []
    for part in _cuts(payload, row):
        rows, index = runs(row[part])
        out.append(
            Entry(
                first=first,
                handle=handle[part].copy(),
                index=index,
                partition=payload.dispatcher,
                offset=payload.batch + rows,
                id=take((payload.id_off, payload.id), rows),
                time=payload.time[rows],
                lon=payload.lon[rows],
                lat=payload.lat[rows],
                text=take((payload.text_off, payload.text), rows),
                names=names,
            )
        )
        first += part.stop - part.start
    return out


def _cuts(payload: Payload, row: U32) -> list[slice]:
    """Slices of the pairs whose deliveries stay small; an object of many pairs may recur."""
    n = len(row)
    if 40 * n + len(payload.id) + len(payload.text) + 48 * len(payload.time) <= MAX_BYTES:
        return [slice(0, n)]
    size = np.full(n, 40, np.int64)
    head = np.ones(n, np.bool_)
    head[1:] = row[1:] != row[:-1]
    at = row[head]
    size[head] += 48 + np.diff(payload.id_off)[at] + np.diff(payload.text_off)[at]
    bucket = (np.cumsum(size) - size) // MAX_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(bucket)) + 1).tolist(), n]
    return [slice(a, b) for a, b in pairwise(cuts)]
