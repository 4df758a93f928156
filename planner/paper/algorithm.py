"""Algorithm 1 as the paper prints it: `hybrid-paper`, the measure for what `hybrid` changed.

Similarity over all terms; what is in Ns is divided by space or text, whichever costs less, what is
in Nt by text alone; loads are Definition 1's, each query counted once; the number of parts by
dynamic programming; the last partition is the result. Numbers in comments are the lines of the
pseudo-code (algorithms.md 1.4). The paper leaves open when a node is too small to go on: here at a
single cell, at MAX_DEPTH, and below FEW objects and queries.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ps2stream.errors import PlanError
from ps2stream.planner.hybrid import FEW, MAX_DEPTH
from ps2stream.planner.nodes import CostModel
from ps2stream.planner.numbers import compute_number_partitions
from ps2stream.planner.paper.merge import merge_nodes
from ps2stream.planner.paper.nodes import PaperModel, PaperNode
from ps2stream.planner.paper.split import divisions, partition_node
from ps2stream.planner.partition import Partition, PartitionOptions
from ps2stream.planner.phases import DecidedNodes, describe_phases
from ps2stream.planner.split import GridLine, Lines
from ps2stream.planner.statistics import Statistics
from ps2stream.planner.tree import build_partition
from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import balance


def hybrid_paper(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Divides by Algorithm 1 as printed. If sigma is not met, it warns. Raises PlanError for a
    sample without rows."""
    if stats.rows is None:
        raise PlanError("algorithm: hybrid-paper needs the sample row by row, got counts alone")
    size = stats.grid.rows(), stats.grid.columns()
    model, lines = PaperModel(stats.rows, size, options.costs), Lines()
    theta = max(options.leaves(workers), workers)
    root = model.root()
    decided = split_by_similarity(model, root, options, lines)  # 1-12
    options.progress(f"{len(decided)} nodes by similarity of words")
    leaves, numbers = divide_to_number(model, decided, workers, lines)  # 13-16
    before, fixed = len(leaves), set[PaperNode]()
    alike = sum(node.alike for node in decided)
    while True:  # 17
        part, loads = merge_nodes(model, leaves, workers)  # 18
        if balance(loads) <= options.sigma or len(leaves) >= theta:  # 19-24
            break
        divided = divide_largest(model, leaves, lines, fixed)  # 25-26
        if divided is None:
            break
        leaves = divided
        if len(leaves) % 16 == 0:
            options.progress(f"{len(leaves)} leaves, balance {balance(loads):.2f}")
    phases = describe_phases(
        model.similarity(root),
        options.delta,
        DecidedNodes(alike, len(decided) - alike, numbers, told_apart=True),
        len(leaves) - before,
        sum(n.terms is not None for n in leaves),
    )
    warnings = [] if balance(loads) <= options.sigma else [_explain_unmet_sigma(loads, options)]
    return _build_partition(stats, leaves, part.tolist(), lines, workers, options, warnings, phases)


def split_by_similarity(
    model: PaperModel, root: PaperNode, options: PartitionOptions, lines: Lines
) -> list[PaperNode]:
    """Returns Ns and Nt as one list (lines 2-12)."""
    undecided, decided = [root], list[PaperNode]()  # 2
    while undecided:  # 3
        node = undecided.pop()  # 4
        similarity = model.similarity(node)
        if similarity > options.delta:  # 5
            decided.append(_put(node, alike=True))  # 6
            continue
        best: tuple[float, GridLine, tuple[PaperNode, PaperNode]] | None = None
        small = len(node.place) + len(node.queries) < FEW or node.depth >= MAX_DEPTH
        for axis in () if small else (1, 0):  # 8
            if (at := model.median_line(node, axis)) is not None:
                pair = model.cut(node, axis, at)
                low = min(map(model.similarity, pair))
                if best is None or low < best[0]:
                    best = low, GridLine(axis, at), pair
        if best is None or similarity - best[0] < options.eps:  # 9
            decided.append(_put(node, alike=False))  # 10
        else:
            lines[node.rect] = best[1]
            undecided += best[2]  # 12
    return decided


def divide_to_number(
    model: PaperModel, nodes: list[PaperNode], m: int, lines: Lines
) -> tuple[list[PaperNode], tuple[int, ...]]:
    """Returns (the leaves, the number of parts of each node; () if there are enough nodes
    anyhow): lines 13-16."""
    if len(nodes) >= m:  # 13
        return nodes, ()
    tried = [list(divisions(model, node, m - len(nodes) + 1)) for node in nodes]
    costs = [[sum(n.load for n in parts) for parts, _ in row] for row in tried]
    _, numbers = compute_number_partitions(costs, m)  # 14
    leaves = []
    for row, k in zip(tried, numbers, strict=True):  # 15
        parts, drawn = row[k - 1]  # 16
        leaves += parts
        lines |= drawn
    return leaves, numbers


def divide_largest(
    model: PaperModel, leaves: list[PaperNode], lines: Lines, fixed: set[PaperNode]
) -> list[PaperNode] | None:
    """Divides the leaf with the largest load in two (lines 25-26), or the largest that can be
    divided; None if there is none. fixed: the leaves that cannot."""
    for i in np.argsort([-leaf.load for leaf in leaves], kind="stable").tolist():
        if leaves[i] in fixed:
            continue
        parts, drawn = partition_node(model, leaves[i], 2)
        if len(parts) > 1:
            lines |= drawn
            return leaves[:i] + parts + leaves[i + 1 :]
        fixed.add(leaves[i])
    return None


def _put(node: PaperNode, *, alike: bool) -> PaperNode:
    """Puts a node into Ns or Nt."""
    return PaperNode(
        node.rect, node.place, node.objects, node.queries, node.load, None, alike, node.depth
    )


def _build_partition(
    stats: Statistics, leaves: list[PaperNode], owner: list[int], lines: Lines, workers: int,
    options: PartitionOptions, warnings: list[str], phases: dict[str, Any],
) -> Partition:  # fmt: skip
    """Builds the partition of the leaves, as nodes of the tables."""
    model, columns = CostModel(stats, options), stats.grid.columns()
    row, column = stats.cell // columns, stats.cell % columns
    unit_cell, nodes = stats.unit_cell(), []
    for leaf in leaves:
        top, bottom, left, right = leaf.rect
        inside = (row >= top) & (row < bottom) & (column >= left) & (column < right)
        held = inside[unit_cell]
        if leaf.terms is not None:
            held &= np.isin(stats.term, leaf.terms)
        units = np.flatnonzero(held).astype(np.int32)
        nodes.append(model.node(leaf.rect, np.flatnonzero(inside), units, np.zeros(0, np.int64)))
    return build_partition(model, nodes, owner, lines, workers, warnings, phases)


def _explain_unmet_sigma(loads: F64, options: PartitionOptions) -> str:
    """Returns the warning that sigma is not met by Definition 1."""
    ratio = balance(loads)
    times = "no load on a worker" if math.isinf(ratio) else f"a balance of {ratio:.3g}"
    return f"Algorithm 1 as printed ended with {times}, above sigma = {options.sigma:g}"
