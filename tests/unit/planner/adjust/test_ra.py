"""RA: random units until tau is reached."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ps2stream.experiments.selections import SelectionCase
from ps2stream.planner.adjust.ra import ra
from tests.support.selections import size_of, small_cases


def test_no_unit_is_taken_once_tau_is_reached() -> None:
    for seed, case in enumerate(small_cases(100)):
        chosen = ra(*case, seed)
        assert size_of(ra, case, seed) == case.size[chosen].sum()
        assert case.load[chosen[:-1]].sum() < case.tau


def test_every_unit_is_as_likely_and_a_seed_decides() -> None:
    case = SelectionCase(np.ones(4), np.array([1, 10, 100, 1000]), 2.0)
    drawn = [ra(*case, seed).tolist() for seed in range(400)]
    assert drawn == [ra(*case, seed).tolist() for seed in range(400)]
    counts = Counter(unit for pair in drawn for unit in pair)
    assert all(len(pair) == 2 for pair in drawn)
    assert all(150 < counts[unit] < 250 for unit in range(4))
