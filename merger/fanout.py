"""Fan-out of a batch's pairs to sessions: their record in the match log, and deliveries."""

from __future__ import annotations

import numpy as np

from ps2stream.merger.kernels import (
    OBJECT_BYTES,
    count_fitting,
    count_slice_bytes,
    runs,
    take_spans,
)
from ps2stream.merger.records import MatchedRecord, MissingRecord
from ps2stream.protocol.frame import I64, U32, sealed
from ps2stream.protocol.messages.objects import MatchRelease
from ps2stream.protocol.opaque import split_opaque, take_opaque
from ps2stream.protocol.rows import no_offsets
from ps2stream.protocol.session_numbers import count_pairs
from ps2stream.protocol.wire import (
    DeliveryColumns,
    DeliveryGap,
    DeliveryShed,
    MessageColumn,
    StringColumn,
)

FIELD_TEXT, FIELD_POSITION, FIELD_TIME = 1, 2, 4  # bits of Attach.fields
FIELD_ATTRIBUTES, FIELD_PAYLOAD = 8, 16
_OPAQUE = FIELD_ATTRIBUTES | FIELD_PAYLOAD
_NONE = sealed(no_offsets())
MAX_BYTES = 1 << 20  # estimated size at which a delivery is split
_KEPT = 12  # bytes that a pair takes in the log
_SENT = 40  # bytes, about, that a pair takes in a delivery


def take(column: StringColumn, rows: I64) -> StringColumn:
    """Returns these rows of a string column as a new one."""
    off, data = column
    out: StringColumn = take_spans(sealed(off[:-1]), sealed(off[1:]), sealed(data), rows)
    return out


def matched(
    release: MatchRelease, row: U32, handle: I64, session: I64, written: int
) -> MatchedRecord:
    """Returns the record of pairs of a release, split by session, with each object once. There is
    at least one pair, and their rows rise. The caller still sets `first`."""
    rows, index = runs(sealed(row))
    ids, texts = (release.id_off, release.id), (release.text_off, release.text)
    opaque = release.opaque_off, release.opaque
    time, lon, lat = release.time, release.lon, release.lat
    if len(rows) < len(time):
        found = np.searchsorted(release.row, rows)
        ids, texts = take(ids, found), take(texts, found)
        opaque = take_opaque(*opaque, found)
        time, lon, lat = time[found], lon[found], lat[found]
    offset = release.batch + rows
    if len(release.offset):
        offset = release.offset[np.searchsorted(release.row, rows)]
    low, high = int(session.min()), int(session.max())
    cut = np.zeros(1, np.int64)
    if low != high:
        # NumPy sorts 16-bit integers by radix.
        keys = session.astype(np.uint16) if low >= 0 and high < 1 << 16 else session
        order = np.argsort(keys, kind="stable")
        session, index, handle = session[order], index[order], handle[order]
        cut = np.append(cut, np.flatnonzero(np.diff(session)) + 1)
    return MatchedRecord(
        dispatcher=release.dispatcher,
        batch=release.batch,
        end=release.end if release.whole else release.batch,
        lsn=release.needs,
        written=written,
        session=session[cut],
        first=np.zeros(len(cut), np.int64),
        cut=np.append(cut, len(session)),
        handle=sealed(handle),
        index=sealed(index),
        offset=offset,
        id_off=sealed(ids[0]),
        id=sealed(ids[1]),
        time=time,
        lon=lon,
        lat=lat,
        text_off=sealed(texts[0]),
        text=sealed(texts[1]),
        opaque_off=sealed(opaque[0]),
        opaque=sealed(opaque[1]),
    )


def bytes_of(record: MatchedRecord) -> list[int]:
    """Returns the bytes of each session's pairs in the log; each counts the objects it has."""
    cut = sealed(record.cut)
    if len(cut) == 2:  # one session, which has all objects
        return [_KEPT * int(cut[1]) + _count_bytes(record) + len(record.opaque)]
    sizes: I64 = count_slice_bytes(
        cut, record.index, record.id_off, record.text_off, record.opaque_off, _KEPT
    )
    out: list[int] = sizes.tolist()
    return out


def _count_bytes(record: MatchedRecord) -> int:
    """Returns the bytes of all objects but what is opaque."""
    return OBJECT_BYTES * len(record.time) + len(record.id) + len(record.text)


def find_delivery_end(record: MatchedRecord, a: int, b: int, fields: int) -> int:
    """Returns where a delivery of the pairs from a on has to end, b at the latest, with the
    `fields` that the stream wants."""
    index = record.index[a:b]
    most = _SENT * (b - a) + _count_bytes(record)
    opaque_off = _NONE
    if fields & _OPAQUE:
        opaque_off = record.opaque_off
        most += len(record.opaque)
    if most <= MAX_BYTES:
        return b
    size: int = count_fitting(index, record.id_off, record.text_off, opaque_off, _SENT, MAX_BYTES)
    return a + size


def make_delivery(
    record: MatchedRecord, a: int, b: int, first: int, fields: int, new: I64, names: StringColumn
) -> DeliveryColumns:
    """Returns a delivery of the pairs a..b of a record, numbered from `first`, with the `fields`
    that the stream wants and the names of the `new` handles."""
    ids, texts = (record.id_off, record.id), (record.text_off, record.text)
    offset, lon, lat, time = record.offset, record.lon, record.lat, record.time
    attributes = payloads = None
    if b - a == len(record.index):  # all pairs, with all objects
        index = record.index
        if fields & _OPAQUE:
            attributes, payloads = _take_opaque(record, np.arange(len(time)))
    else:
        rows, index = runs(sealed(record.index[a:b]))
        ids, offset = take(ids, rows), offset[rows]
        texts = take(texts, rows) if fields & FIELD_TEXT else texts
        lon, lat, time = lon[rows], lat[rows], time[rows]
        if fields & _OPAQUE:
            attributes, payloads = _take_opaque(record, rows)
    position = bool(fields & FIELD_POSITION)
    return DeliveryColumns(
        session_seq=first,
        new_handles=new,
        new_query_ids=names,
        pair_handles=record.handle[a:b],
        pair_objects=index,
        object_ids=ids,
        object_offsets=offset,
        partition=record.dispatcher,
        lon=lon if position else None,
        lat=lat if position else None,
        time_ms=time if fields & FIELD_TIME else None,
        text=texts if fields & FIELD_TEXT else None,
        attributes=attributes if fields & FIELD_ATTRIBUTES else None,
        payloads=payloads if fields & FIELD_PAYLOAD else None,
    )


def _take_opaque(
    record: MatchedRecord, rows: I64
) -> tuple[MessageColumn | None, MessageColumn | None]:
    """Returns the attributes and the payloads of these rows, each None if no row has any."""
    if not len(record.opaque_off):
        return None, None
    found = split_opaque(*take_opaque(record.opaque_off, record.opaque, rows), len(rows))
    return (
        (found.attributes_off, found.attributes) if len(found.attributes) else None,
        (found.payload_off, found.payload) if len(found.payload) else None,
    )


def find_shed(record: MissingRecord, session: int) -> DeliveryShed | None:
    """Returns what a session is told of shed load; None if it was not shed."""
    if not len(record.shed):
        return None
    begin, end, first, stop, objects, sampled = record.shed.tolist()
    share = float(record.share[np.searchsorted(record.session, session)])
    return DeliveryShed(record.dispatcher, begin, end, first, stop, objects, sampled, share)


def gap(first: int, last: int, shed: DeliveryShed | None = None) -> DeliveryColumns:
    """Returns a delivery that announces that the pairs first..last are lost; its number is the
    next pair's. If it is not known how many pairs those were, the gap counts none."""
    none = np.zeros(0, np.int64)
    text = np.zeros(1, np.int64), np.zeros(0, np.uint8)
    lost = DeliveryGap(first, last, count_pairs(first, last) if shed is None else 0, shed)
    return DeliveryColumns(
        last + 1, none, text, none, np.zeros(0, np.uint32), text, none, 0, gap=lost
    )
