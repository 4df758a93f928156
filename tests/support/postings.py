"""Queries and objects for the tests of indexes, and the definition of what one must emit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import shapely

from ps2stream.protocol.frame import F64, I64, U64
from ps2stream.protocol.rows import (
    NEVER,
    ExpressionForm,
    QueryRows,
    RegionShape,
    UpdateKind,
)
from ps2stream.space.grid import Grid
from ps2stream.space.polygons import encode
from ps2stream.space.space_kernels import boxes_of, cell_at
from ps2stream.workers.index import Index
from tests.support.programs import draw_notes, draw_program, holds

GRID = Grid(5, 4, meridians=(-180.0, -22.5, 0.0, 11.25, 180.0))
"""With lines on which positions are, and columns of unequal widths."""
# Equal high halves, equal low halves, zero and the largest: nothing may rest on a half.
VOCABULARY = sorted(
    {0, 1, 2**64 - 1, 2**32, 7 << 32, (7 << 32) + 1, (7 << 32) + 2, (9 << 32) + 1}
    | {(i * 0x9E3779B97F4A7C15 + 1) % 2**64 for i in range(1, 13)}  # without it, H2 hashes i to 0
)
EDGES = [-180.0, -0.0, 0.0, 5e-324, 11.25, np.nextafter(11.25, 0), 22.5, 168.75, 180.0]


@dataclass
class Query:
    handle: int
    form: ExpressionForm
    terms: list[int]
    post: int
    boxes: list[tuple[float, ...]]
    level: int = 0
    prog: list[int] = field(default_factory=list)
    notes: list[int] = field(default_factory=list)
    rect: tuple[float, ...] = ()
    circle: tuple[float, ...] = ()
    ring: list[tuple[float, float]] = field(default_factory=list)
    deleted: int = NEVER
    tags: set[tuple[int, int]] = field(default_factory=set)

    def satisfied(self, terms: set[int]) -> bool:
        has = [t in terms for t in self.terms]
        if self.form == ExpressionForm.ALL:
            return all(has)
        if self.form == ExpressionForm.ANY:
            return any(has)
        return holds(self.prog, dict(enumerate(has))) is True

    def emits(self, lsn: int, x: float, y: float, terms: set[int]) -> bool:
        if not (self.handle <= lsn < self.deleted and self.satisfied(terms)):
            return False
        inside = any(a <= x <= c and b <= y <= d for a, b, c, d in self.boxes)
        if self.circle:
            inside = inside and _in_circle(self.circle, x, y)
        elif self.ring:
            inside = inside and bool(shapely.intersects_xy(shapely.Polygon(self.ring), x, y))
        elif self.rect:
            inside = inside and _in_rect(self.rect, x, y)
        if not inside:
            return False
        posted = [t for i, t in enumerate(self.terms) if self.post >> i & 1 and t in terms]
        if not posted:  # only a query that nobody would post so
            return False
        return (self.level << 28 | cell_of(x, y, self.level), posted[0]) in self.tags


def _in_rect(rect: tuple[float, ...], x: float, y: float) -> bool:
    a, b, c, d = rect
    names = {x, -x} if abs(x) == 180 else {x}
    columns = [(a, c)] if a <= c else [(a, 180.0), (-180.0, c)]
    beside = abs(y) == 90 or any(lo <= v <= hi for v in names for lo, hi in columns)
    return b <= y <= d and beside


def _in_circle(circle: tuple[float, ...], x: float, y: float) -> bool:
    lon, lat, radius = circle
    a, b, c, d = np.radians([lon, lat, x, y])
    h = np.sin((d - b) / 2) ** 2 + np.cos(b) * np.cos(d) * np.sin((c - a) / 2) ** 2
    return bool(2 * 6371.0088 * np.arcsin(np.sqrt(min(h, 1.0))) <= radius)


def cell_of(x: float, y: float, level: int) -> int:
    return int(cell_at(x, y, GRID.lines, level)) & ((1 << 28) - 1)


def _list_lines(find: Callable[[Any], Any], lines: int, base: int) -> list[float]:
    """The lines of a level, with what is beside them, as they are rounded."""
    exact = find(np.arange(lines + 1) * (base // lines)).tolist()
    return [v for line in exact for v in (np.nextafter(line, -200), line, np.nextafter(line, 200))]


def touched(query: Query) -> set[int]:
    """Tags of the cells that the boxes touch, found by sampling their corners and
    every cell line between."""
    columns, rows = GRID.columns(query.level), GRID.rows(query.level)
    out = set()
    for a, b, c, d in query.boxes:
        xs = [
            a,
            c,
            *(v for v in _list_lines(GRID.find_meridians, columns, GRID.columns()) if a <= v <= c),
        ]
        ys = [
            b,
            d,
            *(v for v in _list_lines(GRID.find_parallels, rows, GRID.rows()) if b <= v <= d),
        ]
        out |= {query.level << 28 | cell_of(x, y, query.level) for x in xs for y in ys}
    return out


def position(rng: np.random.Generator) -> tuple[float, float]:
    x = float(rng.choice(EDGES) if rng.random() < 0.5 else rng.uniform(-30, 30))
    y = float(
        rng.choice([-90.0, -0.0, 11.25, 90.0]) if rng.random() < 0.4 else rng.uniform(-30, 30)
    )
    return x, y


def random_query(rng: np.random.Generator, handle: int) -> Query:
    n = int(rng.choice([1, 1, 2, 2, 3, 3, 4, 6]))
    terms = sorted(rng.choice(np.array(VOCABULARY, np.uint64), n, replace=False).tolist())
    form = ExpressionForm(int(rng.choice([0, 0, 1, 1, 2])))
    prog: list[int] = []
    post = (1 << n) - 1
    if form == ExpressionForm.ALL and rng.random() < 0.8:
        post = 1 << int(rng.integers(n))
    if form == ExpressionForm.PROGRAM:
        prog = draw_program(rng, n)
        if rng.random() < 0.5:
            post = int(rng.integers(1, 1 << n))
    (x0, y0), (x1, y1) = position(rng), position(rng)
    if x0 > x1 and rng.random() < 0.7:
        x0, x1 = x1, x0
    rect: tuple[float, ...] = (x0, min(y0, y1), x1, max(y0, y1))
    room = np.empty((2, 4))
    boxes = [tuple(b) for b in room[: boxes_of(x0, min(y0, y1), x1, max(y0, y1), room)].tolist()]
    circle: tuple[float, ...] = ()
    ring: list[tuple[float, float]] = []
    kind = rng.random()
    if kind < 0.2:
        circle = (*position(rng), float(rng.uniform(100, 5000)))
    elif kind < 0.3:
        ring = [(float(x), float(y)) for x, y in rng.uniform(-30, 30, (3, 2))]
        (x0, y0), (x1, y1) = np.min(ring, axis=0), np.max(ring, axis=0)
        boxes = [(x0, y0, x1, y1)]
    elif kind < 0.4:
        rect = ()
    if circle or not rect:
        boxes = [(-180.0, -90.0, 180.0, 90.0)]
    level = int(rng.choice([0, 0, 1, 2, 3]))
    notes = draw_notes(rng, n)
    query = Query(handle, form, terms, post, boxes, level, prog, notes, rect, circle, ring)
    posted = [t for i, t in enumerate(terms) if post >> i & 1]
    tags = list(itertools.product(sorted(touched(query)), posted))
    query.tags = {t for t in tags if rng.random() < 0.9}  # the rest is at other workers
    return query


def draw_query(rng: np.random.Generator, handle: int, known: list[Query]) -> Query:
    """A query, or in two of five cases one like a known one, which may be shared; appended."""
    if known and rng.random() < 0.4:
        other = known[int(rng.integers(max(len(known) - 40, 0), len(known)))]
        query = replace(other, handle=handle, deleted=NEVER, tags=set(other.tags))
    else:
        query = random_query(rng, handle)
    known.append(replace(query, tags=set(query.tags)))
    return query


def _shape(query: Query) -> RegionShape:
    if query.circle:
        return RegionShape.CIRCLE
    if query.ring:
        return RegionShape.POLYGON
    return RegionShape.RECT if query.rect else RegionShape.WORLD


def _geometry(query: Query) -> list[float]:
    if query.ring:
        return list(encode(shapely.Polygon(query.ring)))
    return list(query.circle or query.rect)


def columns(queries: list[Query]) -> tuple[QueryRows, I64, np.ndarray, U64]:
    def ragged(parts: list[list], dtype: type) -> tuple[I64, np.ndarray]:  # type: ignore[type-arg]
        off = np.cumsum([0, *map(len, parts)]).astype(np.int64)
        return off, np.array([v for p in parts for v in p], dtype)

    n = len(queries)
    handle = np.array([q.handle for q in queries], np.int64)
    term_off, term = ragged([q.terms for q in queries], np.uint64)
    prog_off, prog = ragged([q.prog + q.notes for q in queries], np.int16)
    box_off, box = ragged([[v for b in q.boxes for v in b] for q in queries], np.float64)
    geom_off, geom = ragged([_geometry(q) for q in queries], np.float64)
    nothing, none = ragged([[]] * n, np.uint8)
    rows = QueryRows(
        kind=np.full(n, UpdateKind.INSERT, np.uint8),
        lsn=handle,
        handle=handle,
        session=handle * 3,
        id_off=nothing,
        id=none,
        form=np.array([q.form for q in queries], np.uint8),
        post=np.array([q.post for q in queries], np.uint64),
        term_off=term_off,
        term=term,
        prog_off=prog_off,
        prog=prog,
        box_off=box_off,
        box=box,
        shape=np.array([_shape(q) for q in queries], np.uint8),
        geom_off=geom_off,
        geom=geom,
        source_off=nothing,
        source=none,
    )
    tags = [sorted(q.tags) for q in queries]
    tag_off, cell = ragged([[c for c, _ in t] for t in tags], np.uint32)
    return rows, tag_off, cell, ragged([[t for _, t in g] for g in tags], np.uint64)[1]


def objects(rng: np.random.Generator, n: int) -> tuple[F64, F64, I64, U64]:
    at = np.array([position(rng) for _ in range(n)], np.float64).reshape(n, 2)
    sizes = rng.choice([0, 1, 3, 8, len(VOCABULARY)], n)
    rows = [np.sort(rng.choice(np.array(VOCABULARY, np.uint64), k, replace=False)) for k in sizes]
    off = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return at[:, 0].copy(), at[:, 1].copy(), off, np.concatenate([*rows, np.zeros(0, np.uint64)])


def check(
    index: Index, queries: list[Query], lsn: int, objects: tuple[F64, F64, I64, U64], *copies: Index
) -> int:
    lon, lat, off, term = objects
    texts = [set(term[off[i] : off[i + 1]].tolist()) for i in range(len(lon))]
    want = sorted(
        (i, q.handle)
        for i, text in enumerate(texts)
        for q in queries
        if q.emits(lsn, float(lon[i]), float(lat[i]), text)
    )
    for each in (index, *copies):
        found = each.match(lsn, lon, lat, off, term)
        assert (found.session == found.handle * 3).all()
        assert sorted(zip(found.row.tolist(), found.handle.tolist(), strict=True)) == want
    return len(want)


def plain_queries(rng: np.random.Generator, handles: list[int]) -> list[Query]:
    """Queries for one term in one cell."""
    box = (1.0, 1.0, 2.0, 2.0)
    cell = cell_of(1.5, 1.5, 0)
    return [
        Query(
            h,
            ExpressionForm.ALL,
            [t := VOCABULARY[int(rng.integers(len(VOCABULARY)))]],
            1,
            [box],
            rect=box,
            tags={(cell, t)},
        )
        for h in handles
    ]
