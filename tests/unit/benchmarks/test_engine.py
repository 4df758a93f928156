"""The engine alone: its figures have what was measured, and nothing that was found is wrong."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

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
    spent = [0.0]  # processor time: 5 us a call, and 1 us an object

    kind: Any = INDEXES[index]

    class TimedIndex(kind):  # type: ignore[misc]
        def match(self, lsn: int, lon: Any, *more: Any) -> Any:
            spent[0] += 5e-6 + 1e-6 * len(lon)
            return super().match(lsn, lon, *more)

    clock = SimpleNamespace(perf_counter=time.perf_counter, process_time=lambda: spent[0])
    monkeypatch.setattr(engine, "time", clock)
    monkeypatch.setattr(engine, "INDEXES", {index: TimedIndex})
    found = run_engine(queries=2_000, runs=1, index=index)
    assert found["verified"]["different"] == 0
    assert found["live_queries"] > 0
    listed = found["bytes_per_query_by_array"]
    assert (index == "gi2-radix") == (listed != {})
    assert not listed or sum(listed.values()) == pytest.approx(found["bytes_per_query"])
    calls = found["us_a_call_by_objects"]
    for size in engine.SMALL:
        assert calls[str(size)] == pytest.approx(dict.fromkeys(calls[str(size)], 5.0 + size))
