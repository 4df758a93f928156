"""Many queries in few places, for the tests of the worker's indexes, and brute force over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64, U32, U64
from ps2stream.protocol.rows import ExpressionForm, QueryRows, RegionShape, UpdateKind
from ps2stream.space.grid import Grid
from ps2stream.workers.index import MatchColumns

GRID = Grid(9, 8)
TERMS = np.sort(np.random.default_rng(5).integers(0, 1 << 64, 6, np.uint64))


@dataclass
class Crowd:
    """Queries of one box and of one term, or of any or both of two. rect float64[n, 4]; term
    uint8[n, 2]: numbers of TERMS, ascending, equal where there is one; every bool[n]: AND; lsns
    int64[n, 2]: of insert and delete."""

    rect: F64
    term: NDArray[np.uint8]
    every: NDArray[np.bool_]
    lsns: I64

    def rows(self, first: int, last: int) -> tuple[QueryRows, I64, U32, U64]:
        """The inserts first..last - 1, under all their tags."""
        some = slice(first, last)
        n, rect = last - first, self.rect[some]
        two = self.term[some, 0] != self.term[some, 1]
        term_off = np.r_[0, np.cumsum(1 + two)]
        term = TERMS[self.term[some]][np.stack([np.ones(n, bool), two], 1)]
        post = np.where(two & ~self.every[some], 3, 1).astype(np.uint64)
        nothing, steps = np.zeros(n + 1, np.int64), np.arange(n + 1)
        form = np.where(self.every[some], ExpressionForm.ALL, ExpressionForm.ANY)
        rows = QueryRows(
            kind=np.full(n, UpdateKind.INSERT, np.uint8), lsn=self.lsns[some, 0],
            handle=self.lsns[some, 0], session=self.lsns[some, 0] % 7, id_off=nothing,
            id=np.zeros(0, np.uint8), form=form.astype(np.uint8), post=post, term_off=term_off,
            term=term, prog_off=nothing, prog=np.zeros(0, np.int16), box_off=4 * steps,
            box=rect.ravel(), shape=np.full(n, RegionShape.RECT, np.uint8), geom_off=4 * steps,
            geom=rect.ravel(), source_off=nothing, source=np.zeros(0, np.uint8),
        )  # fmt: skip
        cell_off, cell = GRID.cover(rows.box_off, rows.box)
        tags: list[tuple[int, int]] = []
        off = [0]
        for i in range(n):
            posting = [t for k, t in enumerate(term[term_off[i] : term_off[i + 1]].tolist())
                       if int(post[i]) >> k & 1]  # fmt: skip
            tags += [(c, t) for c in cell[cell_off[i] : cell_off[i + 1]].tolist() for t in posting]
            off.append(len(tags))
        cells, terms = np.array([c for c, _ in tags], np.uint32), [t for _, t in tags]
        return rows, np.array(off), cells, np.array(terms, np.uint64)

    def first(self, n: int) -> Crowd:
        """The first n queries."""
        return Crowd(self.rect[:n], self.term[:n], self.every[:n], self.lsns[:n])

    def matches(self, lsn: int, lon: float, lat: float, has: NDArray[np.bool_]) -> list[int]:
        """The handles that match one object with these of TERMS, bool[6]."""
        a, b, c, d = self.rect.T
        held = has[self.term]
        found = (self.lsns[:, 0] <= lsn) & (lsn < self.lsns[:, 1])
        found &= np.where(self.every, held.all(1), held.any(1))
        found &= (a <= lon) & (lon <= c) & (b <= lat) & (lat <= d)
        return sorted(self.lsns[found, 0].tolist())


def draw_crowd(rng: np.random.Generator, n: int, spread: float, side: float) -> Crowd:
    """Returns n queries that live for ever, within `spread` degrees of one of three places, with
    sides up to `side` degrees, some much longer, one in fifty as wide as a continent."""
    place = np.array([[-73.9, 40.7], [0.0, 0.0], [45.0, 45.0]])[rng.integers(0, 3, n)]
    place = place + rng.normal(0, spread, (n, 2))
    half = rng.uniform(0, side, (n, 2)) * rng.choice([0.5, 0.5, 0.5, 8.0], (n, 1))
    half[rng.random(n) < 0.02] = 60.0
    low, high = place - half, place + half
    rect = np.concatenate([np.maximum(low, [-179.0, -89.0]), np.minimum(high, [179.0, 89.0])], 1)
    term = np.sort(rng.choice([0, 0, 0, 1, 2, 5], (n, 2)).astype(np.uint8), axis=1)
    lsns = np.stack([np.arange(1, n + 1), np.full(n, np.iinfo(np.int64).max)], 1)
    return Crowd(rect, term, rng.random(n) < 0.5, lsns)


def draw_objects(
    rng: np.random.Generator, crowd: Crowd, n: int
) -> tuple[tuple[F64, F64, I64, U64], NDArray[np.bool_]]:
    """Returns n objects on corners and borders of the queries or near them, and the TERMS that
    each has, bool[n, 6]."""
    rect = crowd.rect[rng.integers(0, len(crowd.rect), n)]
    lon, lat = rect[:, 0].copy(), rect[:, 3].copy()
    inside = rng.random(n) < 0.7
    lon[inside] = rng.uniform(rect[inside, 0], rect[inside, 2])
    lat[inside] = rng.uniform(rect[inside, 1], rect[inside, 3])
    has = rng.random((n, len(TERMS))) < 0.4
    off = np.r_[0, np.cumsum(has.sum(1))]
    return (lon, lat, off, np.concatenate([TERMS[h] for h in has])), has


def pairs_of(found: MatchColumns) -> list[tuple[int, int]]:
    return sorted(zip(found.row.tolist(), found.handle.tolist(), strict=True))


def brute_force(
    crowd: Crowd, lsn: int, objects: tuple[F64, F64, I64, U64], has: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """The pairs that an index must find."""
    lon, lat = objects[:2]
    return [
        (i, handle)
        for i in range(len(lon))
        for handle in crowd.matches(lsn, float(lon[i]), float(lat[i]), has[i])
    ]
