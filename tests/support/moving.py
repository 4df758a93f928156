"""What tests of moves share: commands, plans, and a world with its oracle."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import numpy as np
from click.testing import CliRunner, Result

from ps2stream.cli import main
from ps2stream.client.answers import MigrationHistory
from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.leaves import Text
from ps2stream.routing.plan import RoutingPlan
from ps2stream.space.grid import Grid
from tests import naive

COUNTED_S = 30.0
WORDS = ["flood", "river", "creek", "storm", "fire"]


def run(service: RunningService, *args: str, server: str = "") -> Result:
    return CliRunner().invoke(main, [*args, "--server", server or service.targets[1]])


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def settled(client: Client) -> MigrationHistory:
    """The plan changes, once none is under way and the postings of the last one are counted."""
    until = time.monotonic() + COUNTED_S
    while (found := client.migrations()).following_version or (
        any(last.outcome == "done" and last.missing is None for last in found.migrations[-1:])
        and time.monotonic() < until
    ):
        time.sleep(0.02)
    return found


def swapped(client: Client) -> bytes:
    """The plan in force, derived from it, with workers 0 and 1 in each other's place."""
    plan = json.loads(client.plan())
    for leaf in plan["leaves"]:
        if "worker" in leaf:
            leaf["worker"] = 1 - leaf["worker"]
        else:
            leaf["workers"].reverse()
    plan["base_version"], plan["version"] = plan["version"], plan["version"] + 1
    return json.dumps(plan).encode()


def by_text() -> RoutingPlan:
    """Two workers, each with half of the terms everywhere."""
    grid = Grid(8, 7)
    cells = np.zeros(grid.rows() * grid.columns(), np.uint32)
    return RoutingPlan(2, Analysis(salt=1), grid, (Text((0, 1), {}),), cells, {})


class World:
    """Queries and posts of a few words, against the oracle."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.rng = random.Random(3)
        self.queries: list[naive.Query] = []
        self.made = 0
        self.expected: list[tuple[str, str]] = []
        self.posts = 0

    def insert(self, n: int) -> None:
        for _ in range(n):
            name = f"q{self.made}"
            self.made += 1
            expression = f"{self.rng.choice(WORDS)} OR ({' AND '.join(self.rng.sample(WORDS, 2))})"
            lon, lat, side = (
                self.rng.uniform(-9, 9),
                self.rng.uniform(-9, 9),
                self.rng.choice([1, 9]),
            )
            region = {
                "type": "Rect", "lon_min": lon, "lat_min": lat, "lon_max": lon + side,
                "lat_max": lat + side,
            }  # fmt: skip
            self.queries.append(naive.Query(name, "default", expression, region))
            self.client.insert(name, expression, region)

    def delete(self, n: int) -> None:
        """The oldest."""
        for query in self.queries[:n]:
            self.client.delete(query.id)
        del self.queries[:n]

    def publish(self, n: int) -> None:
        rows = []
        for _ in range(n):
            lon, lat = self.rng.uniform(-9, 9), self.rng.uniform(-9, 9)
            text = " ".join(self.rng.sample(WORDS, 2))
            name = f"o{self.posts}"
            self.posts += 1
            rows.append({"id": name, "text": text, "lon": lon, "lat": lat})
            self.expected += [
                (q.id, name) for q in self.queries if naive.matches(q, naive.Obj(lon, lat, text))
            ]
        self.client.publish(rows)

    def check(self) -> None:
        assert len(self.expected) > 30
        with self.client.subscribe() as stream:
            got = [(m.query_id, m.object_id) for _, m in zip(self.expected, stream, strict=False)]
        assert sorted(got) == sorted(self.expected)
