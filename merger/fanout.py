"""Fan-out: the pairs of a batch, split by session, with each object once."""

from __future__ import annotations

import numpy as np

from ps2stream.merger.kernels import fitting, runs, shares, take_spans
from ps2stream.merger.records import Matched, count_pairs
from ps2stream.protocol.frame import I64, U32, sealed
from ps2stream.protocol.messages.objects import Payload
from ps2stream.protocol.wire import Deliver, Gap, StringColumn

FIELD_TEXT, FIELD_POSITION, FIELD_TIME = 1, 2, 4  # bits of Attach.fields
MAX_BYTES = 1 << 20  # estimated size at which a delivery is split
_KEPT = 12  # bytes that a pair takes in the log
_SENT = 40  # and about as many in a delivery


def take(column: StringColumn, rows: I64) -> StringColumn:
    """Rows of a string column as a new one."""
    off, data = column
    out: StringColumn = take_spans(sealed(off[:-1]), sealed(off[1:]), sealed(data), rows)
    return out


def matched(
    payload: Payload, row: U32, handle: I64, session: I64, written: int, whole: bool = True
) -> Matched:
    """The record of a batch's pairs, or of some, sorted by row and handle, of which there is
    at least one; `first` is still to be set."""
    rows, index = runs(sealed(row))
    ids, texts = (payload.id_off, payload.id), (payload.text_off, payload.text)
    time, lon, lat = payload.time, payload.lon, payload.lat
    if len(rows) < len(time):
        ids, texts = take(ids, rows), take(texts, rows)
        time, lon, lat = time[rows], lon[rows], lat[rows]
    low, high = int(session.min()), int(session.max())
    cut = np.zeros(1, np.int64)
    if low != high:
        # NumPy sorts 16-bit integers by radix.
        keys = session.astype(np.uint16) if low >= 0 and high < 1 << 16 else session
        order = np.argsort(keys, kind="stable")
        session, index, handle = session[order], index[order], handle[order]
        cut = np.append(cut, np.flatnonzero(np.diff(session)) + 1)
    return Matched(
        dispatcher=payload.dispatcher,
        batch=payload.batch,
        end=payload.batch + (len(payload.time) if whole else 0),
        lsn=payload.lsn,
        written=written,
        session=session[cut],
        first=np.zeros(len(cut), np.int64),
        cut=np.append(cut, len(session)),
        handle=sealed(handle),
        index=sealed(index),
        offset=payload.batch + rows,
        id_off=sealed(ids[0]),
        id=sealed(ids[1]),
        time=time,
        lon=lon,
        lat=lat,
        text_off=sealed(texts[0]),
        text=sealed(texts[1]),
    )


def bytes_of(record: Matched) -> list[int]:
    """What each session's pairs take in the log; an object counts for each session."""
    cut = sealed(record.cut)
    sizes: I64 = shares(cut, record.index, record.id_off, record.text_off, _KEPT)
    out: list[int] = sizes.tolist()
    return out


def part(record: Matched, a: int, b: int) -> int:
    """Where a delivery of the pairs from a on has to end, b at the latest."""
    index = record.index[a:b]
    size: int = fitting(index, record.id_off, record.text_off, _SENT, MAX_BYTES)
    return a + size


def delivery(
    record: Matched, a: int, b: int, first: int, fields: int, new: I64, names: StringColumn
) -> Deliver:
    """The pairs a..b of a record, numbered from `first`, for a stream that asked for `fields`
    and is told the `new` handles' names."""
    rows, index = runs(sealed(record.index[a:b]))
    position = bool(fields & FIELD_POSITION)
    return Deliver(
        session_seq=first,
        new_handles=new,
        new_query_ids=names,
        pair_handles=record.handle[a:b],
        pair_objects=index,
        object_ids=take((record.id_off, record.id), rows),
        object_offsets=record.offset[rows],
        partition=record.dispatcher,
        lon=record.lon[rows] if position else None,
        lat=record.lat[rows] if position else None,
        time_ms=record.time[rows] if fields & FIELD_TIME else None,
        text=take((record.text_off, record.text), rows) if fields & FIELD_TEXT else None,
    )


def gap(first: int, last: int) -> Deliver:
    """A batch that says that the pairs first..last are lost; its number is the next pair's.
    Where nobody knows how many pairs that were, it counts none."""
    none = np.zeros(0, np.int64)
    text = np.zeros(1, np.int64), np.zeros(0, np.uint8)
    lost = Gap(first, last, count_pairs(first, last))
    return Deliver(last + 1, none, text, none, np.zeros(0, np.uint32), text, none, 0, gap=lost)
