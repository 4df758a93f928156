"""When a Ray that others started counts as gone."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from ps2stream.cluster.ray_probe import CUT_OFF_S, LOST_S, RECONNECT, RayProbe

GCS, RAYLET = ("10.0.0.1", 6379), ("10.0.0.2", 4001)


class Network:
    """What accepts connections now."""

    def __init__(self) -> None:
        self.up = {GCS, RAYLET}
        self.error: type[OSError] = ConnectionRefusedError

    def connect(self, address: tuple[str, int]) -> None:
        if address not in self.up:
            raise self.error


def probe_of(network: Network, environ: dict[str, str]) -> RayProbe:
    context = SimpleNamespace(get_node_id=lambda: "here", gcs_address="10.0.0.1:6379")
    nodes = [
        {"NodeID": "there", "NodeManagerAddress": "10.0.0.1", "NodeManagerPort": 4001},
        {"NodeID": "here", "NodeManagerAddress": RAYLET[0], "NodeManagerPort": RAYLET[1]},
    ]
    ray: Any = SimpleNamespace(get_runtime_context=lambda: context, nodes=lambda: nodes)
    return RayProbe(ray, network.connect, environ)


def seconds_until_lost(probe: RayProbe, now: list[float], most: float) -> tuple[float, str]:
    begin = now[0]
    while now[0] - begin < most:
        if lost := probe.find_loss():
            return now[0] - begin, lost
        now[0] += 0.1
    return most, ""


@pytest.mark.parametrize(
    ("gone", "name", "environ", "error", "least"),
    [
        (RAYLET, "raylet", {}, ConnectionRefusedError, LOST_S),
        (GCS, "GCS", {}, ConnectionRefusedError, LOST_S),
        (GCS, "GCS", {}, TimeoutError, CUT_OFF_S),  # a cable may be plugged in again
        (RAYLET, "raylet", {RECONNECT: "600"}, ConnectionRefusedError, LOST_S),
        (GCS, "GCS", {RECONNECT: "600"}, ConnectionRefusedError, 590.0),  # Redis may bring it back
    ],
)
def test_whatever_is_away_for_too_long_is_lost(
    gone: tuple[str, int],
    name: str,
    environ: dict[str, str],
    error: type[OSError],
    least: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    network = Network()
    network.error = error
    probe = probe_of(network, environ)
    assert seconds_until_lost(probe, now, 30.0) == (30.0, "")
    network.up.remove(gone)
    assert seconds_until_lost(probe, now, least - 1.0)[1] == ""
    network.up.add(gone)
    assert seconds_until_lost(probe, now, 5.0)[1] == ""  # it is back: counted anew
    network.up.remove(gone)
    waited, lost = seconds_until_lost(probe, now, 1000.0)
    assert lost == name
    assert least - 1.0 <= waited <= least + 1.0
