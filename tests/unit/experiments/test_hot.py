"""The experiment on jumps of the stream: its figures from a short run, and its verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from ps2stream.experiments import hot


@pytest.mark.takes_turns
def test_a_point_is_replicated_and_the_workers_are_balanced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hot, "CALM_S", 3)
    monkeypatch.setattr(hot, "JUMPED_S", 8)
    world = hot.make_jump("point", 4, 1)
    rows = {way: hot.play(world, "point", way, 1, 0) for way in ("off", "replicate")}
    off, on = rows["off"], rows["replicate"]
    assert (off["plan_changes"], off["first_change_s"], off["balanced_s"]) == (0, None, None)
    assert off["most_over_mean"] > 3
    assert on["plan_changes"] >= 1
    assert on["first_change_s"] <= hot.ANSWERED_S
    assert on["balanced_s"] <= hot.BALANCED_S
    assert on["most_over_mean"] < hot.BALANCED
    assert on["copies"] == pytest.approx(off["copies"], rel=0.05)
    assert len(on["course"]) == 8


def row(jump: str, way: str = "replicate", **figures: Any) -> dict[str, Any]:
    return {
        "jump": jump, "way": way, "first_change_s": 1.0, "balanced_s": 3, "over_ideal": 0.9,
        "plan_changes": 1, **figures,
    }  # fmt: skip


def test_verdicts_are_on_our_goals() -> None:
    rows = [
        row("point"),
        row("point", "off", first_change_s=None),
        row("word", first_change_s=2.1, balanced_s=None, over_ideal=0.7),
        row("none", plan_changes=0),
    ]
    found = [(v.claim, v.measured, v.verdict) for v in hot.list_verdicts(rows)]
    assert found == [
        ("point: first plan change", "1 s, goal 2 s", "met"),
        ("point: balance below 1.3", "3 s, goal 10 s", "met"),
        ("point: throughput over the ideal", "0.90, goal 0.8", "met"),
        ("word: first plan change", "2.1 s, goal 2 s", "missed"),
        ("word: balance below 1.3", "never, goal 10 s", "missed"),
        ("word: throughput over the ideal", "0.70, goal 0.8", "missed"),
        ("stationary stream: plan changes", "0, goal 0", "met"),
    ]
    assert hot.list_verdicts([row("none", plan_changes=1)])[0].verdict == "missed"
