"""Nodes of the kdt-tree: a rectangle of cells times a set of their units (algorithms.md 1.4).

A node's load is Definition 1's with its own O, Q and F: `product * O * Q + copy * O + F`. Under
the load by cells F holds the candidates of every unit and `product` is 0; under the literal one
`product` is c1. One form thus serves nodes, text splits and merging.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.statistics import I32, Statistics
from ps2stream.protocol.frame import F64, I64

UNSEEN = 0.5
"""Objects that a unit is expected to have beyond the sampled ones when terms are divided."""


class CellRect(NamedTuple):
    """A rectangle of cells: rows top..bottom - 1 and columns left..right - 1."""

    top: int
    bottom: int
    left: int
    right: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class KdtNode:
    """A node with its loads. cells, units and rows (signatures with one of the units) are numbers
    in Statistics, ascending. whole: it has all units of its cells, with no text split above it.
    """

    rect: CellRect
    cells: I64
    units: I32
    rows: I64
    objects: float
    queries: float
    fixed: float
    load: float
    depth: int = 0
    whole: bool = True


class CostModel:
    """Statistics with the loads of units and the positions of cells."""

    def __init__(self, stats: Statistics, options: PartitionOptions) -> None:
        costs = options.costs
        literal = options.load == "definition1"
        self.stats = stats
        self.product = costs.c1 if literal else 0.0
        self.copy = costs.c2
        self.fixed: F64 = costs.c3 * stats.inserts + costs.c4 * stats.deletes
        if not literal:
            self.fixed = self.fixed + stats.weigh_candidates(costs.c1)
        # A term that no sampled object has will occur all the same.
        self.expected: F64 = self.fixed + costs.c1 * UNSEEN * stats.q
        self.unit_cell = stats.unit_cell()
        self.row_cell: I64 = np.repeat(np.arange(stats.cells), np.diff(stats.row_off))
        self.row_weight: F64 = stats.weight[self.row_cell]
        columns = stats.grid.columns()
        self.row_of: I64 = stats.cell // columns
        self.column_of: I64 = stats.cell % columns

    def root(self) -> KdtNode:
        """Returns the node of all space and all terms."""
        stats = self.stats
        rect = CellRect(0, stats.grid.rows(), 0, stats.grid.columns())
        units = np.arange(stats.units, dtype=np.int32)
        return self.node(rect, np.arange(stats.cells), units, np.arange(len(self.row_cell)))

    def node(
        self, rect: CellRect, cells: I64, units: I32, rows: I64, depth: int = 0, whole: bool = True
    ) -> KdtNode:
        """Returns a node with its loads."""
        o = float(self.row_weight[rows].sum())
        q = float(self.stats.q[units].sum())
        f = float(self.fixed[units].sum())
        load = self.product * o * q + self.copy * o + f
        return KdtNode(rect, cells, units, rows, o, q, f, load, depth, whole)

    def cut(self, node: KdtNode, axis: int, at: int) -> tuple[KdtNode, KdtNode]:
        """Returns the two sides of a line before row (axis 0) or column (axis 1) `at`."""
        low = np.zeros(self.stats.cells, np.bool_)
        low[node.cells] = (self.row_of, self.column_of)[axis][node.cells] < at
        below, above = (
            (node.rect._replace(bottom=at), node.rect._replace(top=at))
            if axis == 0
            else (node.rect._replace(right=at), node.rect._replace(left=at))
        )
        in_cell, in_unit = low[node.cells], low[self.unit_cell[node.units]]
        in_row = low[self.row_cell[node.rows]]
        deeper = node.depth + 1
        return (
            self.node(below, node.cells[in_cell], node.units[in_unit], node.rows[in_row], deeper),
            self.node(
                above, node.cells[~in_cell], node.units[~in_unit], node.rows[~in_row], deeper
            ),
        )
