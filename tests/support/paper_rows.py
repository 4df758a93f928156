"""Samples row by row, and what nodes of the literal kdt-tree hold, worked out on sets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from ps2stream.planner.nodes import CellRect
from ps2stream.planner.paper.nodes import PaperModel, PaperNode
from ps2stream.planner.sample_rows import SampleRows
from ps2stream.planner.statistics import I32
from ps2stream.protocol.frame import I64
from ps2stream.routing.costs import Costs

ROWS, COLUMNS = 4, 8
COSTS = Costs(c1=0.5, c2=3.0, c3=2.0, c4=1.0)


@dataclasses.dataclass(frozen=True)
class PaperQuery:
    """cells it touches, its terms, those it is posted under; live, inserted, deleted."""

    cells: frozenset[int]
    words: frozenset[int]
    posts: frozenset[int]
    counts: tuple[int, int, int] = (1, 0, 0)


@dataclasses.dataclass(frozen=True)
class PaperSample:
    """Objects as (cell, terms), and queries; terms are numbers, all of which may be posted."""

    objects: Sequence[tuple[int, frozenset[int]]]
    queries: Sequence[PaperQuery]

    def rows(self) -> SampleRows:
        texts = ragged([t for _, t in self.objects])
        flags = np.array([q.counts for q in self.queries], np.float64).reshape(-1, 3)
        cell_off, cells = ragged([q.cells for q in self.queries])
        return SampleRows.number(
            1 + max([-1, *(t for _, ts in self.objects for t in ts),
                     *(t for q in self.queries for t in q.words)]),
            np.array([c for c, _ in self.objects], np.int64), texts, texts,
            (cell_off, cells.astype(np.int64)), ragged([q.words for q in self.queries]),
            ragged([q.posts for q in self.queries]), *flags.T,
        )  # fmt: skip

    def model(self, costs: Costs = COSTS) -> PaperModel:
        return PaperModel(self.rows(), (ROWS, COLUMNS), costs)

    def sent(self, cells: set[int], terms: set[int] | None = None) -> set[int]:
        """The objects in these cells with a term of the node's that is posted in their cell."""
        return {
            i
            for i, (cell, held) in enumerate(self.objects)
            if cell in cells
            and any(
                cell in q.cells and held & q.posts & (held if terms is None else terms)
                for q in self.queries
            )
        }

    def stored(self, cells: set[int], terms: set[int] | None = None) -> set[int]:
        """The queries that touch one of these cells and are posted under a term of the node's."""
        return {
            i
            for i, q in enumerate(self.queries)
            if q.cells & cells and (terms is None or q.posts & terms)
        }

    def load(self, objects: set[int], queries: set[int], costs: Costs = COSTS) -> float:
        """Definition 1."""
        live, inserts, deletes = (sum(self.queries[i].counts[k] for i in queries) for k in range(3))
        n = len(objects)
        return costs.c1 * n * live + costs.c2 * n + costs.c3 * inserts + costs.c4 * deletes

    def similarity(self, cells: set[int]) -> float:
        """The cosine of the counts by term, of objects there and of live queries that touch it."""
        texts = [held for cell, held in self.objects if cell in cells]
        words = [q.words for q in self.queries if q.counts[0] and q.cells & cells]
        every = {t for held in (*texts, *words) for t in held}
        o, q = ({t: sum(t in held for held in of) for t in every} for of in (texts, words))
        lengths = math.hypot(*o.values()) * math.hypot(*q.values())
        return sum(o[t] * q[t] for t in every) / lengths if lengths else 0.0


def ragged(rows: Iterable[Iterable[int]]) -> tuple[I64, I32]:
    held = [sorted(row) for row in rows]
    off: I64 = np.cumsum([0, *map(len, held)])
    return off, np.array([t for row in held for t in row], np.int32)


def some_sample(seed: int, objects: int = 120, queries: int = 60) -> PaperSample:
    """Boxes of up to nine cells; one term of its words or all; terms that no query has."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, 13)
    drawn = []
    for i in range(objects):
        cell = int(rng.integers(ROWS * COLUMNS)) // 2 * (1 + i % 2)
        drawn.append((cell, frozenset(rng.choice(12, 4, p=share / share.sum()).tolist())))
    asked = []
    for _ in range(queries):
        top, left = int(rng.integers(ROWS)), int(rng.integers(COLUMNS))
        high, wide = rng.integers(1, 4, 2).tolist()
        cells = {
            r * COLUMNS + c
            for r in range(top, min(top + high, ROWS))
            for c in range(left, min(left + wide, COLUMNS))
        }
        words = frozenset(rng.integers(0, 9, 3).tolist())
        posts = words if rng.random() < 0.5 else frozenset([max(words)])
        counts = [(1, 0, 0), (1, 1, 0), (0, 0, 1)][int(rng.integers(3))]
        asked.append(PaperQuery(frozenset(cells), words, posts, counts))
    return PaperSample(drawn, asked)


def cells_in(rect: CellRect) -> set[int]:
    return {
        r * COLUMNS + c for r in range(rect.top, rect.bottom) for c in range(rect.left, rect.right)
    }


def check_node(sample: PaperSample, node: PaperNode) -> None:
    """Its objects, queries and load are those of its rectangle and terms."""
    cells = cells_in(node.rect)
    terms = None if node.terms is None else {*node.terms.tolist()}
    sent, stored = sample.sent(cells, terms), sample.stored(cells, terms)
    assert {*node.objects.tolist()} == sent
    assert {*node.queries.tolist()} == stored
    assert {*node.place.tolist()} == {i for i, (c, _) in enumerate(sample.objects) if c in cells}
    assert math.isclose(node.load, sample.load(sent, stored))
