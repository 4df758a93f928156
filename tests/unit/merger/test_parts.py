"""The merger's parts and kernels against their twins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.merger import fanout, kernels
from ps2stream.merger.backlog import BacklogPlace, SessionBacklog
from ps2stream.merger.dedup import DedupWindow
from ps2stream.merger.intervals import OffsetIntervals
from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.names import QueryNames
from ps2stream.merger.sessions import KnownHandles
from ps2stream.protocol.frame import column_to_strings, strings_to_column
from tests.support.memory_log import MemoryLog
from tests.support.merging import matches, payload

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 60)), max_size=150)


@settings(deadline=None)
@given(PAIRS)
def test_distinct_pairs(pairs: list[tuple[int, int]]) -> None:
    row, handle = np.array(pairs, np.int64).reshape(-1, 2).T
    out = kernels.distinct_pairs(row.astype(np.uint32), handle, handle * 7, 7)
    want = sorted(set(pairs))
    assert list(zip(*(c.tolist() for c in out), strict=True)) == [(r, h, 7 * h) for r, h in want]


@settings(deadline=None)
@given(st.lists(st.integers(0, 9)))
def test_runs(values: list[int]) -> None:
    column = np.array(sorted(values), np.uint32)
    value, index = kernels.runs(column)
    assert value.tolist() == sorted(set(values))
    assert value[index].tolist() == column.tolist()


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1), st.data())
def test_take(values: list[str], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(values) - 1)))
    out = fanout.take(strings_to_column(values), np.array(rows, np.int64))
    assert column_to_strings(*out) == [values[i] for i in rows]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 300) | st.integers(2**62, 2**62 + 300), max_size=300)))
def test_known(calls: list[list[int]]) -> None:
    known, twin = KnownHandles(), set[int]()
    for handles in calls:
        new = known.learn(np.array(handles, np.int64)).tolist()
        assert new == [h for h in dict.fromkeys(handles) if h not in twin]
        twin |= set(handles)


def test_a_stream_that_knows_too_much_is_told_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ps2stream.merger.sessions.MAX_KNOWN", 100)
    known = KnownHandles()
    assert len(known.learn(np.arange(1, 151))) == 150
    assert len(known.learn(np.arange(1, 151))) == 150
    assert len(known._table) <= 1_024


def test_names_survive_forgetting_and_growth() -> None:
    names = QueryNames()
    for start in range(1, 10_001, 500):
        handles = np.arange(start, start + 500)
        names.add(handles, *strings_to_column(f"n{h}é" for h in handles.tolist()))
    for start in range(1, 8_001, 100):
        names.forget(np.arange(start, start + 100))
        names.forget(np.arange(start, start + 2))  # again
    assert len(names) == 2_000
    some = np.array([10_000, 8_001, 9_999])
    assert column_to_strings(*names.of(some)) == ["n10000é", "n8001é", "n9999é"]
    for unknown in (7, 10_001):
        asked = np.array([8_001, unknown])
        assert names.known(asked).tolist() == [True, False]
        with pytest.raises(KeyError, match=f"query {unknown}"):
            names.of(asked)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6))), st.integers(0, 40))
def test_intervals(ranges: list[tuple[int, int]], start: int) -> None:
    found, twin = OffsetIntervals(), set[int]()
    for a, size in ranges:
        found.add(a, a + size)
        twin |= set(range(a, a + size))
    assert {i for a, b in found.items() for i in range(a, b)} == twin
    assert all(b < c for (_, b), (c, _) in itertools.pairwise(found.items()))
    for stop in range(start, start + 8):
        asked = set(range(start, stop))
        assert found.covers(start, stop) == ((asked or {start}) <= twin)
        assert {i for a, b in found.within(start, stop) for i in range(a, b)} == twin & asked


def test_a_window_refuses_what_is_done_or_given_up() -> None:
    window = DedupWindow()
    assert window.payload(payload(0, 1, 5, expected=0))
    assert window.payload(payload(9, 1, 6, expected=0))
    for done in window.ready(9):
        window.finish(done.batch, done.batch + 1)
    assert window.payload(payload(4, 1, 5))
    window.answer(matches(6, []))
    window.advance(6)
    window.advance(5)
    assert window.watermark == 6
    assert len(window) == 1  # it may be of LSN 6
    assert not window.payload(payload(4, 1, 5))
    assert window.done.items() == [(0, 1), (9, 10)]
    window.advance(6, oldest=9)
    assert len(window) == 0
    assert window.done.items() == [(0, 10)]


def test_answers_alone_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ps2stream.merger.dedup.EARLY", 8)
    window = DedupWindow()
    for batch in range(100):
        window.answer(matches(batch, []))
    assert len(window) == 8
    for batch in range(100):
        window.payload(payload(batch, 1, 5))
        window.answer(matches(batch, []))
    assert len(window.ready(5)) == 100


def test_a_higher_attempt_takes_the_place_of_a_lower_one() -> None:
    window = DedupWindow()
    window.payload(payload(0, 4, 5, expected=2))
    window.answer(matches(0, [(0, 1, 1)], worker=0))
    window.answer(matches(0, [(1, 1, 1)], worker=1, attempt=1))
    assert not window.ready(5)
    window.answer(matches(0, [(2, 1, 1)], worker=1))  # of the first attempt
    window.payload(payload(0, 4, 5, expected=1))
    assert not window.ready(5)
    window.payload(payload(0, 4, 5, expected=1, attempt=1))
    [done] = window.ready(5)
    assert window.pairs(done)[0].tolist() == [1]


def test_a_withdrawn_batch_is_given_up_and_its_first_part_is_not() -> None:
    window = DedupWindow()
    window.payload(payload(0, 4, 5))
    window.withdraw(0, 3)
    window.answer(matches(0, [(3, 1, 1)], attempt=3))
    assert len(window) == 0
    window.answer(matches(0, [(1, 1, 1)], attempt=4))
    window.withdraw(0, 3)  # which the part's answer overtook
    window.payload(payload(0, 2, 5, attempt=4))
    assert len(window.ready(5)) == 1


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 20), max_size=60), st.data())
def test_a_backlog_finds_and_drops(steps: list[int], data: st.DataObject) -> None:
    """With blocks of two rows, so that there are many levels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ps2stream.merger.backlog.BLOCK", 2)
        patch.setattr("ps2stream.merger.journal.CACHE_BYTES", 100)
        backlog, twin = SessionBacklog(1, MatchJournal(MemoryLog())), list[BacklogPlace]()
        following, position = 1, 0
        for step in steps:
            for _ in range(step):
                pairs = data.draw(st.integers(1, 3))
                place = BacklogPlace(position, following, following + pairs - 1, position % 7)
                backlog.append(*place)
                twin.append(place)
                following, position = following + pairs, position + 1
            number = data.draw(st.integers(max(0, following - 60), following - 1))
            backlog.drop(number)
            twin = [place for place in twin if place.last > number]
            assert backlog.oldest == (twin[0] if twin else None)
            assert backlog.size == sum(place.size for place in twin)
            for place in twin:
                assert backlog.find(place.first) == backlog.find(place.last) == place
            for missing in (0, following):
                with pytest.raises(KeyError):
                    backlog.find(missing)
            assert backlog.held_bytes < 4_000


@settings(deadline=None)
@given(st.lists(st.integers(0, 3) | st.integers(65_536, 65_539), min_size=1, max_size=60))
def test_a_record_has_each_session_apart(sessions: list[int]) -> None:
    n = len(sessions)
    rows = np.sort(np.arange(n, dtype=np.uint32) // 2 * 2)
    objects = payload(100, n + 1, 1)
    record = fanout.matched(objects, rows, np.arange(n), np.array(sessions, np.int64), 7)
    want: dict[int, list[tuple[int, int]]] = {}
    for i, s in enumerate(sessions):
        want.setdefault(s, []).append((i, 100 + int(rows[i])))
    assert record.session.tolist() == sorted(want)
    for s, a, b in zip(record.session.tolist(), record.cut[:-1], record.cut[1:], strict=True):
        offsets = record.offset[record.index[a:b]].tolist()
        assert list(zip(record.handle[a:b].tolist(), offsets, strict=True)) == want[s]
    texts = column_to_strings(record.text_off, record.text)
    assert texts == [f"té{offset}" for offset in record.offset.tolist()]
    assert record.time.tolist() == (record.offset * 10).tolist()
    size = 48 + len("o100") + len("té100".encode())
    assert fanout.bytes_of(record) == [
        12 * len(pairs) + size * len({offset for _, offset in pairs})
        for _, pairs in sorted(want.items())
    ]
