"""Objects are taken as by a twin that goes row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ps2stream.dispatcher import object_kernels as kernels
from ps2stream.protocol.frame import column_to_strings, strings_to_column


@pytest.mark.takes_turns(2)
@pytest.mark.parametrize("seed", range(8))
def test_objects_are_taken_as_by_the_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 9))
    names, words = ([k * "x" for k in rng.integers(0, 4, n).tolist()] for k in range(2))
    time, lon, lat = rng.integers(0, 99, n), rng.random(n), rng.random(n)
    given = strings_to_column(names), strings_to_column(words), (time, lon, lat)
    rows = np.sort(rng.choice(n, int(rng.integers(0, n + 1)), replace=False)).astype(np.uint32)

    def check(found: Any, wanted: list[int]) -> None:
        id_off, ids, *columns, text_off, texts = found
        assert column_to_strings(id_off, ids) == [names[row] for row in wanted]
        assert column_to_strings(text_off, texts) == [words[row] for row in wanted]
        want = [column[wanted].tolist() for column in (time, lon, lat)]
        assert [column.tolist() for column in columns] == want

    check(kernels.take_objects(rows, *given), rows.tolist())
    pairs = rng.permutation(np.repeat(rows, 2))
    named, *objects = kernels.take_named_objects(pairs, *given)
    assert named.tolist() == rows.tolist()
    check(objects, rows.tolist() if len(rows) < n else [])
    wrong = np.append(pairs, np.uint32(n)).astype(np.uint32)
    named, *objects = kernels.take_named_objects(wrong, *given)
    assert len(named) == n + 1
    check(objects, [])
