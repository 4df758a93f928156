"""Which tags are dropped when units, or parts of them, go to other workers."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.protocol.frame import U32, U64
from ps2stream.workers.drops import drop_postings, drop_units
from ps2stream.workers.gi2 import GI2
from ps2stream.workers.radix.gi2 import RadixGI2
from tests.support.postings import GRID, check, columns, objects, random_query
from tests.support.shards import place_of, shard_of

WORKERS = (0, 1, 2)


@pytest.mark.takes_turns
@pytest.mark.parametrize("make_index", [GI2, RadixGI2])
def test_the_workers_of_a_sharded_unit_have_each_posting_once_and_find_each_pair_once(
    make_index: type[GI2 | RadixGI2],
) -> None:
    rng = np.random.default_rng(3)
    drawn = [random_query(rng, i + 1) for i in range(300)]
    tags = {query.handle: set(query.tags) for query in drawn}
    indexes = [make_index(GRID) for _ in WORKERS]
    stored = pairs = 0
    batch = objects(rng, 60)
    for worker, index in zip(WORKERS, indexes, strict=True):
        for query in drawn:
            query.tags = set(tags[query.handle])
        index.insert(*columns(drawn))

        def keep(cell: U32, term: U64, place: U64, worker: int = worker) -> np.ndarray:
            rows = zip(term.tolist(), place.tolist(), strict=True)
            return np.array([shard_of(WORKERS, *row) == worker for row in rows], bool)

        index.drop_shards(keep)
        for query in drawn:
            place = place_of(query.boxes[0])
            query.tags = {t for t in query.tags if shard_of(WORKERS, t[1], place) == worker}
        stored += index.postings(len(drawn))
        pairs += check(index, drawn, len(drawn), batch)
    assert stored == sum(map(len, tags.values()))
    for query in drawn:
        query.tags = tags[query.handle]
    whole = make_index(GRID)
    whole.insert(*columns(drawn))
    assert pairs == check(whole, drawn, len(drawn), batch) > 50


def test_nothing_changes_before_all_was_asked_for() -> None:
    rng = np.random.default_rng(4)
    index = GI2(GRID)
    drawn = [random_query(rng, i + 1) for i in range(20)]
    index.insert(*columns(drawn))
    before = index.stats()

    def fail(cell: U32, term: U64, place: U64) -> np.ndarray:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        drop_postings(index._arrays, fail)
    with pytest.raises(RuntimeError):
        drop_units(index._arrays, lambda cell, term: fail(cell, term, term))
    assert index.stats() == before
