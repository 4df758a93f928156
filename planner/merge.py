"""MergeNodesIntoPartitions: leaves to workers (Algorithm 1, line 18; algorithms.md 1.4).

Leaves are taken by descending load. A leaf goes to the partition whose load it raises least -
parts of one rectangle share objects, so together they cost less - if that does not raise L_max /
L_min, else to the least loaded one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from ps2stream.planner.nodes import CostModel, KdtNode
from ps2stream.planner.statistics import I32
from ps2stream.protocol.frame import F64, I64


def merge_nodes_into_partitions(
    model: CostModel, leaves: Sequence[KdtNode], m: int
) -> tuple[I32, F64]:
    """Returns (the partition of each leaf, int32[n]; the load of each partition, float64[m])."""
    load = np.array([leaf.load for leaf in leaves])
    order = np.lexsort((np.arange(len(leaves)), -load))
    # Only the parts of a text split can share objects with another leaf.
    rows = [leaf.rows[:0] if leaf.whole else leaf.rows for leaf in leaves]
    off = np.zeros(len(leaves) + 1, np.int64)
    np.cumsum([len(r) for r in rows], out=off[1:])
    shared, row = np.unique(np.concatenate(rows), return_inverse=True)
    part = np.empty(len(leaves), np.int32)
    loads = np.zeros(m)
    _merge_leaves(
        np.array([leaf.objects for leaf in leaves]),
        np.array([leaf.queries for leaf in leaves]),
        np.array([leaf.fixed for leaf in leaves]),
        order,
        off,
        row.astype(np.int64),
        model.row_weight[shared],
        model.product,
        model.copy,
        part,
        loads,
    )
    return part, loads


@njit(cache=True, nogil=True)
def _merge_leaves(
    objects: F64, queries: F64, fixed: F64, order: I64, off: I64, row: I64, weight: F64,
    product: float, copy: float, part: I32, loads: F64,
) -> None:  # fmt: skip
    """Writes the partition of each leaf and the load of each partition."""
    m = len(loads)
    held = np.zeros((len(weight), m), np.uint8)
    o, q = np.zeros(m), np.zeros(m)
    seen, added = np.zeros(m), np.zeros(m)
    used = np.zeros(m, np.bool_)
    for leaf in order:
        seen[:] = 0.0
        for j in range(off[leaf], off[leaf + 1]):
            for i in range(m):
                seen[i] += held[row[j], i] * weight[row[j]]
        least = lightest = 0
        for i in range(m):
            new = objects[leaf] - seen[i]
            added[i] = (
                product * (o[i] * queries[leaf] + new * q[i] + new * queries[leaf])
                + copy * new + fixed[leaf]
            )  # fmt: skip
            if used[i] < used[lightest] or (
                used[i] == used[lightest] and loads[i] < loads[lightest]
            ):
                lightest = i
            if added[i] < added[least] or (added[i] == added[least] and loads[i] < loads[least]):
                least = i
        to = lightest
        if used[lightest] and _compute_balance(loads, least, added[least]) <= _compute_balance(
            loads, least, 0.0
        ):
            to = least
        part[leaf] = to
        used[to] = True
        loads[to] += added[to]
        o[to] += objects[leaf] - seen[to]
        q[to] += queries[leaf]
        for j in range(off[leaf], off[leaf + 1]):
            held[row[j], to] = 1


@njit(cache=True, nogil=True)
def _compute_balance(loads: F64, at: int, added: float) -> float:
    """Returns L_max / L_min after `added` is added to one of the loads."""
    low, high = np.inf, 0.0
    for i in range(len(loads)):
        load = loads[i] + (added if i == at else 0.0)
        low, high = min(low, load), max(high, load)
    return high / low if low > 0 else np.inf
