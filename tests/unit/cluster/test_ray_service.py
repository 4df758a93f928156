"""When Ray and all actors are started again."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from ps2stream.cluster import intervals
from ps2stream.cluster.ray_service import RayService
from ps2stream.errors import Unavailable


def test_a_restart_that_failed_is_tried_again_though_ray_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An actor that dies amid it fails it, and nobody else starts the others."""
    monkeypatch.setattr(intervals, "LOOK_S", 0.0)
    monkeypatch.setattr(intervals, "RESTART_S", 0.0)
    losses = iter(["GCS"])
    service = object.__new__(RayService)
    ending = threading.Event()
    restarts: list[bool] = []

    def restart() -> None:
        restarts.append(True)
        if len(restarts) < 3:
            raise Unavailable("the sequencer has died")
        ending.set()

    state = {
        "_ending": ending,
        "_stopping": threading.Event(),
        "_instance": SimpleNamespace(find_loss=lambda: next(losses, ""), is_ours=True),
        "_restart_ray": restart,
    }
    for name, value in state.items():
        setattr(service, name, value)
    watch = threading.Thread(target=service._watch_ray, daemon=True)
    watch.start()
    watch.join(30)
    ending.set()
    assert len(restarts) == 3
