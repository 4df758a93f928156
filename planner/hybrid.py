"""Algorithm 1: space and text divided together (PS2Stream, section IV; algorithms.md 1.4, 1.11).

Where the paper leaves room: text and space are compared by cost at every node, also in Nt,
because the similarity of a large node says little; the first phase takes at most half of theta,
so that there are always leaves left to balance with; under the load by cells, where loads add up,
merging is followed by moves and swaps of leaves; the best partition seen is kept.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ps2stream.planner.local_search import SLACK, balanced
from ps2stream.planner.merge import merge_nodes_into_partitions
from ps2stream.planner.nodes import CostModel, KdtNode
from ps2stream.planner.numbers import compute_number_partitions
from ps2stream.planner.partition import Partition, PartitionOptions
from ps2stream.planner.phases import DecidedNodes, describe_phases
from ps2stream.planner.similarity import simt
from ps2stream.planner.split import GridLine, Lines, median_line, partition_node
from ps2stream.planner.statistics import I32, Statistics
from ps2stream.planner.tree import build_partition
from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import balance

MAX_DEPTH = 20
FEW = 200  # objects and postings; with fewer, the similarity of words means nothing


class _FoundPartition(NamedTuple):
    """A partition: its leaves, the worker of each, and the load of each worker."""

    leaves: list[KdtNode]
    owner: list[int]
    loads: F64


def hybrid(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Divides by the kdt-tree of Algorithm 1. If sigma cannot be met, it warns."""
    model = CostModel(stats, options)
    lines: Lines = {}
    theta = max(options.leaves(workers), workers)
    decided = _split_by_similarity(model, options, theta // 2, lines)
    options.progress(f"{len(decided)} nodes by similarity of words")
    leaves, numbers = _divide_to_number(model, decided, workers, lines)
    first = len(leaves)
    best: _FoundPartition | None = None
    fixed: set[KdtNode] = set()  # leaves that nothing divides
    while True:
        part, loads = merge_nodes_into_partitions(model, leaves, workers)
        if not model.product:
            part, loads = _even_loads(leaves, part, loads)
        if best is None or _is_better(loads, best):
            best = _FoundPartition(leaves, part.tolist(), loads)
        if _is_good_enough(loads, options) or len(leaves) >= theta:
            break
        if (divided := _divide_heaviest(model, leaves, workers, lines, fixed)) is None:
            break
        leaves = divided
        if len(leaves) % 16 == 0:
            options.progress(f"{len(leaves)} leaves, balance {balance(loads):.2f}")
    met = balance(best.loads) <= options.sigma
    warnings = [] if met else [_explain_unmet_sigma(stats, best, fixed, options)]
    alike = sum(simt(stats, node) > options.delta for node in decided)
    phases = describe_phases(
        simt(stats, model.root()),
        options.delta,
        DecidedNodes(alike, len(decided) - alike, numbers, told_apart=False),
        len(best.leaves) - first,
        sum(not leaf.whole for leaf in best.leaves),
    )
    return build_partition(model, best.leaves, best.owner, lines, workers, warnings, phases)


def _split_by_similarity(
    model: CostModel, options: PartitionOptions, limit: int, lines: Lines
) -> list[KdtNode]:
    """Lines 1-12: returns nodes whose words are alike (Ns), or do not become so by a line (Nt)."""
    root = model.root()
    undecided, decided = [(root, simt(model.stats, root))], list[KdtNode]()
    while undecided:
        node, similarity = undecided.pop()
        full = len(undecided) + len(decided) + 2 > limit
        few = float(model.stats.objects[node.cells].sum()) + node.queries < FEW
        if similarity > options.delta or full or few or node.depth >= MAX_DEPTH:
            decided.append(node)
            continue
        best: tuple[float, GridLine, list[tuple[KdtNode, float]]] | None = None
        for axis in (1, 0):
            if (at := median_line(model, node, axis)) is not None:
                pair = [(n, simt(model.stats, n)) for n in model.cut(node, axis, at)]
                low = min(s for _, s in pair)
                if best is None or low < best[0]:
                    best = (low, GridLine(axis, at), pair)
        if best is None or similarity - best[0] < options.eps:
            decided.append(node)
        else:
            lines[node.rect] = best[1]
            undecided += best[2]
    return decided


def _divide_to_number(
    model: CostModel, nodes: list[KdtNode], m: int, lines: Lines
) -> tuple[list[KdtNode], tuple[int, ...]]:
    """Lines 13-16: divides the nodes into m leaves, if that is possible. Returns them, and the
    number of parts of each node; () if there are enough nodes anyhow."""
    if len(nodes) >= m:
        return nodes, ()
    if len(nodes) == 1:
        leaves, drawn = partition_node(model, nodes[0], m)
        lines |= drawn
        return leaves, (len(leaves),)
    room = m - len(nodes) + 1
    tried = [[partition_node(model, node, k) for k in range(1, room + 1)] for node in nodes]
    # By cells the total does not fall with more parts; the sum of squares does.
    power = 1 if model.product else 2
    C = [[sum(n.load**power for n in parts) for parts, _ in row] for row in tried]
    _, nums = compute_number_partitions(C, m)
    leaves = []
    for row, k in zip(tried, nums, strict=True):
        parts, drawn = row[k - 1]
        leaves += parts
        lines |= drawn
    return leaves, nums


def _even_loads(leaves: list[KdtNode], part: I32, loads: F64) -> tuple[I32, F64]:
    """Moves and swaps leaves between workers; parts of a text split, which share objects, stay
    where they are."""
    whole = np.array([leaf.whole for leaf in leaves])
    load, worker = np.array([leaf.load for leaf in leaves])[whole], part[whole].astype(np.int64)
    level = loads - np.bincount(worker, load, len(loads))
    worker = balanced(load, worker, level, SLACK)
    part = part.copy()
    part[whole] = worker
    return part, level + np.bincount(worker, load, len(loads))


def _divide_heaviest(
    model: CostModel, leaves: list[KdtNode], m: int, lines: Lines, fixed: set[KdtNode]
) -> list[KdtNode] | None:
    """Lines 25-26: divides the heaviest leaf that can be divided in two; None if there is none."""
    order = np.argsort([-leaf.load for leaf in leaves], kind="stable").tolist()
    mean = sum(leaf.load for leaf in leaves) / m
    cool = [i for i in order if len(leaves[i].cells) == 1 and leaves[i].load < mean]
    if not model.product:  # lines copy no objects, so they come before the terms of cool cells
        order = [i for i in order if i not in set(cool)] + cool
    for i in order:
        if leaves[i] in fixed:
            continue
        parts, drawn = partition_node(model, leaves[i], 2)
        if len(parts) > 1:
            lines |= drawn
            return leaves[:i] + parts + leaves[i + 1 :]
        fixed.add(leaves[i])
    return None


def _is_better(loads: F64, best: _FoundPartition) -> bool:
    """Returns whether the heaviest worker is lighter or, if equal, the lightest one heavier."""
    high, low = float(loads.max()), float(loads.min())
    tie = abs(high - best.loads.max()) <= 1e-9 * high
    return bool(low > best.loads.min() if tie else high < best.loads.max())


def _is_good_enough(loads: F64, options: PartitionOptions) -> bool:
    """Returns whether the balance is within sigma. Under the load by cells the heaviest worker
    must also be close to the mean, for there more leaves cost nothing but the time to find them.
    """
    even = options.load == "definition1" or loads.max() <= (1 + SLACK) * loads.mean()
    return bool(balance(loads) <= options.sigma and even)


def _explain_unmet_sigma(
    stats: Statistics, found: _FoundPartition, fixed: set[KdtNode], options: PartitionOptions
) -> str:
    """Returns the warning that says why the balance exceeds sigma."""
    heaviest = found.leaves[int(np.argmax([leaf.load for leaf in found.leaves]))]
    why = "more leaves than theta would be needed"
    if not stats.units:
        why = "the sample has no queries"
    elif heaviest in fixed and len(heaviest.units):
        units = heaviest.units
        term = stats.terms[stats.term[units[np.argmax(stats.candidates[units])]]]
        cell = stats.cell[heaviest.cells[0]]
        why = f"the posts with {term!r} in cell {cell} are more than an even share"
    ratio = balance(found.loads)
    if math.isinf(ratio):
        return f"a worker has no load, so that sigma = {options.sigma:g} is not met: {why}"
    return (
        f"the heaviest worker has {ratio:.3g} times the load of the lightest, "
        f"above sigma = {options.sigma:g}: {why}"
    )
