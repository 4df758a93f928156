"""A standby takes over from an actor that was killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.cluster.standbys import FILL_S
from ps2stream.config import Settings
from ps2stream.observability.process import is_running

pytestmark = [pytest.mark.ray, pytest.mark.slow]
WAIT_S = 60.0
HOUSTON = (-95.6, 29.5, -95.1, 30.0)


def find_standbys() -> set[int]:
    """The processes of standbys that have started, also of those that have a role."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            title = path.read_bytes()
        except OSError:
            continue
        if title.rstrip(b"\0 ") == b"ray::StandbyShell":
            found.add(int(path.parent.name))
    return found


@pytest.mark.takes_turns(0)
@pytest.mark.parametrize(
    "role",
    [
        "worker",
        pytest.param(
            "sequencer",
            marks=pytest.mark.repeats(
                "tests/ray/test_standbys.py::test_a_standby_becomes_the_successor_and_matches_go_on"
            ),
        ),
    ],
)
def test_a_standby_becomes_the_successor_and_matches_go_on(tmp_path: Path, role: str) -> None:
    others = find_standbys()
    settings = Settings(port=0, data_dir=tmp_path / "data", workers=1, standbys=1)
    with start(settings) as service, Client(service.targets[0], timeout=WAIT_S) as client:
        client.insert("flood", "flood", HOUSTON, session="s")
        deadline = time.monotonic() + WAIT_S
        while not (standing := find_standbys() - others):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(3 * FILL_S)  # until the pool has noticed that it is loaded
        before = service.status()[f"{role}-0"]["pid"]
        os.kill(before, signal.SIGKILL)
        while is_running(before):
            time.sleep(0.01)
        while (now := service.status()[f"{role}-0"].get("pid", before)) == before:
            assert time.monotonic() < deadline + WAIT_S
            time.sleep(0.1)
        assert now in standing
        client.insert("fire", "fire", HOUSTON, session="s")
        with client.subscribe("s") as matches:
            post = {"id": "o", "text": "flood and fire", "lon": -95.3, "lat": 29.7}
            client.publish([post, post | {"id": "p", "text": "fire"}])
            found = {(m.query_id, m.object_id) for _, m in zip(range(3), matches, strict=False)}
        assert found == {("flood", "o"), ("fire", "o"), ("fire", "p")}
