"""The seeded simulator: a thousand seeds without a violation."""

from __future__ import annotations

import pytest

from tests.sim.many import play_all
from tests.sim.moving import SEEDS as COUNT
from tests.sim.scenario import UNCONTROLLED

SEEDS = range(UNCONTROLLED - COUNT // 2, UNCONTROLLED + COUNT // 2)
"""Half of them have no controller."""
PART = 30


@pytest.mark.parametrize(
    "seeds", [SEEDS[i : i + PART] for i in range(0, len(SEEDS), PART)], ids=str
)
def test_no_seed_violates_the_contract(seeds: range) -> None:
    failed = {r.seed: r.violations[:3] for r in play_all(seeds, 1) if r.violations}
    assert failed == {}
