"""A real service whose work is nearly all in one worker's cells: `rebalance` divides it, under
load, and the delivered set is the oracle's."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from tests import naive

pytestmark = pytest.mark.ray
WORDS = [f"word{i}" for i in range(30)]
HOT = [(-60.0 + 2 * x, 30.0 + 2 * y) for x in range(4) for y in range(4)]
COOL = (60.0, 30.0)


class Stream(threading.Thread):
    """Publishes until it is told to stop: nine of ten objects in the hot cells, most of them in
    one, the others elsewhere."""

    def __init__(self, target: str) -> None:
        super().__init__(daemon=True)
        self.client = Client(target, timeout=90)
        self.rng = random.Random(3)
        self.sent: dict[str, naive.Obj] = {}
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            rows = []
            for _ in range(100):
                near = self.rng.choice([COOL, *HOT, HOT[0], HOT[0], HOT[0]])
                if self.rng.random() < 0.5:
                    near = self.rng.choice(HOT[:2])
                lon, lat = (side + self.rng.uniform(0, 0.3) for side in near)
                text = " ".join(self.rng.choices(WORDS, k=3))
                name = f"o{len(self.sent)}"
                self.sent[name] = naive.Obj(lon, lat, text)
                rows.append({"id": name, "lon": lon, "lat": lat, "text": text})
            self.client.publish(rows)
            time.sleep(0.02)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    settings = Settings(
        port=0,
        hot="off",
        adjust="off",
        data_dir=tmp_path / "data",
        dispatchers=2,
        workers=2,
        load_period_s=1.0,
    )
    with start(settings) as running:
        yield running


def after_periods(client: Client, more: int) -> dict[str, Any]:
    """What is told once so many whole periods have passed."""
    until = client.load()["periods"] + more
    deadline = time.monotonic() + 120
    while (told := client.load())["periods"] < until:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return told


def command(service: RunningService, *args: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(main, [*args, "--json", "--server", service.targets[1]])
    assert done.exit_code == 0, done.output
    return list(map(json.loads, done.output.splitlines()))


def test_rebalance_lowers_the_balance_and_loses_nothing(service: RunningService) -> None:
    queries = []
    for i, (lon, lat) in enumerate([*HOT, COOL]):
        for word in WORDS:
            region = {"type": "Rect", "lon_min": lon - 0.1, "lat_min": lat - 0.1,
                      "lon_max": lon + 0.2, "lat_max": lat + 0.2}  # fmt: skip
            queries.append(naive.Query(f"q{i}.{word}", "s", word, region))
    with Client(service.targets[0], timeout=90) as client:
        client.insert_many([(q.id, q.expression, q.region) for q in queries], session="s")
        pairs: Counter[tuple[str, str]] = Counter()
        matches = client.subscribe("s")

        def read() -> None:
            for match in matches:
                pairs[match.query_id, match.object_id] += 1

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        stream = Stream(service.targets[1])
        stream.start()
        before = after_periods(client, 3)
        [would] = command(service, "rebalance", "--dry-run")
        assert would["plan_version"] == 0
        begun, done = command(service, "rebalance", "--wait")
        assert begun["migrations"]
        assert done["plan_version"] == begun["plan_version"] == 2
        after = after_periods(client, 4)
        stream.ended.set()
        stream.join(60)
        assert after["plan_version"] == 2
        assert before["balance"] > 2.0
        assert after["balance"] < before["balance"] / 1.5
        expected = Counter(
            (query.id, name)
            for name, obj in stream.sent.items()
            for query in queries
            if naive.matches(query, obj)
        )
        assert len(expected) > 1000
        deadline = time.monotonic() + 60
        while sum(pairs.values()) < sum(expected.values()):
            assert time.monotonic() < deadline, (sum(pairs.values()), sum(expected.values()))
            time.sleep(0.1)
        matches.close()
        reader.join(10)
        assert pairs == expected
        stream.client.close()
    assert not [s["failure"] for s in service.status().values() if s["failure"]]
