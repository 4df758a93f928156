"""Which tags are dropped when units, or parts of them, go to other workers."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import U32, U64
from ps2stream.workers.radix.drops import list_lost_shards, list_lost_tags
from ps2stream.workers.radix.gi2 import RadixGI2
from tests.support.postings import GRID, columns, random_query
from tests.support.shards import place_of


def test_the_tags_that_go_are_listed_with_the_slots_that_have_them() -> None:
    rng = np.random.default_rng(4)
    index = RadixGI2(GRID)
    drawn = [q for q in (random_query(rng, i + 1) for i in range(30)) if q.tags][:20]
    index.insert(*columns(drawn))
    of = index._arrays, index._updates, index._lines
    places = {place_of(query.boxes[0]) for query in drawn}
    few = {place for place in places if place % 2}

    def keep_few(cell: U32, term: U64, place: U64) -> np.ndarray:
        assert set(place.tolist()) == places
        return np.isin(place, np.array(sorted(few), np.uint64))

    [(first, last, kept)] = list_lost_shards(*of, keep_few)
    assert (first, last) == (0, len(drawn))
    stay = sum(len(q.tags) for q in drawn if place_of(q.boxes[0]) in few)
    assert (int(kept.sum()), len(kept)) == (stay, sum(len(q.tags) for q in drawn))
    assert list_lost_tags(*of, lambda cell, term: np.ones(len(cell), np.bool_)) == []
