"""A service under load moves to another plan, to more workers and to fewer, while workers are
killed: what is delivered is what the oracle finds."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ps2stream.client.answers import MigrationInfo
from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from tests import naive
from tests.support.real_posts import SESSIONS, Reader, posts, quiet, some_query

pytestmark = pytest.mark.ray
BATCH = 25
HELD = 300


class Load(threading.Thread):
    """Inserts, deletes and posts until it is stopped, and what they were."""

    def __init__(self, service: RunningService, tweets: Path) -> None:
        super().__init__(daemon=True)
        self.posts = posts(tweets, 20_000)
        self.rng = random.Random(11)
        self.clients = [Client(target, timeout=90) for target in service.targets]
        self.queries: dict[int, naive.Query] = {}
        self.died: dict[int, int] = {}
        self.stamped: list[tuple[str, int, naive.Obj]] = []
        self.stopping = threading.Event()
        self.problem: BaseException | None = None
        self._live: list[int] = []

    def insert(self, n: int) -> None:
        for _ in range(n):
            name, session = f"q{len(self.queries)}", self.rng.choice(SESSIONS)
            expression, region = some_query(self.rng, self.posts[:3000])
            lsn = self.rng.choice(self.clients).insert(name, expression, region, session=session)
            self.queries[lsn] = naive.Query(name, session, expression, region)
            self._live.append(lsn)

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self._step()
        except BaseException as error:
            self.problem = error
            raise

    def _step(self) -> None:
        self.insert(1)
        handle = self._live.pop(self.rng.randrange(len(self._live)))
        self.died[handle] = self.rng.choice(self.clients).delete(self.queries[handle].id)
        begin = len(self.stamped)
        part = [(f"o{begin + i}", p) for i, p in enumerate(self.posts[begin : begin + BATCH])]
        rows = [{"id": n, "text": text, "lon": lon, "lat": lat} for n, (text, lon, lat) in part]
        lsn = self.rng.choice(self.clients).publish(rows).lsn
        self.stamped += [(n, lsn, naive.Obj(lon, lat, text)) for n, (text, lon, lat) in part]
        time.sleep(0.02)

    def stop(self) -> None:
        self.stopping.set()
        self.join()
        assert self.problem is None

    def expected(self) -> dict[str, Counter[tuple[str, str]]]:
        found: dict[str, Counter[tuple[str, str]]] = {s: Counter() for s in SESSIONS}
        for handle, query in self.queries.items():
            for name, lsn, obj in self.stamped:
                if handle <= lsn < self.died.get(handle, lsn + 1) and naive.matches(query, obj):
                    found[query.session][query.id, name] += 1
        return found


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
