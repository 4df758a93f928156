"""The partition of a kdt-tree, made from its leaves and their workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps2stream.planner.nodes import Model, Node, Rect
from ps2stream.planner.partition import Partition, idle
from ps2stream.planner.split import Lines
from ps2stream.routing.plan import Leaf, Space, Text
from ps2stream.space.kdt_tree import Kdt, Part, Split, flatten


def build_partition(
    model: Model,
    nodes: Sequence[Node],
    owner: Sequence[int],
    lines: Lines,
    workers: int,
    warnings: Sequence[str] = (),
) -> Partition:
    """Builds the partition. owner: the worker of each node. `lines` may hold more lines than led
    to the nodes: one that lies inside a node is left out."""
    found: dict[Rect, list[int]] = {}
    for i, node in enumerate(nodes):
        found.setdefault(node.rect, []).append(i)
    leaves: list[Leaf] = []

    def tree(rect: Rect) -> Kdt:
        if rect in found:
            parts = found[rect]
            by = tuple(sorted({owner[i] for i in parts}))
            leaves.append(_make_leaf(model, [(nodes[i], owner[i]) for i in parts], by))
            return Part(by)
        axis, at = lines[rect]
        if axis == 0:
            low, high = tree(rect._replace(bottom=at)), tree(rect._replace(top=at))
            return Split("lat", at, low, high)
        low, high = tree(rect._replace(right=at)), tree(rect._replace(left=at))
        return Split("lon", at, low, high)

    grid = model.stats.grid
    kdt = tree(Rect(0, grid.rows(), 0, grid.columns()))
    cells, _ = flatten(kdt, grid.rows(), grid.columns())
    return Partition(tuple(leaves), cells, kdt, (*warnings, *idle(owner, workers)))


def _make_leaf(model: Model, parts: list[tuple[Node, int]], by: tuple[int, ...]) -> Leaf:
    """Returns the leaf of some nodes; terms that are not posted here go by hash over the leaf's
    workers."""
    if len(by) == 1:
        return Space(by[0])
    terms: dict[str, int] = {}
    names = model.stats.terms
    for node, worker in parts:
        terms |= {names[t]: worker for t in np.unique(model.stats.term[node.units]).tolist()}
    return Text(by, terms)
