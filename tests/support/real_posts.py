"""Clients of a real service: queries about real posts, and readers of sessions."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from tests import naive

SESSIONS = ("ann", "bob", "cy", "dee")


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
        assert not [s["failure"] for s in found if s.get("failure")]
        if not any(s.get("in_flight") for s in found):
            return
        assert time.monotonic() < deadline
        time.sleep(0.01)
