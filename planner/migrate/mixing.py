"""Plans on the way from one to another: some cells as the first has them, the rest as the last."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ps2stream.planner.adjust.apply import used
from ps2stream.protocol.frame import I64, U32
from ps2stream.routing.leaves import Leaf, Moved, Space, Text
from ps2stream.routing.plan import RoutingPlan

Mask = NDArray[np.bool_]


def renumbered(plan: RoutingPlan, worker: I64) -> RoutingPlan:
    """Returns the plan in which `worker[w]` has what worker w had, int64[workers], a permutation.
    The order of the workers of a text leaf stays, and with it what hashes choose."""
    to = dict(enumerate(worker.tolist()))
    return dataclasses.replace(plan, leaves=tuple(_renumber_leaf(leaf, to) for leaf in plan.leaves))


def _renumber_leaf(leaf: Leaf, to: Mapping[int, int]) -> Leaf:
    if isinstance(leaf, Space):
        return Space(to[leaf.worker])
    terms = {term: to[worker] for term, worker in leaf.terms.items()}
    if isinstance(leaf, Text):
        return Text(tuple(to[worker] for worker in leaf.workers), terms)
    return Moved(leaf.base, {to[a]: to[b] for a, b in leaf.to.items()}, terms)


class MixedLeaves:
    """The leaves of two plans on one grid as one list, equal ones once. now, then: the leaf of each
    cell by the first plan and by the second, in that list. differs: the cells whose leaf is not the
    same by both, bool[cells]."""

    def __init__(self, base: RoutingPlan, target: RoutingPlan) -> None:
        self._base, self._target = base, target
        self._leaves: list[Leaf] = []
        known: dict[tuple[object, ...], int] = {}
        self.now: U32 = _add_leaves(self._leaves, base.leaves, known)[base.cells]
        self.then: U32 = _add_leaves(self._leaves, target.leaves, known)[target.cells]
        self.differs: Mask = np.asarray(self.then != self.now, np.bool_)

    def mixed(self, follows: Mask, step: int, is_last: bool) -> RoutingPlan:
        """Returns the plan in which the cells `follows`, bool[cells], are as the second plan has
        them: the plan of step `step`, from 1. Before the last step it keeps the frequencies and the
        replicated units of the first plan, and the workers of both."""
        base, target = self._base, self._target
        kept, cells = used(self._leaves, np.where(follows, self.then, self.now))
        return dataclasses.replace(
            target if is_last else base,
            workers=target.workers if is_last else max(base.workers, target.workers),
            leaves=tuple(kept),
            cells=cells,
            version=base.version + step,
            base_version=base.version + step - 1,
            made=target.made if is_last else {},
        )


def _add_leaves(
    leaves: list[Leaf], more: Sequence[Leaf], known: dict[tuple[object, ...], int]
) -> U32:
    """Adds the leaves that are not `known` yet; returns the place of each, uint32[n]."""
    out = np.zeros(len(more), np.uint32)
    # A moved leaf stands upon another one, whose place must be known before.
    for number in sorted(range(len(more)), key=lambda n: isinstance(more[n], Moved)):
        leaf = more[number]
        if isinstance(leaf, Moved):
            leaf = dataclasses.replace(leaf, base=int(out[leaf.base]))
        key = _make_leaf_key(leaf)
        if key not in known:
            known[key] = len(leaves)
            leaves.append(leaf)
        out[number] = known[key]
    return out


def _make_leaf_key(leaf: Leaf) -> tuple[object, ...]:
    if isinstance(leaf, Space):
        return (leaf.worker,)
    terms = tuple(sorted(leaf.terms.items()))
    if isinstance(leaf, Text):
        return leaf.workers, terms
    return leaf.base, tuple(sorted(leaf.to.items())), terms
