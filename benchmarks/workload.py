"""Seeded workloads: posts, and queries that are inserted and deleted (algorithms.md 1.10).

Sources
    tweets     a file with text, lat and lon (`readers.read_posts`)
    synthetic  posts around 2,000 power-law cities, words by a power law
    yardstick  exactly the world of the yardstick engine: same seeds, same numbers; its
               plane of kilometres is laid on degrees linearly, so that its 50 km cell is
               one cell of Grid(9, 8)

Queries (except for yardstick, which has its own): one to three keywords with AND or OR, a square
centred at a random post. Q1: side 1-50 km, keywords as frequent as in the posts. Q2: side 1-100
km, one keyword outside the 1% most frequent terms. Q3: 100 regions with about as many posts each,
of Q1 or Q2; of a hundred equal parts of the bounding box most would be empty.
Lifetimes, in later inserts, are Gaussian with mean `queries` and a fifth of it as deviation, and
the live set starts in its steady state.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.benchmarks.query_regions import REGIONS, choose_regions, find_region
from ps2stream.errors import invalid
from ps2stream.language.analyzer import Analyzer
from ps2stream.language.literal_texts import TextWords
from ps2stream.posts import readers
from ps2stream.protocol.frame import F64, I64, U8, Array, strings_to_column, take_ragged
from ps2stream.space.grid import Grid
from ps2stream.space.region_rows import square_km

GROUPS = ("q1", "q2", "q3")
_KM_WIDE, _KM_HIGH, _VOCABULARY = 4600.0, 2770.0, 300_000  # the yardstick's world
_CELL_KM = 50.0
_YARDSTICK_EXTRA = 600_000  # queries that it draws beyond those it starts with


class PostColumns(NamedTuple):
    """Objects as columns: float64 degrees and a ragged column of UTF-8 texts."""

    lon: F64
    lat: F64
    text_off: I64
    text: U8

    def take(self, rows: I64) -> PostColumns:
        """Returns these rows, in this order."""
        off, text = take_ragged(self.text_off, self.text, rows)
        return PostColumns(self.lon[rows], self.lat[rows], off, text)


@dataclasses.dataclass(frozen=True, eq=False)
class QueryColumns:
    """Queries in the order of their inserts. word int32[n, 3] indexes Workload.words, -1 pads;
    every uint8[n], 1 = AND; rect float64[n, 4] lon_min, lat_min, lon_max, lat_max (lon_min >
    lon_max wraps); death int64[n]: the query is deleted once that many were inserted after the
    start; without int32[n]: the word that must not be there, -1 = any may."""

    word: Array
    every: U8
    rect: F64
    death: I64
    without: Array


@dataclasses.dataclass(frozen=True, eq=False)
class Workload:
    """Posts, and queries over them. `interests` holds the `start` queries that are live at the
    start, then those that are inserted later. words: most frequent first, perhaps phrases and
    prefixes behind them; counts: the frequencies of words in the posts."""

    posts: PostColumns
    interests: QueryColumns
    start: int
    words: list[str]
    counts: dict[str, int]
    grid: Grid
    square: F64  # [n, 3] lon, lat and side in km; empty where queries are given
    kind: Array  # of each query: 1 of Q1, 2 of Q2
    seed: int

    def expressions(self) -> list[str]:
        """Returns the queries' keyword expressions in the query language."""
        words, without = self.words, self.interests.without
        joint = (" OR ", " AND ")
        found = [
            joint[every].join([words[w] for w in row if w >= 0])
            for row, every in zip(
                self.interests.word.tolist(), self.interests.every.tolist(), strict=True
            )
        ]
        for query in np.flatnonzero(without >= 0).tolist():
            found[query] = f"({found[query]}) NOT {words[without[query]]}"
        return found

    def holds(self, query: int, text: TextWords) -> bool:
        """Returns whether the expression of a query holds for a text, by its definition."""
        own, without = self.interests.word[query].tolist(), int(self.interests.without[query])
        found = (text.has(self.words[w]) for w in own if w >= 0)
        enough = all(found) if self.interests.every[query] else any(found)
        return enough and (without < 0 or not text.has(self.words[without]))

    def scaled(self, side: float, skew: float = 1.0) -> Workload:
        """Returns the same queries with sides `side` times as long, and with keywords drawn by
        (frequency ** skew): above 1 commoner words, below rarer ones. Raises InvalidArgument for
        a workload whose queries are given."""
        if not len(self.square):
            raise invalid(
                "mo", "the queries of the workload yardstick are fixed, and cannot be scaled"
            )
        square = self.square * np.array([1.0, 1.0, side])
        rect = _make_rects(square)
        counts = np.array([self.counts[w] for w in self.words], np.float64)
        word, every = _draw_keywords(counts**skew, self.kind, _make_keyword_rng(self.seed))
        interests = dataclasses.replace(self.interests, rect=rect, word=word, every=every)
        return dataclasses.replace(
            self, interests=interests, square=square, grid=_choose_grid(rect)
        )

    def widened(self, side: float) -> Workload:
        """Returns the same queries with sides `side` times as long around the same centres, within
        the world, also of a workload whose queries are given."""
        if len(self.square):
            return self.scaled(side)
        low, high = self.interests.rect[:, :2], self.interests.rect[:, 2:]
        middle, half = (low + high) / 2, (high - low) / 2 * side
        ends = np.array([180.0, 90.0])
        rect = np.concatenate(
            [np.maximum(middle - half, -ends), np.minimum(middle + half, ends)], 1
        )
        interests = dataclasses.replace(self.interests, rect=rect)
        return dataclasses.replace(self, interests=interests, grid=_choose_grid(rect))

    def flipping(self, every: int, first: int = 0, share: float = 0.1) -> Workload:
        """Returns a workload with the same places and Q3's regions, of which some turn from Q1 to
        Q2 or back after each `every` of the later inserts from `first` on: as many, drawn at
        random, as have about a `share` of the queries together. Live queries stay what they are.
        Raises InvalidArgument for a workload whose queries are given."""
        if not len(self.square):
            raise invalid("workload", "the queries of the yardstick are fixed: no region can flip")
        rng = np.random.default_rng([self.seed, 4])
        later = np.maximum(np.arange(len(self.kind)) - self.start - first, 0)
        region = find_region(self.square[:, 0], self.square[:, 1])
        weight = np.bincount(region, minlength=REGIONS) / len(region)
        turn = np.zeros((later.max(initial=0) // every + 1, REGIONS), np.bool_)
        for flipped in turn[1:]:
            flipped[choose_regions(weight, share, rng)] = True
        turned = np.logical_xor.accumulate(turn)[later // every, region]
        kind = np.where(turned, 3 - self.kind, self.kind)
        side = np.where(kind == self.kind, 1, np.where(kind == 1, 49 / 99, 99 / 49))
        square = self.square.copy()
        square[:, 2] = 1 + (square[:, 2] - 1) * side
        counts = np.array([self.counts[w] for w in self.words], np.float64)
        word, joined = _draw_keywords(counts, kind, _make_keyword_rng(self.seed))
        interests = dataclasses.replace(
            self.interests, rect=_make_rects(square), word=word, every=joined
        )
        return dataclasses.replace(self, interests=interests, square=square, kind=kind)


def make(
    source: str, group: str, queries: int, updates: int, posts: int, seed: int, analyzer: Analyzer,
    timed: bool = False,
) -> Workload:  # fmt: skip
    """Returns a workload of `queries` live queries, `updates` later inserts, and `posts` posts.

    source: "yardstick", "synthetic" or a file. timed: the posts of a file follow each other as in
    the file, whose rows are by time, and are not shuffled. Raises ValueError for an unknown group.
    """
    if group not in GROUPS:
        raise ValueError(f"group: expected one of {', '.join(GROUPS)}, got {group!r}")
    if source == "yardstick":
        return _make_yardstick(group, queries, updates, posts)
    rng = np.random.default_rng(seed)
    if source == "synthetic":
        lon, lat, texts = _make_posts(posts, rng)
    else:
        lon, lat, texts = _read_posts(source, posts, None if timed else rng)
    split = analyzer.tokens
    if source == "synthetic" and analyzer.simple:
        split = _split_words  # the same words, in a fraction of the time
    counts = Counter(itertools.chain.from_iterable(map(split, texts)))
    ranked = [(w, c) for w, c in counts.most_common() if w.replace("_", "").isalnum()]
    n = queries + updates
    at = rng.integers(0, len(lon), n)
    kind = _draw_kinds(group, lon[at], lat[at], rng)
    side = rng.uniform(1.0, np.where(kind == 1, 50.0, 100.0))
    word, every = _draw_keywords(
        np.array([c for _, c in ranked], np.float64), kind, _make_keyword_rng(seed)
    )
    square = np.stack([lon[at], lat[at], side], axis=1)
    rect = _make_rects(square)
    interests = QueryColumns(word, every, rect, _draw_deaths(queries, updates, rng), _no_words(n))
    return Workload(
        posts=PostColumns(lon, lat, *strings_to_column(texts)),
        interests=interests,
        start=queries,
        words=[w for w, _ in ranked],
        counts=dict(counts),
        grid=_choose_grid(rect),
        square=square,
        kind=kind,
        seed=seed,
    )


# --- parts ----------------------------------------------------------------


def _read_posts(
    path: str, posts: int, rng: np.random.Generator | None
) -> tuple[F64, F64, list[str]]:
    """Returns `posts` rows of a file in a seeded order, or without rng its first ones as they are;
    drawn again if it has too few."""
    rows = pa.Table.from_batches(readers.read_posts(path))
    lon, lat = rows["lon"].to_numpy(), rows["lat"].to_numpy()
    texts = rows["text"].to_pylist()
    rows_at = np.arange(len(lon)) if rng is None else rng.permutation(len(lon))
    order = np.resize(rows_at, posts)
    return lon[order], lat[order], [texts[i] for i in order.tolist()]


def _make_posts(posts: int, rng: np.random.Generator) -> tuple[F64, F64, list[str]]:
    """Returns posts of eight to ten words, with power-law words and cities over a continent."""
    cities = 2000
    weight = 1.0 / np.arange(1, cities + 1)
    city = rng.choice(cities, posts, p=weight / weight.sum())
    spread = np.clip(28 * (weight / weight[0]) ** 0.35, 2, 40) / 111.0
    home = np.c_[rng.uniform(-122, -72, cities), rng.uniform(27, 48, cities)]
    at = home[city] + rng.normal(0, 1, (posts, 2)) * spread[city, None]
    word = np.searchsorted(_make_word_distribution(), rng.random((posts, 10)))
    size = rng.integers(8, 11, posts)
    texts = [
        " ".join([f"w{w}" for w in row[:k]])
        for row, k in zip(word.tolist(), size.tolist(), strict=True)
    ]
    return at[:, 0], at[:, 1], texts


def _split_words(text: str) -> list[str]:
    """Returns the distinct words of a text of _make_posts, in order of appearance."""
    return list(dict.fromkeys(text.split()))


def _make_word_distribution() -> F64:
    """Returns cumulative probabilities of 300,000 words by rank, p ~ 1 / (rank + 30)."""
    p = 1.0 / (np.arange(1, _VOCABULARY + 1) + 30.0)
    p /= p.sum()
    return np.cumsum(p)


def _draw_kinds(group: str, lon: F64, lat: F64, rng: np.random.Generator) -> Array:
    """Returns 1 or 2 for each query: of Q1 or of Q2."""
    if group != "q3":
        return np.full(len(lon), 1 if group == "q1" else 2)
    kind: Array = rng.integers(1, 3, REGIONS)[find_region(lon, lat)]
    return kind


def _make_keyword_rng(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, 1])


def _draw_keywords(counts: F64, kind: Array, rng: np.random.Generator) -> tuple[Array, U8]:
    """Returns (int32[n, 3] distinct word ranks or -1, uint8[n] AND); counts by rank."""
    n = len(kind)
    mass = np.cumsum(counts / counts.sum())
    word = np.searchsorted(mass, rng.random((n, 3)))
    common = mass[max(len(counts) // 100, 1) - 1]
    rare = np.searchsorted(mass, common + (1 - common) * rng.random(n), "right")
    word[:, 0] = np.where(kind == 2, rare, word[:, 0])
    word = np.minimum(word, len(counts) - 1).astype(np.int32)
    return _blank_repeats(word, rng.integers(1, 4, n)), rng.integers(0, 2, n).astype(np.uint8)


def _blank_repeats(word: Array, size: Array) -> Array:
    """Returns the first `size` words of each row, repeats blanked, the rarest first."""
    word[np.arange(3) >= size[:, None]] = -1
    word[word[:, 1] == word[:, 0], 1] = -1
    word[(word[:, 2] == word[:, 0]) | (word[:, 2] == word[:, 1]), 2] = -1
    return -np.sort(-word, axis=1)


def _draw_deaths(queries: int, updates: int, rng: np.random.Generator) -> I64:
    """Returns when each query is deleted, counted in inserts after the start. The first queries
    have the rest of lifetimes that began long ago: a live query of age a exists with probability
    P(life > a)."""
    life = np.zeros(0)
    while len(life) < queries:
        age = rng.uniform(0, 2.5 * queries, 4 * queries)
        whole = rng.normal(queries, queries / 5, len(age))
        life = np.concatenate([life, (whole - age)[whole > age]])
    later = np.arange(1, updates + 1) + rng.normal(queries, queries / 5, updates)
    death: I64 = np.maximum(np.concatenate([life[:queries], later]), 1).astype(np.int64)
    return death


def _no_words(n: int) -> Array:
    return np.full(n, -1, np.int32)


def _make_rects(square: F64) -> F64:
    return np.stack(square_km(square[:, 0], square[:, 1], square[:, 2]), axis=1)


def _choose_grid(rect: F64) -> Grid:
    wide = np.median((rect[:, 2] - rect[:, 0]) % 360.0)
    return Grid.for_queries(float(wide), float(np.median(rect[:, 3] - rect[:, 1])))


# --- the yardstick's world ------------------------------------------------


def _make_yardstick(group: str, queries: int, updates: int, posts: int) -> Workload:
    """Repeats the yardstick generator's draws in their order; another order changes the numbers."""
    if updates > _YARDSTICK_EXTRA:
        raise invalid("workload", f"the yardstick has at most {_YARDSTICK_EXTRA} updates")
    mass = _make_word_distribution()
    rng = np.random.default_rng(1)
    weight = 1.0 / np.arange(1, 2001)
    weight /= weight.sum()
    spread = np.clip(28 * (weight / weight[0]) ** 0.35 * np.exp(rng.normal(0, 0.3, 2000)), 2, 40)
    x, y = rng.uniform(100, _KM_WIDE - 100, 2000), rng.uniform(100, _KM_HIGH - 100, 2000)
    cities = (weight, spread, x, y)

    rng = np.random.default_rng(7)
    x, y = _draw_points(posts, rng, cities)
    size = rng.integers(8, 11, posts)
    word = np.minimum(np.searchsorted(mass, rng.random((posts, 10))), _VOCABULARY - 1)
    names = [f"w{i}" for i in range(_VOCABULARY)]
    texts = [
        " ".join([names[w] for w in row[:k]])
        for row, k in zip(word.tolist(), size.tolist(), strict=True)
    ]
    lon, lat = _convert_to_degrees(x, y)

    rng = np.random.default_rng(11)
    n = queries + _YARDSTICK_EXTRA
    x, y = _draw_points(n, rng, cities)
    half = rng.uniform(1, 50 if group == "q1" else 100, n).astype(np.float32) / np.float32(2)
    terms = rng.integers(1, 4, n)
    every = rng.integers(0, 2, n).astype(np.uint8)
    ranks = np.minimum(np.searchsorted(mass, rng.random((n, 3))), _VOCABULARY - 1)
    if group == "q2":
        common = mass[_VOCABULARY // 100 - 1]
        rare = np.searchsorted(mass, common + (1 - common) * rng.random(n))
        ranks[:, 0] = np.minimum(rare, _VOCABULARY - 1)
    keep = queries + updates
    west, south = _convert_to_degrees((x - half)[:keep], (y - half)[:keep])
    east, north = _convert_to_degrees((x + half)[:keep], (y + half)[:keep])
    interests = QueryColumns(
        word=_blank_repeats(ranks[:keep].astype(np.int32), terms[:keep]),
        every=every[:keep],
        rect=np.stack([west, south, east, north], axis=1),
        death=np.arange(1, keep + 1),  # first in, first out
        without=_no_words(keep),
    )
    return Workload(
        posts=PostColumns(lon, lat, *strings_to_column(texts)),
        interests=interests,
        start=queries,
        words=names,
        counts={w: _VOCABULARY - i for i, w in enumerate(names)},
        grid=Grid(9, 8),
        square=np.zeros((0, 3)),
        kind=np.full(keep, 1 if group == "q1" else 2),
        seed=0,
    )


def _draw_points(
    n: int, rng: np.random.Generator, cities: tuple[Array, Array, Array, Array]
) -> tuple[Array, Array]:
    """Returns points in km, float32: nine of ten around a city, the others anywhere."""
    weight, spread, cx, cy = cities
    city = rng.choice(len(weight), n, p=weight)
    x = cx[city] + rng.normal(0, 1, n) * spread[city]
    y = cy[city] + rng.normal(0, 1, n) * spread[city]
    stray = rng.random(n) < 0.1
    x[stray] = rng.uniform(0, _KM_WIDE, stray.sum())
    y[stray] = rng.uniform(0, _KM_HIGH, stray.sum())
    x, y = np.clip(x, 0, _KM_WIDE - 0.01), np.clip(y, 0, _KM_HIGH - 0.01)
    return x.astype(np.float32), y.astype(np.float32)


def _convert_to_degrees(x: Array, y: Array) -> tuple[F64, F64]:
    """Converts kilometres of the plane to degrees: order is kept, and its corner is a corner of
    cells, away from the antimeridian and the poles."""
    lon = x.astype(np.float64) / _CELL_KM * (360.0 / 512) - 90.0
    lat = y.astype(np.float64) / _CELL_KM * (180.0 / 256) - 45.0
    return lon, lat
