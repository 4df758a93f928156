"""What the clients do and see: written to a history as it happens, and counted on the way."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import naive
from tests.history.record import Recorder
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


@dataclass
class Received:
    """What a session has: handles and objects of its matches, and how many numbers were in gaps."""

    matches: set[tuple[int, str]] = field(default_factory=set)
    last: int = 0
    gaps: int = 0


class History:
    """Shared by all clients. `access`: what each client shows the service. `path`: the file, if it
    is to be kept whatever it says."""

    def __init__(self, access: Mapping[str, Any] | None = None, path: Path | None = None) -> None:
        self.access = dict(access or {})
        self.is_kept = path is not None
        if path is None:
            with tempfile.NamedTemporaryFile(prefix="history-", dir="/tmp", delete=False) as file:
                path = Path(file.name)
        self.path = path
        self.recorder = Recorder(path)
        self.lock = threading.Lock()
        self.accepted = 0  # publications
        self.sent: dict[str, tuple[float, int]] = {}  # probes: when, and at which dispatcher
        self.sessions: dict[str, Received] = {}
        self.arrivals: dict[tuple[int, str, int], list[tuple[float, float]]] = {}
        self.updates: list[tuple[float, float]] = []
        self.ids: list[str] = []  # of queries
        self.errors: dict[str, int] = {}
        self.stop = threading.Event()

    def failed(self, call: str, kind: str) -> None:
        """A call was not answered well, as is to be expected now and then."""
        key = f"{call} {kind}"
        with self.lock:
            self.errors[key] = self.errors.get(key, 0) + 1

    def arrived(self, session: str, name: str, now: float) -> None:
        """A probe `p<stripe>...` was delivered."""
        if name in self.sent:
            sent, dispatcher = self.sent[name]
            lane = (dispatcher, session, int(name[1:].partition(".")[0]))
            self.arrivals.setdefault(lane, []).append((sent, now))


def as_row(name: str, obj: naive.Obj) -> list[Any]:
    """An object of a publication, as a history has it."""
    return [name, obj.lon, obj.lat, obj.text, dict(obj.attributes), obj.until]


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
