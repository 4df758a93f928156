"""Deletes that wait for the watermark, against a list of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.workers.waiting import WaitingDeletes

LSNS = st.lists(st.integers(1, 60), max_size=8)


def pairs(deletes: WaitingDeletes) -> list[tuple[int, int]]:
    lsns, slots = deletes.columns().tolist()
    return list(zip(lsns, slots, strict=True))


@given(st.lists(st.tuples(LSNS, st.integers(0, 60)), max_size=12))
def test_what_the_watermark_has_passed_is_taken_once(steps: list[tuple[list[int], int]]) -> None:
    deletes, twin = WaitingDeletes(), list[tuple[int, int]]()
    slot = 0
    for lsns, watermark in steps:
        new = [(lsn, slot + i) for i, lsn in enumerate(lsns)]
        slot += len(new)
        twin += new
        deletes.add(*np.array(new, np.int64).reshape(-1, 2).T)
        assert [lsn for lsn, _ in pairs(deletes)] == sorted(lsn for lsn, _ in twin)
        assert (len(deletes), sorted(pairs(deletes))) == (len(twin), sorted(twin))
        ripe = deletes.take_ripe(watermark).tolist()
        assert sorted(ripe) == sorted(s for lsn, s in twin if lsn <= watermark)
        twin = [(lsn, s) for lsn, s in twin if lsn > watermark]
        assert len(deletes) == len(twin)


@given(st.lists(LSNS), st.integers(1, 5), st.integers(0, 60))
def test_the_earliest_are_taken_first_and_no_more_than_are_asked_for(
    parts: list[list[int]], most: int, watermark: int
) -> None:
    deletes, slot = WaitingDeletes(), 0
    for lsns in parts:
        deletes.add(np.array(lsns, np.int64), np.arange(slot, slot + len(lsns)))
        slot += len(lsns)
    lsn_of = {own: lsn for lsn, own in pairs(deletes)}
    want = sorted(lsn for lsn in lsn_of.values() if lsn <= watermark)
    taken = []
    while len(some := deletes.take_ripe(watermark, most)):
        assert len(some) <= most
        taken += [lsn_of[slot] for slot in some.tolist()]
        assert len(deletes) == slot - len(taken)
    assert taken == want


@given(LSNS, st.sets(st.integers(0, 7)))
def test_slots_without_postings_go_before_the_watermark(lsns: list[int], kept: set[int]) -> None:
    deletes = WaitingDeletes()
    slots = np.arange(len(lsns))
    deletes.add(np.array(lsns, np.int64), slots)
    left = np.array([3 if slot in kept else 0 for slot in range(8)], np.uint32)
    gone = deletes.take_empty(left).tolist()
    assert sorted(gone) == [s for s in slots.tolist() if s not in kept]
    assert sorted(pairs(deletes)) == sorted((lsns[s], s) for s in slots.tolist() if s in kept)
    assert len(deletes) == len(lsns) - len(gone)
    assert sorted(deletes.take_ripe(60).tolist()) == [s for s in slots.tolist() if s in kept]
