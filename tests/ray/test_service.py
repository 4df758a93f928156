"""The real service: Ray actors, gRPC in and out, real posts, against the oracle."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import NotFound
from tests import naive

pytestmark = pytest.mark.ray
SESSIONS = ("ann", "bob", "cy", "dee")
BATCH = 50


def posts(tweets: Path, n: int) -> list[tuple[str, float, float]]:
    table = pq.read_table(tweets, columns=["text", "lon", "lat"]).slice(0, n).to_pylist()
    return [(row["text"], row["lon"], row["lat"]) for row in table]


def some_query(
    rng: random.Random, made: list[tuple[str, float, float]]
) -> tuple[str, dict[str, Any] | None]:
    """Words of one post, a place near another; sometimes no words, sometimes no place."""
    text, lon, lat = rng.choice(made)
    words = sorted(naive.tokens(text)) or ["http"]
    picked = [rng.choice(words) for _ in range(rng.randint(1, 3))]
    picked += [rng.choice(["http", "user", "the", "a"])] * rng.randint(0, 1)
    expression = rng.choice([" AND ", " OR ", " "]).join(picked)
    if rng.random() < 0.1:
        expression = f"({expression}) AND (http OR user)"
    side = rng.choice([0.01, 1.0, 8.0])
    kind = rng.randrange(5)
    if kind == 0:
        return expression, None
    if kind == 1:
        return expression, {"type": "Circle", "lon": lon, "lat": lat, "radius_km": side * 111}
    if kind == 2:
        ring = [[lon - side, lat], [lon, lat - side], [lon + side, lat + side], [lon - side, lat]]
        return expression, {"type": "Polygon", "coordinates": [ring]}
    rect = {
        "type": "Rect",
        "lon_min": lon - side, "lat_min": lat - side, "lon_max": lon + side, "lat_max": lat + side,
    }  # fmt: skip
    return (expression if rng.random() < 0.9 else ""), rect


class Reader(threading.Thread):
    """One subscriber; `pairs` are (query id, object id) in the order of arrival."""

    def __init__(self, target: str, session: str) -> None:
        super().__init__(daemon=True)
        self.client = Client(target)
        self.stream = self.client.subscribe(session)
        self.pairs: list[tuple[str, str]] = []
        self.done = threading.Event()

    def run(self) -> None:
        for match in self.stream:
            if match.object_id == "the end":
                self.done.set()
                return
            self.pairs.append((match.query_id, match.object_id))


def quiet(service: RunningService) -> None:
    """Until no batch is under way at any dispatcher."""
    deadline = time.monotonic() + 60
    while True:
        found = service.status().values()
        assert not [s["failure"] for s in found if s["failure"]]
        if not any(s.get("in_flight") for s in found):
            return
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Settings:
    return Settings(
        port=0,
        data_dir=tmp_path_factory.mktemp("ray") / "data",
        dispatchers=2,
        workers=3,
        mergers=2,
        plan=root / "examples" / "plan-text.json",
        max_in_flight=64,
    )


@pytest.fixture
def service(settings: Settings) -> Iterator[RunningService]:
    with start(settings) as running:
        yield running


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


def test_a_watcher_sees_the_objects_of_its_dispatcher_and_matches_from_everywhere(
    service: RunningService,
) -> None:
    first, second = (Client(target, timeout=60) for target in service.targets)
    sessions = ("of one merger", "of the other")  # numbers follow on, mergers take turns
    for session in sessions:
        first.insert(f"storm {session}", "storm", session=session)
    watch = first.watch()
    next(watch)
    for client in (first, second):
        client.publish([{"id": client.target, "text": "a storm", "lon": 1.0, "lat": 2.0}])
    objects: list[str] = []
    pairs: set[tuple[str, str]] = set()
    timed = 0
    deadline = time.monotonic() + 60
    while len(pairs) < 4 or not objects or not timed:
        assert time.monotonic() < deadline, (objects, pairs)
        told = next(watch)
        objects += [o.id for o in told.objects]
        pairs |= {(m.query_id, m.object.id) for m in told.matches}
        timed += len(told.latency_ms)
    assert objects == [first.target]
    assert pairs == {(f"storm {s}", t) for s in sessions for t in service.targets}
    watch.close()
    for client in (first, second):
        client.close()


def test_a_restart_keeps_every_query_also_under_another_plan(settings: Settings) -> None:
    one = settings.model_copy(update={"data_dir": settings.data_dir.with_name("again")})
    with start(one) as service, Client(service.targets[0]) as client:
        client.insert("kept", "flood AND (river OR creek)", session="ann")
        client.insert("dropped", "flood", session="ann")
        client.delete("dropped")
    changed = {"plan": None, "workers": 1, "dispatchers": 1}
    other = one.model_copy(update=changed | {"replan_s": 1.0, "replan_engine": "numpy"})
    with start(other) as service, Client(service.targets[0]) as client:
        assert client.status()["endpoints"] == service.targets
        assert [q.id for q in client.list()] == ["kept"]
        with client.subscribe("ann") as stream:
            client.publish([{"id": "o", "text": "A creek in flood", "lon": 1.0, "lat": 2.0}])
            match = next(iter(stream))
        assert (match.query_id, match.object_id) == ("kept", "o")
        while not (found := client.status()).get("replans"):
            time.sleep(0.1)
        assert found["replans_failed"] == 0
        assert service.status()["replanning-0"]["said"][0]["event"] == "decided"
