"""What a client may come up with: words, places, expressions and regions at every border."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import shapely

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.parser import ExpressionError, parse
from ps2stream.routing.h1 import H1
from ps2stream.routing.plan import RoutingPlan, Space, Text, built_in_plan, text_plan
from ps2stream.space.grid import Grid
from ps2stream.space.regions import Circle, Polygon, Rect, Region, World
from tests.naive_predicates import Scalar
from tests.support.replicas import replicated

WORDS = ["flood", "river", "creek", "Fire", "straße", "a", "🌊", "東京", "the", "e\u0301te"]
SPOTS = [-180.0, 180.0, 179.99, -0.0, 0.0, 0.703125, 45.0, -73.9, -74.0, 12.5]
LATS = [-90.0, 90.0, 0.0, -0.0, 40.7, 40.70001, 0.703125, -33.0, 89.9]
ANALYSIS = Analysis(salt=7)


PREFIXES = ["fl*", "flo*", "river*", "Fi*", "STR*", "e\u0301t*", "th*"]
PREDICATES = [
    *("severity >= 3", "severity < 3.5", "severity != 3", "severity = 3", "severity EXISTS"),
    *('source = "usgs"', 'source > "n"', 'source IN ("usgs", "noaa", 3)', "Source EXISTS"),
    *("tsunami = true", "seen >= 2026-11-24T10:00:00Z", "`two words` <= 9007199254740993"),
]
FREQUENCIES = {
    "flood": 300,
    "the": 900,
    "severity EXISTS": 700,
    "severity = 3": 80,
    "source EXISTS": 500,
    'source = "usgs"': 90,
    "tsunami EXISTS": 800,
    "tsunami = true": 95,
}
_VALUES: Mapping[str, Sequence[Scalar]] = {
    "severity": [2, 3, 3.0, 3.5, -0.0, float("inf"), "3"],
    "source": ["usgs", "noaa", "n", "n\0", 3, "z" * 300],
    "tsunami": [True, False],
    "seen": [datetime(2026, 11, 24, 10, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)],
    "two words": [2**53, 2**53 + 1, 2**53 + 2],
}
_WORD = re.compile(r"\(|(?<![^\s(])(?!(?:AND|OR)(?![^\s()]))[^\s()]+")
_ANALYZERS = [Analyzer(dataclasses.replace(ANALYSIS, stemmer=s)) for s in (None, "english")]


def some_expression(
    rng: random.Random,
    words: Sequence[str] = WORDS,
    prefixes: Sequence[str] = PREFIXES,
    predicates: Sequence[str] = (),
) -> str:
    """One that can match something, also where words have stems."""
    plain = _some_tree(rng, words, 3)
    own = random.Random(plain)  # so that what else is drawn does not depend on it
    others = random.Random(f"predicates {plain}")
    has_predicates = bool(predicates) and others.random() < 0.4

    def draw_literal(match: re.Match[str]) -> str:
        literal = _some_literal(own, match[0], words, prefixes)
        if not has_predicates or match[0] == "(" or others.random() < 0.4:
            return literal
        return others.choice(["", "", "NOT ", "-"]) + others.choice(predicates)

    equalities = [p for p in predicates if " = " in p]
    pair = has_predicates and others.random() < 0.3
    for _ in range(20):
        expression = _WORD.sub(draw_literal, plain)
        if pair:  # beside words that are rarer it would not be posted
            two = " AND ".join(others.sample(equalities, 2))
            expression = two if others.random() < 0.7 else f"({expression}) AND {two}"
        with contextlib.suppress(ExpressionError):
            for analyzer in _ANALYZERS:
                parse(expression, analyzer)
            return expression
    return plain


def _some_tree(rng: random.Random, words: Sequence[str], depth: int) -> str:
    if depth == 0 or rng.random() < 0.5:
        return rng.choice(words)
    joint = rng.choice([" AND ", " OR ", " OR ", " "])
    return (
        "(" + joint.join(_some_tree(rng, words, depth - 1) for _ in range(rng.randint(1, 3))) + ")"
    )


def _some_literal(
    rng: random.Random, given: str, words: Sequence[str], prefixes: Sequence[str]
) -> str:
    """What stands for a word or an opening parenthesis."""
    excluded = rng.choice(["NOT ", "-"]) if rng.random() < 0.1 else ""
    kind = rng.random()
    if given == "(" or kind > 0.25:
        return excluded + given
    if kind < 0.15:
        more = " ".join(rng.choice(words) for _ in range(rng.randint(1, 2)))
        return f'{excluded}"{given} {more}"'
    return excluded + rng.choice(prefixes)


def some_region(rng: random.Random) -> Region:
    kind = rng.randrange(8)
    lon, lat = rng.choice(SPOTS), rng.choice(LATS)
    if kind <= 2:
        return World()
    if kind == 3:
        return Circle(lon, lat, rng.choice([0.5, 30.0, 900.0, 9000.0]))
    if kind == 4:
        x, y = min(max(lon, -170.0), 170.0), min(max(lat, -80.0), 80.0)
        side = rng.choice([0.5, 5.0])
        return Polygon(shapely.Polygon([(x, y), (x + side, y), (x, y + side)]))
    lat2 = rng.choice(LATS)
    return Rect(lon, min(lat, lat2), rng.choice(SPOTS), max(lat, lat2))


def some_object(rng: random.Random) -> tuple[str, float, float]:
    """Text, longitude and latitude."""
    text = " ".join(rng.choice(WORDS) for _ in range(rng.choice([0, 1, 3, 5, 8])))
    return text, rng.choice(SPOTS), rng.choice(LATS)


def has_attributes(seed: int) -> bool:
    """Whether objects have attributes, and queries predicates: in every other hundred of seeds, so
    that seeds of the others find the deliberate bugs that they have always found."""
    return seed // 100 % 2 == 1


def some_attributes(seed: str, name: str) -> dict[str, Scalar]:
    """The attributes of the object of this name, which nothing else that is drawn depends on."""
    rng = random.Random(f"{seed} attributes of {name}")
    if not (seed.isdecimal() and has_attributes(int(seed))) or rng.random() < 0.3:
        return {}
    return {name: rng.choice(values) for name, values in _VALUES.items() if rng.random() < 0.6}


class Plan(RoutingPlan):
    """One that is worked out once, not for every actor anew."""

    @cached_property
    def route(self) -> int:
        return super().route

    @cached_property
    def _compiled(self) -> H1:
        return super().compile(Analyzer(ANALYSIS))

    def compile(self, analyzer: Analyzer) -> H1:
        return self._compiled


def with_frequencies(plan: Plan) -> Plan:
    """The plan with FREQUENCIES, by which new queries are posted."""
    return dataclasses.replace(plan, frequencies=FREQUENCIES)


def some_plan(rng: random.Random, grid: Grid | None = None) -> Plan:
    plan = replicated(rng, _some_plan(rng, grid), ["flood", "river", "the"], SPOTS, LATS)
    return Plan(**{f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)})


def _some_plan(rng: random.Random, given: Grid | None) -> RoutingPlan:
    workers = rng.randint(1, 4)
    grid = Grid(rng.choice([0, 4, 9]), rng.choice([0, 3, 8]), max_cells=rng.choice([1, 4, 64]))
    if given is not None:
        grid = given
    kind = rng.randrange(3)
    if kind == 0:
        sample = np.array([-74.0, 0.0, 12.5]), np.array([40.7, 0.0, -33.0])
        return built_in_plan(ANALYSIS, grid, workers, sample, FREQUENCIES)
    if kind == 1:
        return text_plan(ANALYSIS, grid, workers, {"flood": workers - 1})
    every = tuple(range(workers))
    leaves: list[Space | Text] = [
        Space(rng.randrange(workers)),
        Text(every, {"river": 0}),
        Text(every),
    ]
    size = 1 << (grid.lon_bits + grid.lat_bits)
    row = min(size, 1 << 8)  # of one leaf, so that a plan is no megabytes
    some = np.random.default_rng(rng.getrandbits(32)).integers(0, 3, size // row * 4 or 4)
    cells = np.resize(np.repeat(some, max(row // 4, 1)), size).astype(np.uint32)
    return RoutingPlan(workers, ANALYSIS, grid, tuple(leaves), cells, {"fire": 5})


def region_of(value: Mapping[str, Any] | None) -> str:
    """A region in the words of a story."""
    if value is None:
        return "the world"
    return " ".join(str(v) for k, v in value.items() if k != "coordinates")
