"""The table of which merger has a session."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.protocol.session_map import SLOTS, SessionMap, SessionMaps


@pytest.mark.parametrize("mergers", [1, 2, 3, 7, 64])
def test_the_first_table_has_each_session_where_the_remainder_says(mergers: int) -> None:
    table = SessionMap.first(mergers)
    assert len(table.table) >= SLOTS
    sessions = np.arange(1, 5000)
    assert (table.mergers_of(sessions) == sessions % mergers).all()
    assert table.merger_of(4321) == 4321 % mergers
    assert table.mergers == mergers


@pytest.mark.parametrize("seed", range(20))
def test_a_change_spreads_few_sessions_and_many_and_moves_few(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = SessionMap.first(int(rng.integers(1, 6)))
    for lsn in range(1, 6):
        mergers = int(rng.integers(1, 9))
        now = before.spread(mergers, lsn)
        assert (now.lsn, now.mergers) == (lsn, mergers)
        assert before.table is not now.table
        for slots in (3 * mergers, 100, len(now.table)):
            held = np.bincount(now.table[:slots], minlength=mergers)
            assert held.max() - slots / mergers <= 2, slots
        held = np.bincount(before.table, minlength=mergers)
        least = (
            np.maximum(held - len(now.table) / mergers, 0)[:mergers].sum() + held[mergers:].sum()
        )
        assert (now.table != before.table).sum() <= least + 3 * mergers
        before = now


def test_a_batch_belongs_by_its_lsn() -> None:
    before = SessionMap.first(2)
    maps = SessionMaps(before.spread(3, 50), before)
    assert maps.at(49) is before
    assert maps.at(50) is maps.now
    assert maps.finished().at(49) is maps.now
    assert (maps.complete_below, maps.finished().complete_below) == (0, 50)
    following = SessionMaps(maps.now.spread(2, 60), maps.now)
    assert following.complete_below == 50
    assert SessionMaps(before).order < maps.order < maps.finished().order < following.order
    assert maps.mergers == 3
    assert SessionMaps(before.spread(1, 50), before).mergers == 2


def test_what_moves_is_what_differs() -> None:
    before = SessionMap.first(3)
    maps = SessionMaps(before.spread(2, 9), before)
    assert maps.sources_of(0) == maps.sources_of(1) == [2]
    assert maps.sources_of(2) == []
    moved = sum(int(maps.moved(2, to).sum()) for to in (0, 1))
    assert moved == (before.table != maps.now.table).sum()
    needed = maps.needed_by(0)
    assert (needed != 0).tolist() == ((before.table == 0) | (maps.now.table == 0)).tolist()
    assert maps.finished().sources_of(0) == []


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_record_brings_the_tables_back(is_finished: bool) -> None:
    before = SessionMap.first(2).spread(4, 7)
    maps = SessionMaps(before.spread(3, 50), before)
    maps = maps.finished() if is_finished else maps
    found = SessionMaps.of_record(maps.record())
    assert found.now.lsn == 50
    assert found.now.table.tolist() == maps.now.table.tolist()
    assert (found.before is None) is is_finished
    if found.before is not None:
        assert found.before.lsn == 7
        assert found.before.table.tolist() == before.table.tolist()
