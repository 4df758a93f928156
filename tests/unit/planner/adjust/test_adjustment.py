"""An adjustment as a value."""

from __future__ import annotations

import pytest

from ps2stream.errors import PlanError
from ps2stream.planner.adjust.adjustment import LoadAdjustment


def test_an_adjustment_that_is_none_is_refused() -> None:
    for data in ({}, {"base_version": 1, "moves": [{}]}, {"base_version": 1, "moves": 7}):
        with pytest.raises(PlanError, match="adjustment"):
            LoadAdjustment.from_dict(data)
