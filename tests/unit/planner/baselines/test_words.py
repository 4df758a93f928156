"""The input of the text algorithms against the signatures as sets of words."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from ps2stream.planner.baselines.words import frequencies, publications, row_weights
from tests.support.baselines_by_hand import frequency_of, rows_of
from tests.support.by_hand import some_stats
from tests.support.statistics_of import hostile


@pytest.mark.parametrize("seed", range(3))
def test_frequencies_are_summed_over_cells(seed: int) -> None:
    stats = some_stats(seed)
    assert frequencies(stats).tolist() == [*frequency_of(stats).values()]


def test_a_signature_stands_for_the_objects_of_its_cell() -> None:
    stats = some_stats(1)
    assert row_weights(stats).tolist() == [weight for _, weight in rows_of(stats)]
    by_cell = np.add.reduceat(row_weights(stats) * np.diff(stats.row_start), stats.row_off[:-1])
    posted = np.add.reduceat(stats.o, stats.unit_off[:-1])
    held = np.diff(stats.row_off) > 0
    assert by_cell[held] == pytest.approx(posted[held])


@pytest.mark.parametrize("name", ["many cells", "no queries", "no objects"])
def test_publications_are_the_signatures_of_each_word(name: str) -> None:
    stats = hostile(1)[name]
    rows: dict[int, list[int]] = defaultdict(list)
    for row, (words, _) in enumerate(rows_of(stats)):
        for word in words:
            rows[word].append(row)
    found = publications(stats)
    for word in range(len(stats.terms)):
        assert found.row[found.off[word] : found.off[word + 1]].tolist() == rows[word]
    assert found.off[-1] == len(found.row) == sum(map(len, rows.values()))
    assert found.weight.tolist() == row_weights(stats).tolist()
    assert not found.queries.any()
    assert not found.fixed.any()
