"""Loads as text: replicated units and numbers of workers."""

from __future__ import annotations

from typing import Any

import pytest

from ps2stream.commands.loads import format_loads, format_replicated, list_workers

NO_LOADS: dict[str, Any] = {
    "plan_version": 4, "following_version": 0, "coexisting": False, "workers": [],
    "period_s": 10.0, "replicated": [], "hot_balance": None,
}  # fmt: skip
HOT: dict[str, Any] = {
    "level": 0, "cell": 9, "west": -135.0, "south": -45.0, "east": -90.0, "north": 0.0,
    "term": None, "workers": [4, 0, 1, 2], "share": 0.125, "sharded": True,
}  # fmt: skip
WORD = dict.fromkeys(HOT) | {"term": "fl\x1bood", "workers": [1, 3], "sharded": False}


@pytest.mark.parametrize(
    ("workers", "shown"),
    [
        ([3], "3"),
        ([2, 1], "1, 2"),
        ([9, 0, 1, 2], "0-2, 9"),
        ([0, 2, 4, 5], "0, 2, 4, 5"),
        ([], ""),
    ],
)
def test_runs_of_workers_are_shortened(workers: list[int], shown: str) -> None:
    assert list_workers(workers) == shown


def test_replicated_units_are_a_table_and_terms_control_no_terminal() -> None:
    lines = [line.split("  ") for line in format_replicated([HOT, WORD])]
    assert [[part.strip() for part in line if part] for line in lines] == [
        [],
        ["of the objects", "how", "workers", "term", "place (degrees)"],
        ["12.5%", "sharded", "0-2, 4", "all terms", "-135..-90 E, -45..0 N"],
        ["-", "replicated", "1, 3", "fl ood", "everywhere"],
    ]
    assert format_replicated([]) == []


def test_hot_units_are_shown_before_the_first_period_has_passed() -> None:
    shown = format_loads(NO_LOADS | {"replicated": [HOT], "hot_balance": 1.234})
    assert "objects    most over mean 1.23 in the last seconds" in shown.splitlines()
    assert "0-2, 4" in shown
    assert "objects " not in format_loads(NO_LOADS)
