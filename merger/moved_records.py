"""The part of a match log's records that goes with sessions to another merger."""

from __future__ import annotations

import dataclasses

import numpy as np

from ps2stream.merger.fanout import take
from ps2stream.merger.records import DeadNamesRecord, MatchedRecord, MissingRecord
from ps2stream.protocol.frame import Array, take_ragged
from ps2stream.protocol.opaque import take_opaque

MovingRecord = MatchedRecord | MissingRecord | DeadNamesRecord


def take_matched(record: MatchedRecord, chosen: Array) -> MatchedRecord | None:
    """Returns the pairs of some sessions, bool[sessions], with the objects that they name; None if
    there are none. It says nothing of which objects are done: the other merger has not seen them.
    """
    at = np.flatnonzero(chosen)
    if not len(at):
        return None
    cut, handle = take_ragged(record.cut, record.handle, at)
    objects, index = np.unique(take_ragged(record.cut, record.index, at)[1], return_inverse=True)
    rows = objects.astype(np.int64)
    ids, texts = (record.id_off, record.id), (record.text_off, record.text)
    id_off, ids_ = take(ids, rows)
    text_off, text = take(texts, rows)
    opaque_off, opaque = take_opaque(record.opaque_off, record.opaque, rows)
    return dataclasses.replace(
        record,
        end=record.batch - 1,
        session=record.session[at],
        first=record.first[at],
        cut=cut,
        handle=handle,
        index=index.astype(np.uint32),
        offset=record.offset[rows],
        id_off=id_off,
        id=ids_,
        time=record.time[rows],
        lon=record.lon[rows],
        lat=record.lat[rows],
        text_off=text_off,
        text=text,
        opaque_off=opaque_off,
        opaque=opaque,
    )


def take_missing(record: MissingRecord, chosen: Array) -> MissingRecord | None:
    """Returns the gaps of some sessions, bool[sessions]; None if there are none."""
    at = np.flatnonzero(chosen)
    if not len(at):
        return None
    share = record.share[at] if len(record.share) else record.share
    columns = record.session[at], record.first[at], record.last[at]
    return MissingRecord(*columns, record.dispatcher, 0, 0, record.shed, share)


def take_names(record: DeadNamesRecord, chosen: Array) -> DeadNamesRecord | None:
    """Returns the names of the queries of some sessions, bool[names]; None if there are none."""
    at = np.flatnonzero(chosen)
    if not len(at):
        return None
    columns = record.session[at], record.handle[at], record.last[at]
    return DeadNamesRecord(*columns, *take_ragged(record.id_off, record.id, at))
