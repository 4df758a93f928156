"""The engine alone: its figures have what was measured, and nothing that was found is wrong."""

from __future__ import annotations

import pytest

from ps2stream.benchmarks import engine
from ps2stream.benchmarks.engine import run_engine
from ps2stream.workers.indexes import INDEXES, IndexName


@pytest.mark.parametrize("index", INDEXES)
def test_small_calls_are_timed_beside_large_ones(
    index: IndexName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "ROUNDS", 2)
    monkeypatch.setattr(engine, "SMALL_CALLS", 20)
    monkeypatch.setattr(engine, "SMALL_ROUNDS", 3)
    found = run_engine(queries=2_000, runs=1, index=index)
    assert found["verified"]["different"] == 0
    assert found["live_queries"] > 0
    listed = found["bytes_per_query_by_array"]
    assert (index == "gi2-radix") == (listed != {})
    assert not listed or sum(listed.values()) == pytest.approx(found["bytes_per_query"])
    one, many = (found["us_a_call_by_objects"][str(size)] for size in engine.SMALL)
    assert 0 < one["min"] <= one["median"] <= one["max"]
    assert many["min"] < 32 * one["min"], "an object costs less among others"
