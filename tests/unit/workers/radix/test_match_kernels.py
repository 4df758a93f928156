"""Matching in the radix GI2 around the size of a block of objects, and nothing is changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ps2stream.workers.radix.arrays import RadixMatches
from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.match_kernels import KEYS
from ps2stream.workers.radix.verify_kernels import BATCH, CANDIDATES, HITS
from tests.support.crowds import GRID as CROWD_GRID
from tests.support.crowds import brute_force, draw_crowd, draw_objects, pairs_of
from tests.support.postings import GRID, check, columns, objects, random_query


@pytest.mark.parametrize("count", [1, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH + 5])
def test_blocks_of_any_length_match_what_the_definition_says(count: int) -> None:
    rng = np.random.default_rng(count)
    queries = [random_query(rng, handle) for handle in range(1, 200)]
    index = RadixGI2(GRID)
    index.insert(*columns(queries))
    pairs = check(index, queries, 200, objects(rng, count))
    assert pairs or count == 1


@pytest.mark.parametrize("room", [2 * CANDIDATES + 1, 2 * CANDIDATES + 7, 5 * CANDIDATES])
def test_nothing_is_written_beyond_the_room_for_matches(room: int) -> None:
    """The room is full amid a block of objects, again and again; what lies behind it stays."""
    rng = np.random.default_rng(room)
    crowd = draw_crowd(rng, 2000, 0.1, 3.0)
    index = RadixGI2(CROWD_GRID)
    index.insert(*crowd.rows(0, 2000))
    beyond, narrow = [], []
    for column in index._room:
        memory = np.full(room + 128, 99, column.dtype)
        beyond.append(memory[room:])
        narrow.append(memory[:room])
    index._room = RadixMatches(*narrow)
    some, has = draw_objects(rng, crowd, 300)
    want = brute_force(crowd, 2000, some, has)
    assert len(want) > 3 * room
    assert pairs_of(index.match(2000, *some)) == want
    assert all((memory == 99).all() for memory in beyond)


@pytest.mark.parametrize("terms", [KEYS // 2 - 1, KEYS // 2, KEYS // 2 + 1, 3 * KEYS])
def test_an_object_of_any_number_of_terms_is_matched(terms: int) -> None:
    """Others are before and behind it, with so many terms that they fill blocks too."""
    queries = [random_query(np.random.default_rng(handle), handle) for handle in range(1, 200)]
    index = RadixGI2(GRID)
    index.insert(*columns(queries))
    few = objects(np.random.default_rng(5), 40)
    lon, lat, off, term = few
    size = np.diff(off)
    size[[10, 20, 21]] = terms
    rng, parts = np.random.default_rng(6), []
    for i, n in enumerate(size.tolist()):
        own = term[off[i] : off[i + 1]]
        more = rng.choice(1 << 40, n, replace=False).astype(np.uint64) + np.uint64(1 << 20)
        parts.append(np.sort(np.concatenate([own, more])[:n]) if i in (10, 20, 21) else own)
    off = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    assert check(index, queries, 200, (lon, lat, off, np.concatenate(parts)))


def test_matches_come_in_the_order_of_their_rows() -> None:
    rng = np.random.default_rng(8)
    crowd = draw_crowd(rng, 2000, 1.0, 0.5)
    index = RadixGI2(CROWD_GRID)
    index.insert(*crowd.rows(0, 2000))
    for count in (1, 2, 200):
        found = index.match(2000, *draw_objects(rng, crowd, count)[0])
        assert (np.diff(found.row.astype(np.int64)) >= 0).all()
    assert len(np.unique(found.row)) > 50


def test_matches_are_in_order_where_those_of_a_block_come_in_parts() -> None:
    """So many that `hits` is full amid a block."""
    rng = np.random.default_rng(9)
    crowd = draw_crowd(rng, HITS, 0.1, 3.0)
    index = RadixGI2(CROWD_GRID)
    index.insert(*crowd.rows(0, HITS))
    some, has = draw_objects(rng, crowd, 60)
    found = index.match(HITS, *some)
    assert (np.diff(found.row.astype(np.int64)) >= 0).all()
    assert len(found.row) > 2 * HITS
    assert pairs_of(found) == brute_force(crowd, HITS, some, has)


@pytest.mark.parametrize("column", range(4))
def test_columns_may_have_gaps(column: int) -> None:
    rng = np.random.default_rng(column)
    crowd = draw_crowd(rng, 500, 1.0, 0.5)
    index = RadixGI2(CROWD_GRID)
    index.insert(*crowd.rows(0, 500))
    some, has = draw_objects(rng, crowd, 100)
    wide = np.zeros((len(some[column]), 3), some[column].dtype)
    wide[:, 1] = some[column]
    with_gaps: Any = (*some[:column], wide[:, 1], *some[column + 1 :])
    found = index.match(500, *with_gaps)
    assert pairs_of(found) == brute_force(crowd, 500, some, has) != []


def test_matches_are_kept_when_others_are_found() -> None:
    """They are copies, and none where there are none."""
    rng = np.random.default_rng(2)
    crowd = draw_crowd(rng, 500, 1.0, 0.5)
    index = RadixGI2(CROWD_GRID)
    index.insert(*crowd.rows(0, 500))
    first, has = draw_objects(rng, crowd, 50)
    other, _ = draw_objects(rng, crowd, 50)
    found = index.match(500, *first)
    index.match(500, *other)
    assert pairs_of(found) == brute_force(crowd, 500, first, has)
    nowhere = index.match(500, np.array([170.0]), np.array([-80.0]), np.array([0, 0]), first[3][:0])
    assert [len(column) for column in nowhere] == [0, 0, 0]
    assert [column.dtype for column in nowhere] == [column.dtype for column in found]


def test_a_match_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    crowd = draw_crowd(rng, 2000, 1.0, 0.5)
    index = RadixGI2(CROWD_GRID)
    index.insert(*crowd.rows(0, 2000))
    index.delete(np.arange(1, 1000), np.full(999, 2001))
    index.purge(2001)
    before = [array.tobytes() for array in index._arrays]
    for as_of in (2000, 2001):
        index.match(as_of, *draw_objects(rng, crowd, 200)[0])
    assert [array.tobytes() for array in index._arrays] == before


def test_candidates_are_counted_for_their_object_or_level() -> None:
    rng = np.random.default_rng(4)
    crowd = draw_crowd(rng, 2000, 1.0, 0.5)
    index = RadixGI2(CROWD_GRID)
    index.insert(*crowd.rows(0, 2000))
    found = index.match(2000, *draw_objects(rng, crowd, 200)[0])
    base, levels = index.met()
    assert levels[0] == 0
    assert levels.any()
    assert base.sum() + levels.sum() >= len(found.row)
