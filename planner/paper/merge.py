"""MergeNodesIntoPartitions, literally: loads are those of the union of a partition's nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps2stream.planner.paper.nodes import Flags, PaperModel, PaperNode
from ps2stream.planner.statistics import I32
from ps2stream.protocol.frame import F64, I64


def merge_nodes(model: PaperModel, nodes: Sequence[PaperNode], m: int) -> tuple[I32, F64]:
    """Returns (the partition of each node, int32[n]; the load of each partition, float64[m]).

    By descending load a node goes to the partition whose load it raises least, if L_max / L_min
    does not rise, else to the least loaded one; while some are empty, L_min is 0 and the ratio
    infinite, so to an empty one.
    """
    rows, costs = model.rows, model.costs
    own = np.zeros((m, len(rows.cell)), np.bool_)
    asked = np.zeros((m, len(rows.live)), np.bool_)
    counts = np.zeros((m, 4))  # objects, live, inserted and deleted queries
    part, loads, used = np.zeros(len(nodes), np.int32), np.zeros(m), np.zeros(m, np.bool_)
    price = np.array([costs.c2, 0.0, costs.c3, costs.c4])

    def compute_loads(held: F64) -> F64:
        found: F64 = costs.c1 * held[:, 0] * held[:, 1] + held @ price
        return found

    order = np.argsort([-node.load for node in nodes], kind="stable")
    for i in order.tolist():
        node = nodes[i]
        new = counts + _count_new(model, node, own, asked)
        added = compute_loads(new) - loads
        lightest = int(np.lexsort((np.arange(m), loads, used))[0])
        least = int(np.lexsort((np.arange(m), loads, added))[0])
        to = lightest
        if used[lightest]:
            grown = loads.copy()
            grown[least] += added[least]
            if _compute_factor(grown) <= _compute_factor(loads):
                to = least
        part[i], used[to] = to, True
        counts[to] = new[to]
        loads[to] += added[to]
        own[to, node.objects] = True
        asked[to, node.queries] = True
    return part, loads


def _count_new(model: PaperModel, node: PaperNode, own: Flags, asked: Flags) -> F64:
    """Returns what each partition would gain: objects, live, inserted and deleted queries."""
    rows = model.rows
    fresh = ~asked[:, node.queries]
    columns: list[F64 | I64] = [(~own[:, node.objects]).sum(1)]
    columns += [fresh @ column[node.queries] for column in (rows.live, rows.inserts, rows.deletes)]
    return np.stack(columns, axis=1).astype(np.float64)


def _compute_factor(loads: F64) -> float:
    """Returns L_max / L_min."""
    low = float(loads.min())
    return float(loads.max()) / low if low > 0 else np.inf
