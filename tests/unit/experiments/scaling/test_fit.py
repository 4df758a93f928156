"""Factors without negative ones."""

from __future__ import annotations

import pytest

from ps2stream.experiments.scaling.fit import fit_factors


def test_factors_of_exact_values_are_found() -> None:
    features = [(1, 128), (1, 1_024), (2, 1_024), (4, 8_192)]
    assert fit_factors(features, [30 * a + 0.5 * b for a, b in features]) == pytest.approx(
        (30, 0.5)
    )


def test_no_factor_is_negative() -> None:
    found = fit_factors([(1, 1), (1, 2), (1, 3)], [3.0, 2.0, 1.0])
    assert min(found) >= 0
    assert found[1] == 0


def test_nothing_costs_nothing() -> None:
    assert fit_factors([(1, 5), (1, 7)], [0.0, 0.0]) == (0, 0)
