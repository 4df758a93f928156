"""What mergers get of a batch: the pairs that workers found, and the objects that they name."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.dispatcher.object_kernels import take_named_objects
from ps2stream.protocol.frame import F64, I64, U32, sealed
from ps2stream.protocol.messages.objects import MatchBatch, MatchRelease
from ps2stream.protocol.opaque import take_opaque
from ps2stream.protocol.rows import ObjectRows, no_offsets
from ps2stream.protocol.session_map import SessionMap


class ReleaseHead(NamedTuple):
    """The integers of MatchRelease, of which `dispatchers` is the last of its fields. All mergers
    have the same but for `release`, which counts on from that of the first, and `answers` and
    `needs`."""

    dispatcher: int
    batch: int
    size: int
    whole: int
    answers: int
    release: int
    lsn: int
    needs: int
    watermark: int
    oldest: int
    dispatchers: int = 0


class RoutingProgress(NamedTuple):
    """What mergers are informed of: every batch of a lower LSN than `watermark` or a lower offset
    than `oldest` is complete; concern(merger) is the last update that concerns it; dispatchers: as
    in RoutedObjects."""

    watermark: int
    oldest: int
    concern: Callable[[int], int]
    dispatchers: int = 0


class ShedShares(NamedTuple):
    """What a notice that load was shed says; see MatchRelease."""

    shed: I64
    shed_session: I64
    shed_share: F64


class RetroParts(NamedTuple):
    """What a batch of matches of new queries with valid objects has besides its objects: the pairs
    as an answer of a worker, if there are any, of which `highest` is the highest handle; offset:
    where each object lies; missed: sessions to be told that objects are gone. Or only `shed`, a
    notice to all sessions."""

    answers: Sequence[MatchBatch] = ()
    offset: I64 = no_offsets()
    missed: I64 = no_offsets()
    highest: int = 0
    shed: ShedShares | None = None


NOT_RETRO = RetroParts()


def _make_no_objects() -> ObjectRows:
    none, empty = np.zeros(1, np.int64), np.zeros(0, np.uint8)
    numbers = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    return ObjectRows(none, empty, *numbers, none, empty, no_offsets(), np.zeros(0, np.uint64))


NO_OBJECTS = _make_no_objects()


def gather_retro(
    row: U32, handle: I64, session: I64, sessions: SessionMap, offset: I64, missed: I64
) -> RetroParts:
    """Returns the parts of a batch with these pairs, by rising row, in the order of the mergers."""
    if not len(row):
        return RetroParts((), offset, missed)
    count = np.array([len(row)], np.int64)
    found = MatchBatch(-1, 0, 0, 0, 0, 0, count, row, handle, session, -1)
    return RetroParts((order_pairs(found, sessions),), offset, missed, int(handle.max()))


def order_pairs(answer: MatchBatch, sessions: SessionMap) -> MatchBatch:
    """Returns an answer with its pairs in the order of their mergers by this table."""
    if answer.since == sessions.lsn:
        return answer
    of = sessions.mergers_of(answer.session)
    order = np.argsort(of, kind="stable")
    return dataclasses.replace(
        answer,
        count=np.bincount(of, minlength=sessions.mergers).astype(np.int64),
        row=answer.row[order],
        handle=answer.handle[order],
        session=answer.session[order],
        since=sessions.lsn,
    )


def gather_matches(
    rows: ObjectRows,
    answers: Sequence[MatchBatch],
    needs: Sequence[int],
    head: ReleaseHead,
    sessions: SessionMap,
    retro: RetroParts = NOT_RETRO,
) -> list[tuple[int, MatchRelease]]:
    """Returns what each merger that has a match gets of the workers' answers, by merger, in the
    order of `sessions`. `needs`: the last update that concerns each merger.

    Raises ValueError if a worker names a row that the batch does not have.
    """
    cuts = [list(itertools.accumulate(answer.count.tolist(), initial=0)) for answer in answers]
    out: list[tuple[int, MatchRelease]] = []
    for merger, last in enumerate(needs):
        parts = [
            (answer, slice(cut[merger], cut[merger + 1]))
            for answer, cut in zip(answers, cuts, strict=True)
            if cut[merger] < cut[merger + 1]
        ]
        if parts:
            own = head._replace(
                answers=len(parts),
                release=head.release + len(out),
                # Of several new queries, the batch has the LSN of the first.
                needs=min(last, max(head.lsn, retro.highest)),
            )
            found = _gather_for_one(rows, parts, own)
            if len(retro.offset):
                found = dataclasses.replace(found, offset=retro.offset[found.row])
            out.append((merger, found))
    notice_of = {} if retro.shed is None else retro.shed._asdict()
    for merger, last in enumerate(needs if notice_of else ()):
        own = head._replace(release=head.release + len(out), needs=min(last, head.lsn))
        notice = _announce_missed(own, no_offsets())
        out.append((merger, dataclasses.replace(notice, **notice_of)))
    for merger, last in enumerate(needs if len(retro.missed) else ()):
        missed = retro.missed[sessions.mergers_of(retro.missed) == merger]
        if len(missed):
            own = head._replace(release=head.release + len(out), needs=min(last, head.lsn))
            out.append((merger, _announce_missed(own, missed)))
    return out


def _announce_missed(head: ReleaseHead, missed: I64) -> MatchRelease:
    """Returns a release without pairs that announces that objects are gone."""
    off, none, text = np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    place, row = np.zeros(0), np.zeros(0, np.uint32)
    return MatchRelease(
        *head[:-1], row, off, text, none, place, place, off, text, no_offsets(), text, row, none,
        none, missed=missed, dispatchers=head.dispatchers,
    )  # fmt: skip


def _gather_for_one(
    rows: ObjectRows, parts: list[tuple[MatchBatch, slice]], head: ReleaseHead
) -> MatchRelease:
    if len(parts) == 1:
        [(answer, span)] = parts
        pair_row, handle, session = answer.row[span], answer.handle[span], answer.session[span]
    else:
        pair_row = np.concatenate([answer.row[span] for answer, span in parts])
        handle = np.concatenate([answer.handle[span] for answer, span in parts])
        session = np.concatenate([answer.session[span] for answer, span in parts])
    ids, texts = (sealed(rows.id_off), sealed(rows.id)), (sealed(rows.text_off), sealed(rows.text))
    columns = sealed(rows.time), sealed(rows.lon), sealed(rows.lat)
    row, id_off, id_, time, lon, lat, text_off, text = take_named_objects(
        sealed(pair_row), ids, texts, columns
    )
    if len(row) > len(rows):
        raise ValueError(f"a match names row {pair_row.max()} of a batch of {len(rows)}")
    opaque = rows.opaque_off, rows.opaque
    if len(row) < len(rows):
        opaque = take_opaque(*opaque, row)
    else:
        id_off, id_, text_off, text = rows.id_off, rows.id, rows.text_off, rows.text
        time, lon, lat = rows.time, rows.lon, rows.lat
    return MatchRelease(
        *head[:-1], row, id_off, id_, time, lon, lat, text_off, text,
        opaque[0], opaque[1], pair_row, handle, session, dispatchers=head.dispatchers,
    )  # fmt: skip
