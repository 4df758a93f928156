"""The benchmark of the whole service: what it compares, and a tiny run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ps2stream.benchmarks.pipeline import (
    PipelineVariant,
    compare_variants,
    compare_with_yardstick,
    run_pipeline,
)
from ps2stream.benchmarks.yardstick import YardstickSpeed


def make_round(rate: float, cpu_us: float = 0.0) -> dict[str, Any]:
    return {"saturated": {"tuples_per_second": rate, "server_cpu_us_per_tuple": cpu_us}}


def test_a_service_beside_the_yardstick() -> None:
    found = compare_with_yardstick(make_round(100_000, 6.0), YardstickSpeed(400_000, 2.5))
    assert found == {"over_yardstick": 0.25, "cpu_over_yardstick": 2.4}


def test_variants_are_compared_with_the_first_of_the_same_round() -> None:
    found = {
        PipelineVariant("durable", 1, 1024): [make_round(80), make_round(50)],
        PipelineVariant("durable", 2, 1024): [make_round(72), make_round(50)],
        PipelineVariant("durable", 1, 64): [make_round(20), make_round(10)],
        PipelineVariant("accepted", 1, 1024): [make_round(100), make_round(100)],
        PipelineVariant("accepted", 2, 1024): [make_round(1), make_round(1)],
        PipelineVariant("durable", 1, 1024, 0.1): [make_round(60, 5.0), make_round(40, 8.0)],
    }
    for rounds in found.values():
        for each in rounds:
            each["saturated"]["server_cpu_us_per_tuple"] = (
                each["saturated"]["server_cpu_us_per_tuple"] or 4.0
            )
    assert compare_variants(found) == {
        "workers_2_over_1": {"median": 0.95, "min": 0.9, "max": 1.0},
        "batch_64_over_1024": {"median": 0.225, "min": 0.2, "max": 0.25},
        "durable_over_accepted": {"median": 0.65, "min": 0.5, "max": 0.8},
        "literals_over_words": {"median": pytest.approx(0.775), "min": 0.75, "max": 0.8},
        "literals_over_words_cpu": {"median": pytest.approx(0.65), "min": 0.5, "max": 0.8},
    }


@pytest.mark.takes_turns
def test_two_levels_between_two_runs_of_a_yardstick(tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    script.write_text(
        "import pathlib\n"
        "with open('runs', 'a') as runs: runs.write('x')\n"
        "print(10 * pathlib.Path('runs').stat().st_size, 'tuples/s min 1 max 3 m/o 9.5')\n"
    )
    found = run_pipeline(
        queries=200, seconds=0.3, batches=(100,), levels=("durable", "accepted"),
        workers=(1,), runtime="local", against=str(script),
    )  # fmt: skip
    yardstick = found["yardstick"]
    assert [yardstick[at]["tuples_per_second"] for at in ("before", "after")] == [10, 20]
    assert found["settings"]["level"] == ["durable", "accepted"]
    assert found["settings"]["batch"] == 100
    assert [found["settings"][name] for name in ("workers", "rounds")] == [1, 1]
    assert len(found["variants"]) == 2
    durable, accepted = (f["saturated"]["tuples_per_second"] for f in found["variants"].values())
    assert found["durable_over_accepted"] == pytest.approx(durable / accepted)
    for figures, rate in zip(found["variants"].values(), (durable, accepted), strict=True):
        assert figures["over_yardstick"] == pytest.approx(rate / 15)
    assert found["verified"]["wrong"] == 0


@pytest.mark.takes_turns
def test_queries_with_literals_beside_their_twins() -> None:
    found = run_pipeline(
        queries=300, seconds=0.3, batches=(100,), workers=(1,), runtime="local", literals=0.5
    )
    plain, literal = (each["saturated"] for each in found["variants"].values())
    assert list(found["variants"])[1].endswith("literals 0.5")
    assert found["literals_over_words"] == pytest.approx(
        literal["tuples_per_second"] / plain["tuples_per_second"]
    )
    assert found["verified"]["wrong"] == 0
