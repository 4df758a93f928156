"""A service under load moves to another plan, to more workers and to fewer, while workers are
killed: what is delivered is what the oracle finds."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ps2stream.client.answers import MigrationInfo
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from tests.support.load import HELD, Load
from tests.support.real_posts import SESSIONS, Reader, quiet

pytestmark = pytest.mark.ray


def swapped(client: Client) -> bytes:
    """The plan in force with workers 0 and 1 in each other's place."""
    plan = json.loads(client.plan())
    for leaf in plan["leaves"]:
        leaf["worker"] = 1 - leaf["worker"]
    plan["base_version"], plan["version"] = plan["version"], plan["version"] + 1
    return json.dumps(plan).encode()


def moved(
    client: Client, begin: Callable[[], tuple[int, int]], kill: Callable[[], None] | None = None
) -> MigrationInfo:
    """Begin a move, kill somebody in its middle, and wait for its end."""
    _, version = begin()
    if kill is not None:
        kill()
    deadline = time.monotonic() + 90
    while (found := client.migrations()).following_version:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    move = found.migrations[-1]
    assert (move.to_version, move.outcome) == (version, "done")
    return move


def test_moves_under_load_while_workers_die(tmp_path: Path, tweets: Path) -> None:
    settings = Settings(
        port=0,
        hot="off",
        adjust="off",
        data_dir=tmp_path / "data",
        dispatchers=2,
        workers=2,
        mergers=2,
        max_in_flight=64,
    )
    with start(settings) as service, Client(service.targets[1], timeout=90) as client:

        def killed(worker: int) -> Callable[[], None]:
            pid = service.status()[f"worker-{worker}"]["pid"]
            return lambda: os.kill(pid, signal.SIGKILL)

        readers = [Reader(service.targets[i % 2], s) for i, s in enumerate(SESSIONS)]
        for reader in readers:
            reader.start()
        load = Load(service, tweets)
        load.insert(HELD)
        load.start()
        plan = swapped(client)
        moves = [moved(client, lambda: client.apply_plan(plan), killed(1))]
        moves.append(moved(client, lambda: client.scale(3), killed(0)))
        assert "worker-2" in service.status()
        # All that worker 0 is to have comes from worker 1 and 2.
        moves.append(moved(client, lambda: client.scale(1), killed(0)))
        moves.append(moved(client, lambda: client.scale(2)))
        time.sleep(0.5)
        load.stop()
        quiet(service)
        assert client.migrations().workers == 2
        assert all(move.queries for move in moves)
        for session in SESSIONS:
            client.insert(f"end {session}", "xyzzyend", session=session)
        client.publish([{"id": "the end", "text": "xyzzyend", "lon": 0.0, "lat": 0.0}])
        expected = load.expected()
        assert sum(map(len, expected.values())) > 200
        for session, reader in zip(SESSIONS, readers, strict=True):
            assert reader.done.wait(30), session
            assert Counter(reader.pairs) == expected[session]
            reader.client.close()
        names = {name for name in service.status() if name.startswith("worker")}
        assert names == {"worker-0", "worker-1"}
        for each in load.clients:
            each.close()
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        assert client.migrations().workers == 2
        assert len(client.migrations().migrations) == 4
