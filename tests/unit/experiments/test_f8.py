"""Latency: batches wait for each other, and are of equal size in every stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ps2stream.experiments import f8
from ps2stream.experiments.f8 import lateness
from ps2stream.experiments.plans import ExperimentSettings
from ps2stream.experiments.worlds import FULL, SYNTHETIC, StreamSize, StreamWorld


def test_a_batch_waits_for_the_one_before_it() -> None:
    # Worker 0 is done 3 s after the first leaves, 2 s after the second does; then idle.
    late = lateness(np.array([[3.0, 0.5], [2.0, 0.5], [1.0, 0.0]]), np.array([9.0, 1.0, 10.0]))
    assert late.tolist() == [[3.0, 0.5], [4.0, 0.5], [1.0, 0.0]]


def test_latency_is_of_equal_batches_of_every_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[StreamSize] = []

    def worlds(settings: ExperimentSettings, groups: Sequence[str]) -> list[StreamWorld]:
        asked.append(settings.size)
        return []

    monkeypatch.setattr(f8, "make_worlds", worlds)
    f8.run(ExperimentSettings(size=FULL))
    for source in ("posts.parquet", SYNTHETIC):
        size = asked[0].of(source)
        assert size.judged / size.rounds == pytest.approx(f8.BATCH, rel=0.05)
