"""Nodes of the literal kdt-tree: a rectangle of cells, a set of terms, and what lies in both.

A node has the objects that would be sent to its worker and the queries that would be stored there,
each once, however many of its cells and terms they are posted under: a query on a line is in both
sides. Its load is Definition 1's, `c1 * O * Q + c2 * O + c3 * Qi + c4 * Qd`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ps2stream.planner.nodes import CellRect
from ps2stream.planner.sample_rows import SampleRows
from ps2stream.planner.statistics import I32
from ps2stream.protocol.frame import F64, I64, take_ragged
from ps2stream.routing.costs import Costs

Flags = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PaperNode:
    """A node with its load. place: the numbers of all objects in the rectangle; objects: of those
    with a term that is posted in their cell and is one of the node's; queries: of those posted
    under such a term in a cell of the rectangle; int64, ascending. terms: the node's, int32
    ascending; None for all. alike: it is in Ns, else in Nt."""

    rect: CellRect
    place: I64
    objects: I64
    queries: I64
    load: float
    terms: I32 | None = None
    alike: bool = False
    depth: int = 0


class PaperModel:
    """The rows of a sample on a grid, with costs."""

    def __init__(self, rows: SampleRows, size: tuple[int, int], costs: Costs) -> None:
        """size: rows and columns of the grid."""
        self.rows, self.costs, self.size = rows, costs, size
        self.strip_of = (rows.cell // size[1], rows.cell % size[1])
        self.query_strip = (rows.in_cell // size[1], rows.in_cell % size[1])
        self.hit: Flags = np.diff(rows.hit_off) > 0

    def root(self) -> PaperNode:
        """Returns the node of all space and all terms (line 1)."""
        place: I64 = np.arange(len(self.rows.cell))
        rect = CellRect(0, self.size[0], 0, self.size[1])
        return self.build(rect, place, place[self.hit], np.arange(len(self.rows.live)))

    def build(
        self, rect: CellRect, place: I64, objects: I64, queries: I64, terms: I32 | None = None,
        alike: bool = False, depth: int = 0,
    ) -> PaperNode:  # fmt: skip
        """Returns a node with its load."""
        load = self.load(len(objects), self._count(queries))
        return PaperNode(rect, place, objects, queries, load, terms, alike, depth)

    def load(self, objects: float, queries: Iterable[float]) -> float:
        """Returns the load of Definition 1; queries: live, inserted and deleted ones."""
        c, (live, inserts, deletes) = self.costs, queries
        return c.c1 * objects * live + c.c2 * objects + c.c3 * inserts + c.c4 * deletes

    def _count(self, queries: I64) -> tuple[float, float, float]:
        rows = self.rows
        live, inserts, deletes = (
            float(column[queries].sum()) for column in (rows.live, rows.inserts, rows.deletes)
        )
        return live, inserts, deletes

    def cut(self, node: PaperNode, axis: int, at: int) -> tuple[PaperNode, PaperNode]:
        """Returns the two sides of a line before row (axis 0) or column (axis 1) `at`; both stay in
        the set of their node."""
        strip = self.strip_of[axis]
        low, high = (
            (node.rect._replace(bottom=at), node.rect._replace(top=at))
            if axis == 0
            else (node.rect._replace(right=at), node.rect._replace(left=at))
        )
        sides = []
        for rect, below in ((low, True), (high, False)):
            place = node.place[(strip[node.place] < at) == below]
            queries = self.touching(node.queries, rect)
            sides.append(
                self.build(
                    rect, place, place[self.hit[place]], queries, None, node.alike, node.depth + 1
                )
            )
        return sides[0], sides[1]

    def touching(self, queries: I64, rect: CellRect) -> I64:
        """Returns those of the queries that touch a cell of the rectangle."""
        return queries[self._any_in(queries, rect)]

    def _any_in(self, queries: I64, rect: CellRect) -> Flags:
        off, at = take_ragged(self.rows.in_off, np.arange(len(self.rows.in_cell)), queries)
        row, column = (strip[at] for strip in self.query_strip)
        inside = (row >= rect.top) & (row < rect.bottom)
        inside &= (column >= rect.left) & (column < rect.right)
        return any_of(off, inside)

    def median_line(self, node: PaperNode, axis: int) -> int | None:
        """Returns the grid line nearest to the median of the node's objects (of the cells of its
        queries if it has none) across an axis; None if all lie in one strip, and below a text
        split."""
        if node.terms is not None:
            return None
        _, at = take_ragged(self.rows.in_off, np.arange(len(self.rows.in_cell)), node.queries)
        low, high = (node.rect[0], node.rect[1]) if axis == 0 else (node.rect[2], node.rect[3])
        asked = self.query_strip[axis][at]
        other = self.query_strip[1 - axis][at]
        ends = (node.rect[2], node.rect[3]) if axis == 0 else (node.rect[0], node.rect[1])
        inside = (asked >= low) & (asked < high) & (other >= ends[0]) & (other < ends[1])
        asked, posted = asked[inside], self.strip_of[axis][node.place]
        both = np.concatenate([asked, posted])
        if not len(both) or (first := int(both.min())) == (last := int(both.max())):
            return None
        strips = posted if len(posted) else asked
        below = np.cumsum(np.bincount(strips - first, minlength=last - first + 1))[:-1]
        return first + 1 + int(np.argmin(np.abs(below - len(strips) / 2)))

    def similarity(self, node: PaperNode) -> float:
        """Returns simt, the cosine of two counts by term over all terms of texts: the node's
        objects with the term, and its live queries with it. 0 if there are no objects or no
        queries."""
        rows = self.rows
        live = node.queries[rows.live[node.queries] > 0]
        counts: list[F64] = []
        for off, term, of in (
            (rows.off, rows.term, node.place),
            (rows.word_off, rows.word, live),
        ):
            held = take_ragged(off, term, of)[1]
            counts.append(np.bincount(held, minlength=rows.vocabulary).astype(np.float64))
        objects, queries = counts
        lengths = float(np.sqrt(objects @ objects) * np.sqrt(queries @ queries))
        return min(float(objects @ queries) / lengths, 1.0) if lengths else 0.0


def any_of(off: I64, flags: Flags) -> Flags:
    """Returns whether any flag of each row of a ragged column is set."""
    total = np.zeros(len(flags) + 1, np.int64)
    np.cumsum(flags, out=total[1:])
    return total[off[1:]] > total[off[:-1]]
