"""Dispatchers that join a running service, or leave it, and publications with a producer
meanwhile."""

from __future__ import annotations

import time

from ps2stream.client.answers import Receipt
from ps2stream.client.client import Client
from ps2stream.client.scaling import DispatcherScale
from ps2stream.cluster.running_service import RunningService
from ps2stream.errors import Unavailable

PRODUCERS = [f"producer {n}" for n in range(8)]
WAIT_S = 90


def joined(service: RunningService, client: Client, dispatchers: int) -> DispatcherScale:
    """Let dispatchers join or leave, and wait until all serve, and no others."""
    client.scale_dispatchers(dispatchers)
    deadline = time.monotonic() + WAIT_S
    while (found := client.scale_dispatchers()).moving or len(
        client.status()["endpoints"]
    ) != dispatchers:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert found.dispatchers == dispatchers
    assert list(client.status()["endpoints"]) == service.targets
    return found


def publish_once(client: Client, producer: str, seq: int, text: str = "a flood") -> Receipt:
    """Publish the one object of this producer and seq, again and again until it is answered."""
    post = {"id": f"{producer}/{seq}", "text": text, "lon": 0.0, "lat": 0.0}
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return client.publish([post], producer=producer, seq=seq)
        except Unavailable:
            assert time.monotonic() < deadline
            time.sleep(0.05)
