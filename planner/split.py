"""PartitionNode: a node divided by lines or by terms, whichever costs less (algorithms.md 1.4).

Under the load by cells no line changes the total load, so lines are taken where there are any,
and terms divide what lines cannot: the hot cells. Under the literal load both shrink the
products, and the smaller total decides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.planner.nodes import UNSEEN, CellRect, CostModel, KdtNode
from ps2stream.planner.salb import WordOccurrences, divide, inverted


class GridLine(NamedTuple):
    """A division of a rectangle: axis 0 before a row, 1 before a column."""

    axis: int
    at: int


Lines = dict[CellRect, GridLine]
"""The lines drawn so far, by the rectangle that each divides."""


def total(nodes: list[KdtNode]) -> float:
    """Returns the sum of the loads."""
    return sum(node.load for node in nodes)


def median_line(model: CostModel, node: KdtNode, axis: int) -> int | None:
    """Returns the grid line nearest to the median of the node's objects (of its queries if it has
    no objects) across an axis; None if all its cells lie in one strip."""
    if not node.whole or len(node.cells) < 2:
        return None
    strip = (model.row_of, model.column_of)[axis][node.cells]
    first = int(strip.min())
    if first == (last := int(strip.max())):
        return None
    weight = model.stats.objects[node.cells]
    if not weight.any():
        weight = np.bincount(
            np.searchsorted(node.cells, model.unit_cell[node.units]),
            model.stats.q[node.units],
            len(node.cells),
        ).astype(np.float64)
    below = np.cumsum(np.bincount(strip - first, weight, last - first + 1))[:-1]
    return first + 1 + int(np.argmin(np.abs(below - weight.sum() / 2)))


def halves(model: CostModel, node: KdtNode) -> tuple[GridLine, tuple[KdtNode, KdtNode]] | None:
    """Divides by the median line with the smaller total load, or of equals the more even one.
    Returns None if no line divides the node's cells."""
    best: tuple[float, float, GridLine, tuple[KdtNode, KdtNode]] | None = None
    for axis in (1, 0):
        if (at := median_line(model, node, axis)) is None:
            continue
        pair = model.cut(node, axis, at)
        found = (total(list(pair)), max(n.load for n in pair), GridLine(axis, at), pair)
        if best is None or _is_less(found[0], best[0], found[1], best[1]):
            best = found
    return None if best is None else best[2:]


def space_split(model: CostModel, node: KdtNode, k: int, lines: Lines) -> list[KdtNode]:
    """Halves the heaviest part until there are k parts, or as many as lines can make."""
    parts, whole = [node], [True]
    while len(parts) < k and any(whole):
        i = max((i for i in range(len(parts)) if whole[i]), key=lambda i: parts[i].load)
        if (found := halves(model, parts[i])) is None:
            whole[i] = False
            continue
        line, pair = found
        lines[parts[i].rect] = line
        parts[i : i + 1], whole[i : i + 1] = pair, (True, True)
    return parts


def text_split(model: CostModel, node: KdtNode, k: int) -> list[KdtNode]:
    """Divides the node's terms over all its cells into k parts, or as many as there are terms."""
    stats = model.stats
    terms, word_of = np.unique(stats.term[node.units], return_inverse=True)
    n, k = len(terms), min(k, len(terms))
    if k < 2:
        return [node]
    word = np.full(stats.units, -1, np.int32)
    word[node.units] = word_of
    off, row = inverted(stats.row_start, stats.row_unit, node.rows, word, n)
    columns = (stats.o, stats.q, model.expected)
    o, q, f = (np.bincount(word_of, v[node.units], n).astype(np.float64) for v in columns)
    words = WordOccurrences(off, row, model.row_weight[node.rows], q, f)
    order = np.lexsort((np.arange(n), -(q * (o + UNSEEN))))
    part = divide(words, order, k, model.product, model.copy, 1.0)
    row_part = part[np.repeat(np.arange(n), np.diff(off))]
    nodes = []
    for i in range(k):
        units = node.units[part[word_of] == i]
        if len(units):
            rows = node.rows[np.unique(row[row_part == i])]
            deeper = node.depth + 1
            nodes.append(model.node(node.rect, node.cells, units, rows, deeper, whole=False))
    return nodes


def partition_node(model: CostModel, node: KdtNode, k: int) -> tuple[list[KdtNode], Lines]:
    """Returns at most k parts, and the lines that were drawn for them: by space or by text,
    whichever has the smaller total load. A node that cannot be divided is returned itself."""
    lines: Lines = {}
    by_space = space_split(model, node, k, lines)
    if len(by_space) == k and not model.product:
        return by_space, lines  # no division costs less
    by_text = text_split(model, node, k)
    if len(by_text) < 2:
        return by_space, lines
    if len(by_space) < 2 or _is_less(total(by_text), total(by_space)):
        return by_text, {}
    return by_space, lines


def _is_less(a: float, b: float, a_then: float = 0.0, b_then: float = 0.0) -> bool:
    """Returns whether a is smaller by more than rounding; of equals, the second pair decides."""
    return a_then < b_then if abs(a - b) <= 1e-9 * max(a, b) else a < b
