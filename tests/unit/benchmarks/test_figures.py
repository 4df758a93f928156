"""The figures of several rounds."""

from __future__ import annotations

from ps2stream.benchmarks.figures import merge_rounds


def test_one_round_stays_as_it_is() -> None:
    assert merge_rounds([{"rate": 3, "verified": {"wrong": 1}}]) == {
        "rate": 3, "verified": {"wrong": 1},
    }  # fmt: skip


def test_rounds_have_a_median_and_errors_are_added_up() -> None:
    rounds = [
        {"full": {"rate": rate}, "latency_ms": latency, "gaps": 1, "verified": {"wrong": wrong}}
        for rate, latency, wrong in ((3, {}, 0), (9, {"p50": 4.0}, 1), (4, {"p50": 2.0}, 1))
    ]
    assert merge_rounds(rounds) == {
        "full": {"rate": {"median": 4, "min": 3, "max": 9}},
        "latency_ms": {"p50": {"median": 3.0, "min": 2.0, "max": 4.0}},
        "gaps": 3,
        "verified": {"wrong": 2},
    }
