"""The benchmark of a single object, at a tiny size."""

from __future__ import annotations

from pathlib import Path

import pytest

from ps2stream.benchmarks.single import run_single


def test_each_object_is_delivered_once_beside_the_disk(tmp_path: Path) -> None:
    found = run_single(
        queries=100, times=5, pause_s=0.0, workers=1, runtime="local", directory=str(tmp_path)
    )
    assert found["verified"] == {"objects": 25, "wrong": 0}
    assert found["matches_per_object"] >= 1
    for name in ("delivery_ms", "answer_ms", "fsync_ms"):
        assert 0 < found[name]["p50"] <= found[name]["p99"], name
    for name, value in found["beyond_fsync_ms"].items():
        assert value == pytest.approx(found["delivery_ms"][name] - found["fsync_ms"]["p50"])
    assert not list(tmp_path.iterdir())
