"""Runs of FISH's experiments: what their ratios are over."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments.keyed.fish_runs import (
    FG,
    FISH,
    SG,
    SOURCES,
    compare_schemes,
    even_seconds,
    uneven_seconds,
    zipf_streams,
)
from ps2stream.experiments.keyed.measure import RunClock
from ps2stream.experiments.keyed.streams import KeyStream
from ps2stream.experiments.plans import ExperimentSettings

SETTINGS = ExperimentSettings(tuples=4000)


def test_time_is_over_shuffling_and_memory_over_fields_grouping() -> None:
    """One key, on four workers: fields grouping takes four times as long with one state."""
    stream = KeyStream("one", np.zeros(4000, np.uint64), 1)
    schemes = {FG: (FG, None), FISH: (FISH, None)}
    rows = compare_schemes(stream, 4, dict(schemes), SETTINGS, RunClock())
    shuffled, fields, fish = rows
    assert [row["scheme"] for row in rows] == [SG, FG, FISH]
    assert (shuffled["time"], shuffled["memory"], shuffled["of_sg"]) == (1.0, 4.0, 1.0)
    assert fields["time"] == pytest.approx(4.0, rel=0.01)
    assert (fields["memory"], fields["of_sg"]) == (1.0, 0.25)
    assert fish["time"] == pytest.approx(1.0, abs=0.01)
    assert fish["memory"] == 4.0


def test_workers_are_alike_or_every_second_is_twice_as_fast() -> None:
    assert even_seconds(3).tolist() == [1.0, 1.0, 1.0]
    assert uneven_seconds(4).tolist() == [1.0, 0.5, 1.0, 0.5]
    assert SOURCES > 1


def test_short_streams_of_zf_have_two_segments() -> None:
    (stream,) = zipf_streams(SETTINGS, (1.6,))
    parts = stream.keys.reshape(2, 2000).astype(int)
    for part in parts:
        assert np.bincount(part[:1600]).argmax() == 0
        assert np.bincount(part[1600:]).argmax() == stream.size - 1
