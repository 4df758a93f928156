"""What the clients did and saw: the acknowledged history, and every delivery of it."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests import naive
from tests.naive_predicates import Scalar

WORDS = [f"word{i}" for i in range(40)]
ATTRIBUTES: dict[str, list[Scalar]] = {
    "severity": [1, 2, 2.5, 3, -4, 2**60],
    "source": ["usgs", "noaa", "3"],
    "tsunami": [True, False],
}
PREDICATES = [
    "severity >= 2.5",
    "severity < 2",
    "severity = 3",
    "severity != 3",
    'source IN ("usgs", "noaa")',
    'source = "3"',
    'source > "n"',
    "tsunami = true",
    "tsunami EXISTS",
]
STRIPES = 8
"""Probes watch this many stripes of longitude each."""


@dataclass(slots=True)
class Batch:
    """One publication. `floor`: the highest LSN that anyone had been told when it began.

    `lsn` -1: not answered, so it may have happened; -2: refused, so it may not have.
    """

    names: list[str]
    objects: list[naive.Obj]
    floor: int
    sent: float
    dispatcher: int
    lsn: int = -1
    partition: int = -1
    offset: int = -1
    answered: float = 0.0


@dataclass(slots=True)
class Change:
    """A query's life, until it is deleted or replaced; `lsn` 0: not yet told."""

    query: naive.Query
    inserted: int = 0
    deleted: int = 0


@dataclass
class Seen:
    """The pairs of a session by number, from 1: (query, object, partition, offset); None
    where a gap was announced."""

    name: str
    pairs: list[tuple[str, str, int, int] | None] = field(default_factory=list)
    repeats: int = 0
    gaps: int = 0
    problems: list[str] = field(default_factory=list)


class History:
    """Shared by all clients; `problems` are violations found on the way. `access`: what each
    client shows the service."""

    def __init__(self, access: Mapping[str, Any] | None = None) -> None:
        self.access = dict(access or {})
        self.lock = threading.Lock()
        self.floor = 0
        self.batches: list[Batch] = []
        self.where: dict[str, tuple[Batch, int]] = {}
        self.queries: dict[str, list[Change]] = {}  # by id: one, and what replaced it
        self.sessions: dict[str, Seen] = {}
        self.arrivals: dict[tuple[int, str, int], list[tuple[float, float]]] = {}
        self.updates: list[tuple[float, float]] = []
        self.withdrawn: set[str] = set()  # before any query with retro was inserted for them
        self.problems: list[str] = []
        self.errors: dict[str, int] = {}
        self.stop = threading.Event()

    def told(self, lsn: int, asked: float, now: float) -> None:
        """A client was told this LSN of an update."""
        with self.lock:
            self.floor = max(self.floor, lsn)
        self.updates.append((asked, now))

    def publishes(self, batch: Batch) -> None:
        with self.lock:
            batch.floor = self.floor
            self.batches.append(batch)
            self.where.update((name, (batch, i)) for i, name in enumerate(batch.names))

    def failed(self, call: str, kind: str) -> None:
        """A call was not answered well, as is to be expected now and then."""
        key = f"{call} {kind}"
        with self.lock:
            self.errors[key] = self.errors.get(key, 0) + 1

    def arrived(self, session: str, name: str, now: float) -> None:
        """A probe `p<stripe>...` was delivered."""
        batch, _ = self.where[name]
        lane = (batch.dispatcher, session, int(name[1:].partition(".")[0]))
        self.arrivals.setdefault(lane, []).append((batch.sent, now))


def some_object(rng: random.Random, probe: int | None = None) -> naive.Obj:
    """A text of a few words and attributes somewhere; a probe of a stripe says so and lies in
    it."""
    lon, lat = round(rng.uniform(-180, 180), 3), round(rng.uniform(-85, 85), 3)
    words = [WORDS[min(int(rng.expovariate(0.08)), len(WORDS) - 1)] for _ in range(5)]
    attributes: dict[str, Scalar] = {}
    for name, values in ATTRIBUTES.items():
        if rng.random() < 0.7:
            attributes[name] = rng.choice(values)
    if probe is None:
        return naive.Obj(lon, lat, " ".join(words), attributes)
    west, _ = stripe(probe)
    lon = round(west + rng.uniform(0, 360 / STRIPES), 3)
    return naive.Obj(lon, lat, f"probe{probe}", attributes)


def hot_object(rng: random.Random, spot: int) -> naive.Obj:
    """An object like others, but at a place and with a word that many have while this spot is
    hot."""
    lon, lat = 47.0 * spot % 300 - 150, 29.0 * spot % 120 - 60
    plain = some_object(rng)
    lon, lat = round(lon + rng.uniform(0, 0.05), 3), round(lat + rng.uniform(0, 0.05), 3)
    return naive.Obj(lon, lat, f"{plain.text} {WORDS[spot % 20]}", plain.attributes)


def stripe(probe: int) -> tuple[float, float]:
    """Its western and eastern side, degrees."""
    width = 360 / STRIPES
    return -180 + probe * width, -180 + (probe + 1) * width


def some_query(rng: random.Random, name: str, session: str) -> naive.Query:
    """A few words, phrases, prefixes and predicates, nearly always somewhere."""
    words = rng.sample(WORDS[:30], rng.randint(1, 3))
    kind = rng.randrange(9)
    if kind == 0:
        words[0] = f'"{words[0]} {rng.choice(WORDS[:30])}"'
    elif kind == 1:
        words[0] = words[0][:5] + "*"
    elif kind > 5:
        words[0] = rng.choice(PREDICATES)
    expression = rng.choice([" AND ", " OR ", " OR "]).join(words)
    if rng.random() < 0.2:
        without = rng.choice([*WORDS[30:], *(p for p in PREDICATES if p not in words)])
        expression = f"({expression}) AND NOT {without}"
    lon, lat = round(rng.uniform(-160, 160), 2), round(rng.uniform(-70, 70), 2)
    side = rng.choice([2.0, 15.0, 40.0])
    kind = rng.randrange(6)
    region: dict[str, object] | None
    if kind == 0:
        region = None
    elif kind == 1:
        region = {"type": "Circle", "lon": lon, "lat": lat, "radius_km": side * 100}
    elif kind == 2:
        ring = [[lon - side, lat], [lon, lat - 10], [lon + side, lat + 10], [lon - side, lat]]
        region = {"type": "Polygon", "coordinates": [ring]}
        if lon - side < -180 or lon + side > 180:
            region = None
    else:
        south, north = max(lat - side, -90.0), min(lat + side, 90.0)
        west, east = max(lon - 2 * side, -180.0), min(lon + 2 * side, 180.0)
        region = {"type": "Rect", "lon_min": west, "lat_min": south, "lon_max": east,
                  "lat_max": north}  # fmt: skip
        if rng.random() < 0.05:
            expression = ""
    return naive.Query(name, session, expression, region)


def probe_query(session: str, probe: int) -> naive.Query:
    west, east = stripe(probe)
    region = {"type": "Rect", "lon_min": west, "lat_min": -90.0, "lon_max": east, "lat_max": 90.0}
    return naive.Query(f"probe{probe} of {session}", session, f"probe{probe}", region)
