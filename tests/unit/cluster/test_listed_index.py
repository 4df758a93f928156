"""The index of rehearsals counts tags as the one of services does."""

from __future__ import annotations

import numpy as np

from ps2stream.cluster.listed_index import ListedIndex
from ps2stream.workers.gi2 import GI2
from tests.support.postings import GRID, columns, objects, random_query


def test_tags_are_counted_as_by_gi2() -> None:
    rng = np.random.default_rng(1)
    queries = [random_query(rng, i + 1) for i in range(200)]
    real, listed = GI2(GRID), ListedIndex()
    counts: list[int] = []
    for index in (real, listed):
        index.insert(*columns(queries[:150]))
        index.extend(*columns(queries[150:]))
        counts.append(index.postings(200))
        index.delete(np.arange(1, 50), np.full(49, 201))
        counts.append(index.postings(201))
        index.drop(lambda cell, term: term % 2 == 0)
        counts.append(index.postings(201))
        [census] = [counted for counted in index.census() if counted is not None]
        assert census.queries.sum() == counts[-1]
    assert counts[:3] == counts[3:]
    assert counts[0] > counts[1] > counts[2] > 0


def test_each_query_matches_the_first_object() -> None:
    rng = np.random.default_rng(2)
    index = ListedIndex()
    queries = [random_query(rng, i + 1) for i in range(20)]
    index.insert(*columns(queries))
    found = index.match(20, *objects(rng, 3))
    here = [query.handle for query in queries if query.tags]
    assert found.handle.tolist() == here
    assert found.session.tolist() == [3 * handle for handle in here]
    assert not found.row.any()
    assert index.met().base.tolist() == [0, 0, 0]
