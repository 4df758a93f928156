"""The merger's parts and kernels against their twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.batch import column_to_strings, strings_to_column
from ps2stream.merger import fanout, kernels
from ps2stream.merger.dedup import Window
from ps2stream.merger.names import Names
from ps2stream.merger.sessions import Known
from tests.unit.merging import (
    matches,
    payload,
)

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
    known, twin = Known(), set[int]()
    for handles in calls:
        new = known.learn(np.array(handles, np.int64)).tolist()
        assert new == [h for h in dict.fromkeys(handles) if h not in twin]
        twin |= set(handles)


def test_a_stream_that_knows_too_much_is_told_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ps2stream.merger.sessions.MAX_KNOWN", 100)
    known = Known()
    assert len(known.learn(np.arange(1, 151))) == 150
    assert len(known.learn(np.arange(1, 151))) == 150
    assert len(known._table) <= 1_024


def test_names_survive_forgetting_and_growth() -> None:
    names = Names()
    early = None
    for start in range(1, 10_001, 500):
        handles = np.arange(start, start + 500)
        names.add(handles, *strings_to_column(f"n{h}é" for h in handles.tolist()))
        early = early or names.snapshot()
    for start in range(1, 8_001, 100):
        names.forget(np.arange(start, start + 100))
        names.forget(np.arange(start, start + 2))  # again
    assert len(names) == 2_000
    some = np.array([10_000, 8_001, 9_999])
    assert column_to_strings(*names.snapshot().of(some)) == ["n10000é", "n8001é", "n9999é"]
    assert early is not None
    assert column_to_strings(*early.of(np.array([7]))) == ["n7é"]
    for unknown in (7, 10_001):
        with pytest.raises(KeyError, match=f"query {unknown}"):
            names.snapshot().of(np.array([8_001, unknown]))


def test_a_window_refuses_what_it_has_forgotten() -> None:
    window = Window()
    window.payload(payload(0, 1, 5, expected=0))
    window.payload(payload(1, 1, 6, expected=0))
    assert len(window.ready(9)) == 2
    window.advance(6)
    window.advance(5)
    assert window.watermark == 6
    assert window.remembered() == 1
    window.answer(matches(0, []))
    window.answer(matches(1, []))
    assert len(window) == 0


@settings(deadline=None)
@given(st.lists(st.integers(0, 3) | st.integers(65_536, 65_539), max_size=60))
def test_by_session(sessions: list[int]) -> None:
    n = len(sessions)
    found = fanout.by_session(np.arange(n, dtype=np.uint32), np.arange(n), np.array(sessions, int))
    got = {s: (row.tolist(), handle.tolist()) for s, row, handle in found}
    want: dict[int, list[int]] = {}
    for i, s in enumerate(sessions):
        want.setdefault(s, []).append(i)
    assert got == {s: (rows, rows) for s, rows in want.items()}
