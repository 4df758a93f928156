"""Publications with a producer and a seq through Ray actors that are killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from ps2stream.client.answers import Receipt
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.dispatcher.producers import find_owner
from ps2stream.errors import Ps2StreamError
from tests.support.archived import archived

pytestmark = pytest.mark.ray
PRODUCERS = ("a", "b", "c", "d")


def publish(targets: list[str], producer: str, seq: int) -> Receipt:
    """Publishes through one dispatcher and then the other, until one of them answers."""
    batch = [{"id": f"{producer}{seq}", "lon": 1.0, "lat": 1.0, "text": "flood"}]
    deadline = time.monotonic() + 120
    while True:
        for target in targets:
            try:
                with Client(target, timeout=5) as client:
                    return client.publish(batch, producer=producer, seq=seq)
            except (Ps2StreamError, TimeoutError):
                assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.takes_turns(0)
def test_a_repeat_after_the_death_of_a_dispatcher_gets_the_first_answer(tmp_path: Path) -> None:
    assert {find_owner(producer, 2) for producer in PRODUCERS} == {0, 1}
    archive = tmp_path / "archive"
    settings = Settings(
        port=0, data_dir=tmp_path / "data", dispatchers=2, workers=1, archive=archive, archive_s=0
    )
    with start(settings) as service:
        targets = list(service.targets)
        with Client(targets[0], timeout=60) as client:
            client.insert("q", "flood", session="s")
        first = {p: publish(targets, p, 1) for p in PRODUCERS}
        for killed in (0, 1):
            os.kill(service.status()[f"dispatcher-{killed}"]["pid"], signal.SIGKILL)
            assert {p: publish(targets[::-1], p, 1) for p in PRODUCERS} == first
            for producer in PRODUCERS:
                publish(targets, producer, 2 + killed)
        with Client(targets[1], timeout=60) as client, client.subscribe("s") as stream:
            client.publish([{"id": "last", "lon": 1.0, "lat": 1.0, "text": "flood"}])
            matches = iter(stream)
            found = [next(matches).object_id for _ in range(3 * len(PRODUCERS) + 1)]
        deadline = time.monotonic() + 120
        while len(objects := archived(archive)) < len(found) and time.monotonic() < deadline:
            time.sleep(0.2)
    assert sorted(post.id for _, post in objects.values()) == sorted(found)
    assert sorted(found) == sorted(["last", *(f"{p}{seq}" for p in PRODUCERS for seq in (1, 2, 3))])
