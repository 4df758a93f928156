"""A plan for more or fewer workers that moves what it must and hardly more.

When scaling up, new workers receive from each worker that has more than an equal share what
exceeds it. When scaling down, all parts of the removed workers move to the others, by the room
that these have. Parts are taken in the order of their cells, so that a few runs of neighbouring
cells move and the plan stays small. A part that is too hot to be moved whole stays: splits are
the task of `decide`.

On the coarse levels of the grid the owner is a hash over all workers, which no leaf records.
Units are replicated no longer: the controller replicates those that are hot under the new plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.errors import PlanError
from ps2stream.planner.adjust.apply import used
from ps2stream.protocol.frame import F64, I64
from ps2stream.routing.costs import PartWeights
from ps2stream.routing.leaves import Leaf, Moved, Space, Text, holders
from ps2stream.routing.plan import MAX_WORKERS, RoutingPlan

IDLE = 0.01  # share of all load that is spread evenly, so that no part counts as free


class _PartTable(NamedTuple):
    """Every part of a plan, by cell: cell, worker and load. first: the first part of each cell."""

    cell: I64
    worker: I64
    load: F64
    first: I64


def scaled(plan: RoutingPlan, workers: int, weights: PartWeights) -> RoutingPlan:
    """Returns the plan for this number of workers, derived from `plan`. Without weights all parts
    count as equal. Raises PlanError for a number of workers that no plan can have, or that the
    plan already has."""
    if not 1 <= workers <= MAX_WORKERS:
        raise PlanError(f"plan: expected 1 to {MAX_WORKERS} workers, got {workers}")
    if workers == plan.workers:
        raise PlanError(f"plan: it has {workers} workers already")
    held = holders(plan.leaves)
    parts = _list_parts(plan, held, weights)
    to = _choose_targets(parts, plan.workers, workers)
    leaves, cells = list(plan.leaves), plan.cells.copy()
    places = {leaf: n for n, leaf in enumerate(leaves) if isinstance(leaf, Space)}
    for number, named in enumerate(held):
        of_leaf = np.flatnonzero(plan.cells == number)
        if not len(of_leaf):
            continue
        rows = to[parts.first[of_leaf, None] + np.arange(len(named))]
        kinds, kind = np.unique(rows, axis=0, return_inverse=True)
        now = np.full(len(kinds), number, np.uint32)
        for i, targets in enumerate(kinds.tolist()):
            if tuple(targets) != named:
                leaf = _move_leaf(leaves, number, dict(zip(named, targets, strict=True)))
                known = places.get(leaf) if isinstance(leaf, Space) else None
                now[i] = len(leaves) if known is None else known
                if known is None:
                    leaves.append(leaf)
                    if isinstance(leaf, Space):
                        places[leaf] = int(now[i])
        cells[of_leaf] = now[kind.ravel()]
    kept, cells = used([_rebase_leaf(leaves, leaf, workers) for leaf in leaves], cells)
    return dataclasses.replace(
        plan,
        workers=workers,
        leaves=tuple(kept),
        cells=cells,
        version=plan.version + 1,
        base_version=plan.version,
        made={},
        replicas=(),
    )


def _list_parts(
    plan: RoutingPlan, held: Sequence[tuple[int, ...]], weights: PartWeights
) -> _PartTable:
    """Lists the parts of a plan with their loads."""
    size = np.array([len(named) for named in held])
    start = np.cumsum(size) - size
    flat = np.array([worker for named in held for worker in named], np.int64)
    count = size[plan.cells]
    first = np.cumsum(count) - count
    cell = np.repeat(np.arange(len(plan.cells)), count)
    worker = flat[start[plan.cells[cell]] + np.arange(len(cell)) - first[cell]]
    load = np.zeros(len(cell))
    if len(weights.cell):
        weighted, row = np.unique(
            weights.cell.astype(np.int64) << 16 | weights.worker, return_inverse=True
        )
        summed = np.bincount(row, weights.weight, len(weighted))
        keys = cell << 16 | worker
        at = np.minimum(np.searchsorted(weighted, keys), len(weighted) - 1)
        load = np.where(weighted[at] == keys, summed[at], 0.0)
    return _PartTable(cell, worker, load + IDLE * (load.sum() or 1.0) / len(cell), first)


def _choose_targets(parts: _PartTable, old: int, new: int) -> I64:
    """Returns the worker of each part in the new plan."""
    loads = np.bincount(parts.worker, parts.load, max(old, new))
    share = loads.sum() / new
    if new > old:
        above = np.maximum(loads[:old] - share, 0)
        give = above * min((new - old) * share / max(above.sum(), 1e-300), 1.0)
        room, takers = np.full(new - old, share), np.arange(old, new)
    else:
        give = np.where(np.arange(old) < new, 0.0, np.inf)
        room, takers = np.maximum(share - loads[:new], 1e-9 * share), np.arange(new)
    order = np.lexsort((parts.cell, parts.worker))
    owner, load = parts.worker[order], parts.load[order]
    light = load <= give[owner]
    behind = np.cumsum(np.where(light, load, 0.0)[::-1])[::-1]  # with the parts that follow
    end = np.append(behind, 0.0)[np.searchsorted(owner, owner, side="right")]
    chosen = order[light & (behind - end <= give[owner] * (1 + 1e-9))]
    taken = parts.load[chosen]
    middle = (np.cumsum(taken) - taken / 2) * room.sum() / max(taken.sum(), 1e-300)
    taker = np.minimum(np.searchsorted(np.cumsum(room), middle), len(room) - 1)
    to = parts.worker.copy()
    to[chosen] = takers[taker]
    return to


def _move_leaf(leaves: Sequence[Leaf], number: int, to: Mapping[int, int]) -> Leaf:
    """Returns the leaf in which everything that leaf `number` gives to w belongs to to[w]."""
    leaf = leaves[number]
    if isinstance(leaf, Space):
        return Space(to[leaf.worker])
    old = leaf if isinstance(leaf, Moved) else Moved(number)
    owners = {w: old.to.get(w, w) for w in holders([leaves[old.base]])[0]}
    now = {w: to.get(owner, owner) for w, owner in owners.items()}
    terms = {term: to[owner] for term, owner in old.terms.items()}
    everyone = {*now.values(), *terms.values()}
    if len(everyone) == 1:
        return Space(everyone.pop())
    return Moved(old.base, {w: owner for w, owner in now.items() if w != owner}, terms)


def _rebase_leaf(leaves: Sequence[Leaf], leaf: Leaf, workers: int) -> Leaf:
    """Returns the same leaf, without a base that names removed workers."""
    if not isinstance(leaf, Moved) or max(holders([leaves[leaf.base]])[0]) < workers:
        return leaf
    base = leaves[leaf.base]
    assert not isinstance(base, Moved)
    if isinstance(base, Space):
        base = Text((base.worker,))
    named = tuple(leaf.to.get(w, w) for w in base.workers)
    listed = {term: leaf.to.get(w, w) for term, w in base.terms.items()}
    return Text(named, listed | dict(leaf.terms))
