"""The selections by their names: each finds a set exactly where one exists."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.adjust.algorithms import SELECTIONS
from ps2stream.planner.adjust.selection import select
from tests.support.selections import sets_of, small_cases


def test_the_names_are_those_of_the_paper_and_one_more() -> None:
    assert [*SELECTIONS] == ["gr", "gr+", "dp", "si", "ra"]
    assert len(set(map(id, SELECTIONS.values()))) == 5


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_set_is_found_exactly_where_one_exists(name: str) -> None:
    """Among the sets of all units: with a load from tau to 2 tau, and none smaller."""
    none = 0
    for seed, case in enumerate(small_cases(150)):
        good = [size for load, size in sets_of(case) if case.tau <= load <= 2 * case.tau]
        found = select(SELECTIONS[name], *case, seed)
        if found is None:
            none += 1
            assert not good
            continue
        assert found.tolist() == sorted(set(found.tolist()))
        assert case.tau * (1 - 1e-8) <= case.load[found].sum() <= 2 * case.tau * (1 + 1e-8)
        assert case.size[found].sum() >= min(good)
        again = select(SELECTIONS[name], *case, seed)
        assert again is not None
        assert np.array_equal(found, again)
    assert 0 < none < 75
