"""Lists of comparisons: rows are those of the compiler, and all find what brute force finds."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments.le_subscribe import comparison_lists as lists
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.protocol.frame import strings_to_column
from ps2stream.workers.indexes import INDEXES, IndexName

pytestmark = pytest.mark.takes_turns(2)


def test_rows_are_those_of_the_compiler() -> None:
    world, analyzer = lists.ComparisonWorld(300, 0.5, 3), Analyzer(Analysis(salt=3))
    texts = [
        " AND ".join(
            f"{name} {'>' if above else '<'} {wanted}"
            for name, above, wanted in zip(("depth", "magnitude"), *both, strict=True)
        )
        for both in zip(world.above.tolist(), world.wanted.tolist(), strict=True)
    ]
    rows = world.build_rows(0, 300)
    known = Frequencies.of({"depth EXISTS": 1, "magnitude EXISTS": 1}, analyzer)
    column = compile_column(*strings_to_column(texts), analyzer, known)
    assert np.array_equal(rows.term, column.term)
    assert np.array_equal(rows.form, column.form)
    size = len(rows.prog) // 300
    mine, other = (of.reshape(300, -1)[:, : size - 5] for of in (rows.prog, column.prog))
    assert np.array_equal(mine, other)


@pytest.mark.parametrize("index", INDEXES)
def test_an_index_and_the_algorithms_find_the_same(index: IndexName) -> None:
    found = lists.run_comparisons(700, index)
    for share in ("share 0.5", "share 0.05"):
        assert found[share]["different"] == 0
        assert all(us > 0 for name, us in found[share].items() if name.endswith("_us"))
    assert 100 < found["share 0.5"]["matches_per_event"] < 260
    assert 1 < found["share 0.05"]["matches_per_event"] < 10


def test_a_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists.ComparisonWorld, "count_matches", lambda _: 1)
    assert lists.run_comparisons(100)["share 0.5"]["different"] == 4
