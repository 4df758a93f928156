"""What mergers get of a batch, against a twin that goes pair by pair."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from ps2stream.dispatcher.gathering import ReleaseHead, gather_matches, order_pairs
from ps2stream.protocol.frame import column_to_strings, decode, strings_to_column
from ps2stream.protocol.messages.objects import MatchBatch, MatchRelease
from ps2stream.protocol.rows import ObjectRows
from ps2stream.protocol.session_map import SessionMap
from tests.support.routers import Pair, answer

WHOLE = ReleaseHead(3, 100, 6, 1, 0, 40, 8, 0, 7, 50, 2)


def make_rows(n: int, rng: random.Random, has_opaque: bool = False) -> ObjectRows:
    ids = [f"o{i}" * rng.randint(1, 2) for i in range(n)]
    texts = ["é" * rng.randint(0, 9) for _ in range(n)]
    lon, lat = (np.array([rng.random() for _ in range(n)]) for _ in range(2))
    time = np.array([rng.randrange(1 << 40) for _ in range(n)], np.int64)
    terms = np.zeros(n + 1, np.int64), np.zeros(0, np.uint64)
    opaque = [rng.choice(["", "x", "payload"]) for _ in range(n)] if has_opaque else []
    return ObjectRows(
        *strings_to_column(ids), time, lon, lat, *strings_to_column(texts), *terms,
        *(strings_to_column(opaque) if opaque else ()),
    )  # fmt: skip


def opaque_of(table: MatchRelease | ObjectRows, n: int) -> list[str]:
    off = table.opaque_off
    return column_to_strings(off, table.opaque) if len(off) else [""] * n


def objects_of(frame: MatchRelease) -> list[tuple[object, ...]]:
    """Each object of a release: row, id, time, position, text, what is opaque."""
    columns = (
        frame.row.tolist(), column_to_strings(frame.id_off, frame.id), frame.time.tolist(),
        frame.lon.tolist(), frame.lat.tolist(), column_to_strings(frame.text_off, frame.text),
        opaque_of(frame, len(frame.row)),
    )  # fmt: skip
    return list(zip(*columns, strict=True))


def gather_naively(
    rows: ObjectRows, found: list[list[Pair]], mergers: int
) -> dict[int, tuple[list[tuple[object, ...]], list[Pair]]]:
    """The objects and pairs of each merger that has some."""
    ids = column_to_strings(rows.id_off, rows.id)
    texts = column_to_strings(rows.text_off, rows.text)
    opaque = opaque_of(rows, len(rows))
    out: dict[int, tuple[list[tuple[object, ...]], list[Pair]]] = {}
    for merger in range(mergers):
        pairs = [pair for worker in found for pair in worker if pair[2] % mergers == merger]
        named = sorted({row for row, _, _ in pairs})
        objects: list[tuple[object, ...]] = [
            (
                i,
                ids[i],
                int(rows.time[i]),
                float(rows.lon[i]),
                float(rows.lat[i]),
                texts[i],
                opaque[i],
            )
            for i in named
        ]
        if pairs:
            out[merger] = objects, sorted(pairs)
    return out


@pytest.mark.parametrize("seed", range(60))
def test_each_merger_gets_its_pairs_and_what_they_name(seed: int) -> None:
    rng = random.Random(seed)
    n, mergers, workers = rng.randint(1, 40), rng.randint(1, 4), rng.randint(1, 4)
    rows = make_rows(n, rng, has_opaque=seed % 3 == 0)
    few = rng.choice([0, 1, 5, 5 * n])  # with many, each merger gets every object
    found = [
        [
            (rng.randrange(n), rng.randint(1, 9), rng.randrange(9))
            for _ in range(rng.randint(0, few))
        ]
        for _ in range(workers)
    ]
    answers = [answer(w, 100, *pairs, mergers=mergers) for w, pairs in enumerate(found)]
    head = WHOLE._replace(size=n)
    concern = [rng.randint(0, 12) for _ in range(mergers)]  # some beyond the batch's LSN
    out = gather_matches(rows, answers, concern, head, SessionMap.first(mergers))
    want = gather_naively(rows, found, mergers)
    assert [merger for merger, _ in out] == [*want]
    assert [frame.release for _, frame in out] == [*range(40, 40 + len(out))]
    for merger, sent in out:
        frame = decode(sent.encode())
        assert isinstance(frame, MatchRelease)
        assert (frame.dispatcher, frame.batch, frame.size, frame.whole) == (3, 100, n, 1)
        assert (frame.lsn, frame.watermark, frame.oldest, frame.end) == (8, 7, 50, 100 + n)
        of_merger = [sum(pair[2] % mergers == merger for pair in pairs) for pairs in found]
        assert frame.answers == len(found) - of_merger.count(0)
        assert frame.needs == min(concern[merger], 8)
        pairs = zip(
            frame.pair_row.tolist(), frame.handle.tolist(), frame.session.tolist(), strict=True
        )
        assert (objects_of(frame), sorted(pairs)) == want[merger]


def test_the_columns_of_a_batch_in_which_every_object_matches_are_not_copied() -> None:
    rows = make_rows(6, random.Random(1))
    everything = answer(0, 100, *((row, 1, row) for row in range(6)), mergers=1)
    [(_, whole)] = gather_matches(rows, [everything], [8], WHOLE, SessionMap.first(1))
    assert whole.text is rows.text
    assert whole.id_off is rows.id_off
    assert whole.row.tolist() == [*range(6)]
    every_row = answer(0, 100, *((row, 1, row) for row in range(6)))
    halves = gather_matches(rows, [every_row], [8, 8], WHOLE, SessionMap.first(2))
    assert [frame.row.tolist() for _, frame in halves] == [[0, 2, 4], [1, 3, 5]]
    assert all(len(frame.text) < len(rows.text) for _, frame in halves)


def test_a_batch_without_a_match_is_for_no_merger() -> None:
    rows = make_rows(6, random.Random(1))
    assert (
        gather_matches(rows, [answer(0, 100), answer(1, 100)], [8, 8], WHOLE, SessionMap.first(2))
        == []
    )
    assert gather_matches(rows, [], [8, 8], WHOLE, SessionMap.first(2)) == []


@pytest.mark.parametrize("others", [[], [(5, 1, 1)]], ids=["alone", "among others"])
def test_a_row_that_the_batch_does_not_have_is_refused(others: list[Pair]) -> None:
    rows = make_rows(6, random.Random(1))
    answers: list[MatchBatch] = [answer(0, 100, (6, 1, 1))]
    answers += [answer(1, 100, *others)] * bool(others)
    with pytest.raises(ValueError, match="a match names row 6 of a batch of 6"):
        gather_matches(rows, answers, [8, 8], WHOLE, SessionMap.first(2))


@pytest.mark.parametrize("seed", range(20))
def test_an_answer_by_another_table_is_ordered_anew(seed: int) -> None:
    rng = random.Random(seed)
    before = SessionMap.first(rng.randint(1, 3))
    now = before.spread(rng.randint(1, 4), 9)
    n = rng.randint(0, 30)
    pairs = sorted((rng.randrange(5), rng.randint(1, 9), rng.randint(1, 99)) for _ in range(n))
    given = order_pairs(dataclasses.replace(answer(0, 100, *pairs, mergers=1), since=-1), before)
    found = order_pairs(given, now)
    assert found.since == 9
    assert order_pairs(found, now) is found
    assert found.count.tolist() == [
        sum(now.merger_of(session) == m for _, _, session in pairs) for m in range(now.mergers)
    ]
    of = [now.merger_of(session) for session in found.session.tolist()]
    assert of == sorted(of)
    rows = zip(found.row.tolist(), found.handle.tolist(), found.session.tolist(), strict=True)
    assert sorted(rows) == pairs
