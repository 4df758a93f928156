"""The benchmark of steps, at a tiny size."""

from __future__ import annotations

from typing import Any

import pytest

from ps2stream.benchmarks.steps import run_steps

OBJECT_STEPS = [
    "read_and_check", "analyse", "intake", "append_to_object_log", "route", "sync_object_log",
    "answer", "encode_for_worker", "decode_at_worker", "match", "count_load", "encode_matches",
    "decode_matches", "gather", "encode_for_merger", "decode_at_merger", "record_and_sessions",
    "dedupe", "append_to_match_log", "encode_deliveries", "sync_match_log", "encode_for_stream",
    "decode_for_stream", "relay", "credit",
]  # fmt: skip
UPDATE_STEPS = [
    "read_and_compile", "intake", "encode_request", "decode_request", "decide", "commit_to_ledger",
    "encode_decisions", "decode_decisions", "apply_at_dispatcher", "encode_for_worker",
    "decode_at_worker", "apply_at_worker", "encode_for_merger", "decode_at_merger",
    "apply_at_merger", "acknowledge", "answer",
]  # fmt: skip


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return run_steps(queries=5_000, batch=128, batches=3, warm_objects=256)


@pytest.mark.parametrize(
    ("kind", "unit", "names"),
    [("objects", "object", OBJECT_STEPS), ("updates", "update", UPDATE_STEPS)],
)
def test_every_step_is_there_and_took_time(
    found: dict[str, Any], kind: str, unit: str, names: list[str]
) -> None:
    steps = found[kind]["steps"]
    assert list(steps) == names
    for name, step in steps.items():
        assert step[f"cpu_us_per_{unit}"] > 0, name
        assert step["calls"] > 0, name
    whole = sum(step[f"cpu_us_per_{unit}"] for step in steps.values())
    assert found[kind][f"cpu_us_per_{unit}"] == pytest.approx(whole)
    assert found[kind]["calls"] == sum(step["calls"] for step in steps.values())


def test_what_was_delivered_is_right(found: dict[str, Any]) -> None:
    assert found["matches_per_object"] > 0
    verified = found["verified"]
    assert verified.pop("sampled") == 100
    assert set(verified.values()) == {0}


def test_a_tuple_is_five_objects_to_one_update(found: dict[str, Any]) -> None:
    objects, updates = (
        found["objects"]["cpu_us_per_object"], found["updates"]["cpu_us_per_update"],
    )  # fmt: skip
    assert found["cpu_us_per_tuple"] == pytest.approx((10 * objects + 2 * updates) / 12)
