"""Many deletes at once: a worker's calls are timed, and what was deleted goes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from ps2stream.benchmarks import deletes
from ps2stream.benchmarks.deletes import DeletedQueries, DeletesRun, TimedIndex, run_deletes
from ps2stream.workers.indexes import INDEXES, IndexName
from ps2stream.workers.radix.gi2 import RadixGI2


@pytest.mark.parametrize("index", INDEXES)
def test_all_that_was_deleted_goes(index: IndexName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletes, "TICKS", 3)
    found = run_deletes(4_000, index, seed=3, each=500)
    for name, live in (("place", 2_000), ("ripe", 2_000), ("stream", 6_000)):
        run = found[name]
        assert (run["tombstones"], run["live"]) == (0, live), name
        assert run["verified"] == {"objects": 2 * deletes.OBJECTS, "different": 0}, name
        assert all(run["calls"].values()), name
        assert all(run["median_ms"][k] <= run["longest_ms"][k] for k in run["median_ms"]), name
    assert found["ripe"]["most_tombstones"] >= 4_000
    assert found["stream"]["share_of_a_core"] > 0


def test_sweeps_keep_up_with_updates_of_many_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep with each update would remove a tenth of what an update deletes."""
    each, ticks = 20_000, 6
    monkeypatch.setattr(deletes, "_UPDATES", each)
    run = DeletesRun(DeletedQueries(each * (ticks + 1), True, 1), each, "gi2-radix")
    for k in range(ticks):
        run.insert(each)
        run.delete(np.arange(each * k, each * (k + 1)), ripe=True)
        run.tick()
    assert run.most_tombstones <= each
    assert run.count_differences(1) == 0


def test_a_difference_is_seen() -> None:
    run = DeletesRun(DeletedQueries(300, True, 1), 300, "gi2-radix")
    assert run.count_differences(1) == 0
    run.queries.live[:] = False
    assert run.count_differences(1) > 0


def test_each_call_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1.0, 1.002, 2.0, 2.004, 3.0, 3.008, 4.0, 4.001])
    monkeypatch.setattr(time, "thread_time", lambda: next(times))

    def census(_index: RadixGI2) -> Iterator[int | None]:
        yield None
        yield 7

    monkeypatch.setattr(RadixGI2, "census", census)
    timed = TimedIndex(RadixGI2(deletes.GRID))
    timed.purge(3)
    assert list(timed.census()) == [None, 7]
    assert timed.taken["purge"] == [pytest.approx(2.0)]
    assert timed.taken["census"] == [pytest.approx(4.0), pytest.approx(8.0)]
