"""The partition of a kdt-tree, made from its leaves and their workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ps2stream.planner.nodes import CellRect, CostModel, KdtNode
from ps2stream.planner.partition import Partition, idle
from ps2stream.planner.split import Lines
from ps2stream.routing.plan import Leaf, Space, Text
from ps2stream.space.kdt_tree import Kdt, KdtLeaf, KdtSplit, flatten


def build_partition(
    model: CostModel,
    nodes: Sequence[KdtNode],
    owner: Sequence[int],
    lines: Lines,
    workers: int,
    warnings: Sequence[str] = (),
    phases: Mapping[str, Any] | None = None,
) -> Partition:
    """Builds the partition. owner: the worker of each node; phases: as in Partition. `lines` may
    hold more lines than led to the nodes: one that lies inside a node is left out."""
    found: dict[CellRect, list[int]] = {}
    for i, node in enumerate(nodes):
        found.setdefault(node.rect, []).append(i)
    leaves: list[Leaf] = []

    def tree(rect: CellRect) -> Kdt:
        if rect in found:
            parts = found[rect]
            by = tuple(sorted({owner[i] for i in parts}))
            leaves.append(_make_leaf(model, [(nodes[i], owner[i]) for i in parts], by))
            return KdtLeaf(by)
        axis, at = lines[rect]
        if axis == 0:
            low, high = tree(rect._replace(bottom=at)), tree(rect._replace(top=at))
            return KdtSplit("lat", at, low, high)
        low, high = tree(rect._replace(right=at)), tree(rect._replace(left=at))
        return KdtSplit("lon", at, low, high)

    grid = model.stats.grid
    kdt = tree(CellRect(0, grid.rows(), 0, grid.columns()))
    cells, _ = flatten(kdt, grid.rows(), grid.columns())
    warned = (*warnings, *idle(owner, workers))
    return Partition(tuple(leaves), cells, kdt, warned, phases or {})


def _make_leaf(model: CostModel, parts: list[tuple[KdtNode, int]], by: tuple[int, ...]) -> Leaf:
    """Returns the leaf of some nodes; terms that are not posted here go by hash over the leaf's
    workers."""
    if len(by) == 1:
        return Space(by[0])
    terms: dict[str, int] = {}
    names = model.stats.terms
    for node, worker in parts:
        terms |= {names[t]: worker for t in np.unique(model.stats.term[node.units]).tolist()}
    return Text(by, terms)
