"""Queries of a workload with more to check: words that must not be there, circles, polygons."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import shapely

from ps2stream.benchmarks.workload import Workload
from ps2stream.language.analyzer import Analyzer
from ps2stream.protocol.frame import F64, I64, Array, take_ragged
from ps2stream.protocol.rows import PROG_AND, PROG_NOT, PROG_OR, ExpressionForm, QueryRows
from ps2stream.space.region_rows import boxes_of, geom_of, shape_of
from ps2stream.space.regions import Circle, Polygon
from ps2stream.space.sphere import KM_PER_DEGREE

_FREQUENT = 100  # words
_VERTICES = 5, 60


@dataclasses.dataclass(frozen=True)
class Shares:
    """The shares of queries that get a negated frequent word, a circle or a polygon."""

    negated: float = 0.0
    circles: float = 0.0
    polygons: float = 0.0


NO_SHARES = Shares()


class QueryVariants:
    """The queries of a workload, shares of them changed: `load` has the boxes of the new regions,
    which have about the area of the old ones."""

    def __init__(self, load: Workload, shares: Shares, analyzer: Analyzer, seed: int) -> None:
        rng = np.random.default_rng([seed, 5])
        n, interests = len(load.interests.every), load.interests
        counts = np.array([load.counts[w] for w in load.words[:_FREQUENT]], np.float64)
        word = rng.choice(len(counts), n, p=counts / counts.sum())
        negated = (rng.random(n) < shares.negated) & (interests.word != word[:, None]).all(1)
        self._without = np.where(negated, word, -1)
        self._hashes = analyzer.hash_terms(load.words[: len(counts)])
        kind = rng.random(n)
        self._regions: dict[int, Circle | Polygon] = {}
        rect = interests.rect.copy()
        for row in np.flatnonzero(kind < shares.circles + shares.polygons).tolist():
            make = _make_circle if kind[row] < shares.circles else _make_polygon
            self._regions[row] = region = make(rect[row], rng)
            rect[row] = boxes_of(region)[0]
        self._words = load.words
        self.load = dataclasses.replace(load, interests=dataclasses.replace(interests, rect=rect))

    def change_rows(self, rows: QueryRows, first: int) -> QueryRows:
        """Returns the rows of the queries from number `first` on as they are to be inserted."""
        span = range(first, first + len(rows))
        regions = {i: r for i, q in enumerate(span) if (r := self._regions.get(q))}
        if regions:
            shape = rows.shape.copy()
            shape[list(regions)] = [shape_of(r) for r in regions.values()]
            parts = {i: geom_of(r) for i, r in regions.items()}
            off, geom = _replace_parts(rows.geom_off, rows.geom, parts)
            rows = rows.replace(shape=shape, geom_off=off, geom=geom)
        without = self._without[first : first + len(rows)]
        words = {i: self._hashes[without[i]] for i in np.flatnonzero(without >= 0).tolist()}
        return _negate_words(rows, words)

    def holds(self, query: int, lon: float, lat: float, tokens: set[str]) -> bool:
        """Returns whether what is new of a query allows an object in its box."""
        if self._without[query] >= 0 and self._words[self._without[query]] in tokens:
            return False
        region = self._regions.get(query)
        return region is None or region.contains(lon, lat)


def _make_circle(rect: F64, _: np.random.Generator) -> Circle:
    """Returns a circle in the middle of a box, of its area."""
    west, south, east, north = rect.tolist()
    lon, lat = (west + east) / 2, (south + north) / 2
    area = (east - west) * math.cos(math.radians(lat)) * (north - south)
    return Circle(lon, lat, KM_PER_DEGREE * math.sqrt(area / math.pi))


def _make_polygon(rect: F64, rng: np.random.Generator) -> Polygon:
    """Returns a star-shaped polygon in the middle of a box, of its area in degrees."""
    n = int(rng.integers(_VERTICES[0], _VERTICES[1] + 1))
    angle = (np.arange(n) + rng.uniform(0, 0.9, n)) * (2 * np.pi / n)
    ring = np.stack([np.cos(angle), np.sin(angle)], 1) * rng.uniform(0.6, 1, (n, 1))
    area = shapely.Polygon(ring).area
    ring = (rect[:2] + rect[2:]) / 2 + ring * (rect[2:] - rect[:2]) / math.sqrt(area)
    points = [(x, y) for x, y in ring.tolist()]
    return Polygon.from_normal_form((((*points, points[0]),),), False)


def _replace_parts(off: I64, data: Array, parts: dict[int, Array]) -> tuple[I64, Array]:
    """Returns a ragged column with some of its rows replaced."""
    n = len(off) - 1
    more = np.concatenate([np.zeros(0, data.dtype), *parts.values()]).astype(data.dtype)
    ends = np.cumsum([len(p) for p in parts.values()], dtype=np.int64)
    pick = np.arange(n)
    pick[list(parts)] = n + np.arange(len(parts))
    return take_ragged(np.concatenate([off, off[-1] + ends]), np.concatenate([data, more]), pick)


def _negate_words(rows: QueryRows, words: dict[int, np.uint64]) -> QueryRows:
    """Returns rows of forms ALL and ANY of which some match nothing with another word: `words` has
    its term by their numbers. The programs are those of disjunctive normal forms."""
    if not words:
        return rows
    form, post = rows.form.copy(), rows.post.copy()
    terms: dict[int, Array] = {}
    programs: dict[int, Array] = {}
    for i, word in words.items():
        old = rows.term[rows.term_off[i] : rows.term_off[i + 1]]
        at = int(np.searchsorted(old, word))
        terms[i] = np.insert(old, at, word)
        low = (1 << at) - 1
        bits = int(rows.post[i])
        post[i], form[i] = bits & low | (bits & ~low) << 1, ExpressionForm.PROGRAM
        every = rows.form[i] == ExpressionForm.ALL
        prog: list[int] = []
        for k in range(len(old)):
            prog += [k + (k >= at)] if every else [k + (k >= at), at, PROG_NOT, PROG_AND]
            prog += [PROG_AND if every else PROG_OR] if k else []
        prog += [at, PROG_NOT, PROG_AND] if every else []
        programs[i] = np.array(prog, np.int16)
    term_off, term = _replace_parts(rows.term_off, rows.term, terms)
    prog_off, prog_ = _replace_parts(rows.prog_off, rows.prog, programs)
    return rows.replace(
        form=form, post=post, term_off=term_off, term=term, prog_off=prog_off, prog=prog_
    )
