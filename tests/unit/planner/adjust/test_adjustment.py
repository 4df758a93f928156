"""An adjustment as a value."""

from __future__ import annotations

import json
import math

import pytest

from ps2stream.errors import PlanError
from ps2stream.planner.adjust.adjustment import LoadAdjustment, PartMove

ADJUSTMENT = LoadAdjustment(
    7,
    (PartMove(5, 0, 1, 40, 2.5), PartMove(9, 2, 1, 60, 0.5, ("storm", ""), "split")),
    (8.0, 2.0, 4.0),
    (5.0, 5.0, 3.5),
    (3.0,),
)


def test_it_survives_json() -> None:
    data = json.loads(json.dumps(ADJUSTMENT.to_dict()))
    assert LoadAdjustment.from_dict(data) == ADJUSTMENT


def test_its_bytes_and_balances_are_those_of_all_moves() -> None:
    assert ADJUSTMENT.bytes == 100
    assert ADJUSTMENT.balance_before == 4.0
    assert ADJUSTMENT.balance_after == pytest.approx(5 / 3.5)
    idle = LoadAdjustment(1, (), (5.0, 0.0), (5.0, 0.0))
    assert idle.balance_before == idle.balance_after == math.inf
    assert idle.bytes == 0


def test_an_adjustment_that_is_none_is_refused() -> None:
    for data in ({}, {"base_version": 1, "moves": [{}]}, {"base_version": 1, "moves": 7}):
        with pytest.raises(PlanError, match="adjustment"):
            LoadAdjustment.from_dict(data)
