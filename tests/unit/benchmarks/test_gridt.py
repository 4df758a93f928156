"""The benchmark of gridt, at a tiny size."""

from __future__ import annotations

import pytest

from ps2stream.benchmarks.gridt import run_gridt


def test_all_queries_are_counted_and_objects_are_routed() -> None:
    found = run_gridt(queries=3_000, workers=2)
    assert found["verified"] == {"wrong": 0}
    assert found["units"] > 1_000
    assert found["tags_per_query"] >= 1
    bytes_of_units = found["h2_bytes_per_unit"] * found["units"]
    assert found["h2_bytes_per_query"] * 3_000 == pytest.approx(bytes_of_units)
    for group in ("cpu_ns_per_tag", "route_cpu_us_per_object"):
        assert all(value > 0 for value in found[group].values()), group
