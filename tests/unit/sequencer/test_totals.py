"""Sums of counters that start anew with each incarnation."""

from __future__ import annotations

from ps2stream.sequencer.totals import CounterTotals


def test_counts_since_the_mark_over_actors_and_their_successors() -> None:
    totals = CounterTotals(("a", "b"))
    assert totals.since() == {}
    totals.hear(0, (1, 1))
    totals.mark()
    totals.hear(0, (5, 5))
    assert totals.since() == {"a": 0, "b": 0}
    totals.hear(0, (7, 5))
    totals.hear(1, (100, 100))  # unknown since when
    totals.hear(1, (101, 100))
    totals.hear(0, (1, 0))  # a new one
    totals.hear(0, (1, 2))
    assert totals.since() == {"a": 4, "b": 2}
    totals.mark()
    assert totals.since() == {"a": 0, "b": 0}
