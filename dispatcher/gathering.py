"""What mergers get of a batch: the pairs that workers found, and the objects that they name."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.dispatcher.object_kernels import take_named_objects
from ps2stream.protocol.frame import sealed
from ps2stream.protocol.messages.objects import MatchBatch, MatchRelease
from ps2stream.protocol.opaque import take_opaque
from ps2stream.protocol.rows import ObjectRows


class ReleaseHead(NamedTuple):
    """The integers of MatchRelease. All mergers have the same but for `release`, which counts on
    from that of the first, and `answers` and `needs`."""

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


def gather_matches(
    rows: ObjectRows, answers: Sequence[MatchBatch], needs: Sequence[int], head: ReleaseHead
) -> list[tuple[int, MatchRelease]]:
    """Returns what each merger that has a match gets of the workers' answers, by merger. `needs`:
    the last update that concerns each merger.

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
                answers=len(parts), release=head.release + len(out), needs=min(last, head.lsn)
            )
            out.append((merger, _gather_for_one(rows, parts, own)))
    return out


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
        *head, row, id_off, id_, time, lon, lat, text_off, text,
        opaque[0], opaque[1], pair_row, handle, session,
    )  # fmt: skip
