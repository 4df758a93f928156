"""The fit of the costs against the conditions of least squares above zero."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.planner.calibrate import fit

TRUTH = np.array([0.02, 0.6, 1.5, 0.3])


def runs(seed: int, count: int = 40) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.random.default_rng(seed).integers(1, 1000, (count, 4)).astype(np.float64)


@pytest.mark.parametrize("seed", range(5))
def test_exact_times_give_the_costs_back(seed: int) -> None:
    work = runs(seed)
    costs, error = fit(work, work @ TRUTH)
    assert dataclasses.astuple(costs) == pytest.approx(TRUTH)
    assert error < 1e-9


def test_a_cost_that_would_be_below_zero_is_zero() -> None:
    work = runs(1)
    costs, _ = fit(work, work @ np.array([0.02, 0.6, 1.5, -0.001]))
    assert costs.c4 == 0.0
    assert costs.c3 == pytest.approx(1.5, rel=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_costs_fit_better(seed: int) -> None:
    """The squares of the relative errors: no slope at a positive cost, none downhill at zero."""
    work = runs(seed, 12)
    noise = np.random.default_rng([1, seed]).lognormal(0.0, 1.0, len(work))
    micros = work @ (TRUTH * [0, 1, 0, 1] if seed % 2 else TRUTH) * noise
    costs, error = fit(work, micros)
    found = np.array(dataclasses.astuple(costs))
    scaled = work / micros[:, None]
    left = scaled @ found - 1.0
    slope = scaled.T @ left / np.linalg.norm(scaled, axis=0)
    assert (found >= 0).all()
    assert slope[found > 0] == pytest.approx(0.0, abs=1e-9)
    assert (slope[found == 0] >= -1e-9).all()
    assert error == pytest.approx(float(np.median(np.abs(left))))
