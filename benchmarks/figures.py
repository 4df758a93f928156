"""The figures of several rounds, as one."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

TOTALS = ("gaps", "verified")
"""Figures that are added up: what went wrong in one round is not lost in a median."""


def summarise_values(values: Sequence[float]) -> dict[str, float]:
    """Returns the median, the least and the largest value."""
    return {"median": median(values), "min": min(values), "max": max(values)}


def merge_rounds(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the figures of equal rounds: median, min and max of each, and the sums of TOTALS. A
    single round is returned as it is."""
    if len(rounds) == 1:
        return rounds[0]
    return {
        name: (add_figures if name in TOTALS else _merge_figures)([each[name] for each in rounds])
        for name in rounds[0]
    }


def add_figures(figures: Sequence[Any]) -> Any:
    """Returns the sum of numbers, or of each number of dictionaries with the same keys."""
    if isinstance(figures[0], dict):
        return {name: add_figures([each[name] for each in figures]) for name in figures[0]}
    return sum(figures)


def _merge_figures(figures: Sequence[Any]) -> Any:
    if not isinstance(figures[0], dict):
        return summarise_values(figures)
    names = dict.fromkeys(name for each in figures for name in each)
    return {
        name: _merge_figures([each[name] for each in figures if name in each]) for name in names
    }
