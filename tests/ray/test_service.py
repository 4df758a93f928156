"""The real service: Ray actors, gRPC in and out, real posts, against the oracle."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster import ray_environment
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import NotFound
from tests import naive
from tests.support.real_posts import SESSIONS, Reader, posts, quiet, some_query

pytestmark = pytest.mark.ray
BATCH = 50
JOIN = "import ray, sys; ray.init(address=sys.argv[1], logging_level='ERROR'); print(ray.nodes())"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Settings:
    return Settings(
        port=0,
        hot="off",
        adjust="off",
        data_dir=tmp_path_factory.mktemp("ray") / "data",
        dispatchers=2,
        workers=3,
        mergers=2,
        plan=root / "examples" / "plan-text.json",
        max_in_flight=64,
    )


@pytest.fixture(scope="module")
def service(settings: Settings) -> Iterator[RunningService]:
    """One service of all tests; the last one stops it."""
    with start(settings) as running:
        yield running


@pytest.mark.takes_turns(0)
def test_a_watcher_sees_the_objects_of_its_dispatcher_and_matches_from_everywhere(
    service: RunningService,
) -> None:
    first, second = (Client(target, timeout=60) for target in service.targets)
    sessions = ("of one merger", "of the other")  # numbers follow on, mergers take turns
    for session in sessions:
        first.insert(f"storm {session}", "storm", session=session)
    watch = first.watch()
    next(watch)
    first.publish([{"id": first.target, "text": "a storm", "lon": 1.0, "lat": 2.0}])
    objects: list[str] = []
    pairs: set[tuple[str, str]] = set()
    timed = 0
    deadline = time.monotonic() + 60
    while len(pairs) < 4 or not objects or not timed:
        assert time.monotonic() < deadline, (objects, pairs)
        if not any(id_ == second.target for _, id_ in pairs):
            # Mergers may have heard of the watcher only after this object of another dispatcher.
            second.publish([{"id": second.target, "text": "a storm", "lon": 1.0, "lat": 2.0}])
        told = next(watch)
        objects += [o.id for o in told.objects]
        pairs |= {(m.query_id, m.object.id) for m in told.matches}
        timed += len(told.latency_ms)
    assert objects == [first.target]
    assert pairs == {(f"storm {s}", t) for s in sessions for t in service.targets}
    watch.close()
    for client in (first, second):
        client.close()


def joins(address: str, environ: dict[str, str]) -> bool:
    """Whether a process with this environment may use the Ray at `address`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    clean["RAY_NUM_REDIS_GET_RETRIES"] = "5"  # by default Ray tries for 20 s after a refusal
    found = subprocess.run(
        [sys.executable, "-c", JOIN, address],
        env=clean | environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return found.returncode == 0 and "NodeID" in found.stdout


@pytest.mark.takes_turns(1)
def test_ray_asks_for_a_token(service: RunningService, settings: Settings, tmp_path: Path) -> None:
    assert service.targets
    import ray

    address = ray.get_runtime_context().gcs_address
    file = settings.data_dir / ray_environment.NAME
    assert file.stat().st_mode & 0o777 == 0o600
    here = {"HOME": str(tmp_path)}
    token = here | {ray_environment.MODE: "token"}
    tries = (
        here | {ray_environment.MODE: "disabled"},
        token | {ray_environment.TOKEN: "0" * 64},
        token | {ray_environment.TOKEN_PATH: str(file)},
    )
    with ThreadPoolExecutor(len(tries)) as pool:
        assert list(pool.map(partial(joins, address), tries)) == [False, False, True]


def test_delivered_set_is_the_oracles_over_two_dispatchers(
    service: RunningService, settings: Settings, tweets: Path
) -> None:
    rng = random.Random(5)
    made = posts(tweets, 1500)
    queries: dict[int, naive.Query] = {}
    died: dict[int, int] = {}
    stamped: list[tuple[str, int, naive.Obj]] = []
    clients = [Client(target) for target in service.targets]
    readers = [Reader(t, s) for s, t in zip(SESSIONS, itertools.cycle(service.targets))]
    for reader in readers:
        reader.start()
    live: dict[str, int] = {}
    serial = itertools.count()
    for begin in range(0, len(made), BATCH):
        for _ in range(12):
            name, session = f"q{next(serial) % 90}", rng.choice(SESSIONS)
            client = rng.choice(clients)
            if name in live:
                handle = live.pop(name)
                died[handle] = client.delete(name)
                with pytest.raises(NotFound):
                    rng.choice(clients).delete(name)
            expression, region = some_query(rng, made)
            lsn: int = client.insert(name, expression, region, session=session)
            live[name] = lsn
            queries[lsn] = naive.Query(name, session, expression, region)
        part = made[begin : begin + BATCH]
        names = [f"o{begin + i}" for i in range(len(part))]
        rows = [
            {"id": n, "text": text, "lon": lon, "lat": lat}
            for n, (text, lon, lat) in zip(names, part, strict=True)
        ]
        receipt = rng.choice(clients).publish(rows)
        assert receipt.lsn >= max(live.values())
        stamped += [
            (n, receipt.lsn, naive.Obj(lon, lat, text))
            for n, (text, lon, lat) in zip(names, part, strict=True)
        ]
    quiet(service)
    for session in SESSIONS:
        clients[0].insert(f"end {session}", "xyzzyend", session=session)
    clients[1].publish([{"id": "the end", "text": "xyzzyend", "lon": 0.0, "lat": 0.0}])
    expected: dict[str, Counter[tuple[str, str]]] = {s: Counter() for s in SESSIONS}
    for handle, query in queries.items():
        for name, lsn, obj in stamped:
            if handle <= lsn < died.get(handle, lsn + 1) and naive.matches(query, obj):
                expected[query.session][query.id, name] += 1
    assert sum(map(len, expected.values())) > 500
    for session, reader in zip(SESSIONS, readers, strict=True):
        assert reader.done.wait(30), session
        assert Counter(reader.pairs) == expected[session]
        reader.client.close()
    for client in clients:
        client.close()


@pytest.mark.takes_turns(1)
def test_a_restart_keeps_every_query_also_under_another_plan(
    service: RunningService, settings: Settings
) -> None:
    with Client(service.targets[0]) as client:
        client.insert("kept", "flood AND (river OR creek)", session="eve")
        client.insert("dropped", "flood", session="eve")
        client.delete("dropped")
        kept = sorted(q.id for q in client.list())
    assert len(kept) > 50
    quiet(service)  # otherwise the second dispatcher cannot be given up
    service.stop()
    assert not (settings.data_dir / ray_environment.NAME).exists()
    changed = {"plan": None, "workers": 1, "dispatchers": 1}
    other = settings.model_copy(update=changed | {"replan_s": 1.0, "replan_engine": "numpy"})
    with start(other) as again, Client(again.targets[0]) as client:
        assert client.status()["endpoints"] == again.targets
        assert sorted(q.id for q in client.list()) == kept
        with client.subscribe("eve") as stream:
            client.publish([{"id": "o", "text": "A creek in flood", "lon": 1.0, "lat": 2.0}])
            match = next(iter(stream))
        assert (match.query_id, match.object_id) == ("kept", "o")
        while not (found := client.status()).get("replans"):
            time.sleep(0.5)
        assert found["replans_failed"] == 0
        assert again.status()["replanning-0"]["said"][0]["event"] == "decided"
