"""Matching in GI2 around the size of a block of objects, against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.workers.gi2 import GI2
from ps2stream.workers.kernels import BLOCK
from tests.support.postings import GRID, check, columns, objects, random_query


@pytest.mark.parametrize("count", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_blocks_of_any_length_match_what_the_definition_says(count: int) -> None:
    rng = np.random.default_rng(count)
    queries = [random_query(rng, handle) for handle in range(1, 200)]
    index = GI2(GRID)
    index.insert(*columns(queries))
    pairs = check(index, queries, 200, objects(rng, count))
    assert pairs or count == 1
