"""The plan after an adjustment: H1 differs for the moved parts and for nothing else.

A leaf is read as (base, to, terms), the fields of `Moved`; in leaves of other kinds nothing has
moved. A move changes `to` or `terms`, and entries that repeat what the base says are dropped. A
cell that belongs to one worker as a whole therefore returns to that worker's space leaf, and
leaves that no cell uses are removed: the plan grows with the number of parts that are away from
their base, not with its history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analyzer
from ps2stream.planner.adjust.adjustment import LoadAdjustment, PartMove
from ps2stream.protocol.frame import U32
from ps2stream.routing.leaves import Leaf, Moved, Space, Text, holders
from ps2stream.routing.plan import RoutingPlan, hash_units


def apply(plan: RoutingPlan, adjustment: LoadAdjustment, version: int | None = None) -> RoutingPlan:
    """Returns the plan after all moves, derived from `plan`. version: by default the next one.

    Raises PlanError if the adjustment is for another version, names a cell, worker or part that
    does not exist, or moves a part twice.
    """
    if adjustment.base_version != plan.version:
        raise PlanError(
            f"adjustment: made for plan version {adjustment.base_version}, but the current one is "
            f"{plan.version}"
        )
    by_cell: dict[int, list[PartMove]] = {}
    for move in adjustment.moves:
        by_cell.setdefault(move.cell, []).append(move)
    held = holders(plan.leaves)
    _check_moves(plan, held, by_cell)
    leaves, cells = _AdjustedLeaves(plan.leaves, held), plan.cells.copy()
    for cell, moves in by_cell.items():
        cells[cell] = leaves.after(int(cells[cell]), moves)
    kept, cells = used(leaves.all, cells)
    return dataclasses.replace(
        plan,
        leaves=tuple(kept),
        cells=cells,
        version=plan.version + 1 if version is None else version,
        base_version=plan.version,
        made={name: value for name, value in plan.made.items() if name != "predicted"},
    )


def _check_moves(
    plan: RoutingPlan, held: Sequence[tuple[int, ...]], by_cell: dict[int, list[PartMove]]
) -> None:
    """Raises PlanError for a move that the plan does not allow."""
    split = [m for moves in by_cell.values() for m in moves if m.terms is not None]
    h1 = plan.compile(analyzer := Analyzer(plan.analysis)) if split else None
    for cell, moves in by_cell.items():
        if not 0 <= cell < len(plan.cells):
            raise PlanError(
                f"adjustment: there is no cell {cell}; the grid has {len(plan.cells)} cells"
            )
        seen: set[tuple[int, str | None]] = set()
        for move in moves:
            if move.source not in held[int(plan.cells[cell])]:
                raise PlanError(f"adjustment: worker {move.source} owns nothing of cell {cell}")
            if not 0 <= move.target < plan.workers:
                raise PlanError(
                    f"adjustment: there is no worker {move.target}; the plan has {plan.workers} "
                    "workers"
                )
            for part in [(move.source, t) for t in move.terms or (None,)]:
                if part in seen:
                    raise PlanError(f"adjustment: moves {part[1] or 'all'} of cell {cell} twice")
                seen.add(part)
            if h1 is not None and move.terms:
                hashes = hash_units(analyzer, move.terms)
                owner = h1.holders(np.full(len(hashes), cell, np.uint32), hashes)
                if len(strange := np.flatnonzero(owner != move.source)):
                    raise PlanError(
                        f"adjustment: worker {move.source} does not own "
                        f"{move.terms[strange[0]]!r} in cell {cell}"
                    )


class _AdjustedLeaves:
    """The leaves of a plan, together with those that moves add."""

    def __init__(self, leaves: Sequence[Leaf], held: Sequence[tuple[int, ...]]) -> None:
        self.all = list(leaves)
        self._held = held
        self._space = {f.worker: n for n, f in enumerate(self.all) if isinstance(f, Space)}
        self._moved = {_make_leaf_key(f): n for n, f in enumerate(self.all) if isinstance(f, Moved)}

    def after(self, number: int, moves: list[PartMove]) -> int:
        """Returns the leaf, by number, that a cell of leaf `number` has after the moves."""
        leaf = self.all[number]
        old = leaf if isinstance(leaf, Moved) else Moved(number)
        new = {move.source: move.target for move in moves if move.terms is None}
        to = {w: old.to.get(w, w) for w in self._held[old.base]}
        to = {w: new.get(now, now) for w, now in to.items()}
        terms = {term: new.get(w, w) for term, w in old.terms.items()}
        terms |= {term: move.target for move in moves for term in move.terms or ()}
        base = old.base
        if len(owners := set(to.values())) == 1:
            base = self._find_space_leaf(owners.pop())
            to = {}
        to = {w: now for w, now in sorted(to.items()) if w != now}
        terms = {t: w for t, w in sorted(terms.items()) if self._find_owner(base, to, t) != w}
        return self._find_moved_leaf(Moved(base, to, terms)) if to or terms else base

    def _find_owner(self, base: int, to: dict[int, int], term: str) -> int | None:
        """Returns the owner of a term that is not listed; None if a hash decides."""
        leaf = self.all[base]
        if isinstance(leaf, Text) and term in leaf.terms:
            return to.get(leaf.terms[term], leaf.terms[term])
        if isinstance(leaf, Space):
            return leaf.worker
        assert isinstance(leaf, Text)
        owners = {to.get(w, w) for w in leaf.workers}
        return owners.pop() if len(owners) == 1 else None

    def _find_space_leaf(self, worker: int) -> int:
        if worker not in self._space:
            self._space[worker] = len(self.all)
            self.all.append(Space(worker))
        return self._space[worker]

    def _find_moved_leaf(self, leaf: Moved) -> int:
        if (key := _make_leaf_key(leaf)) not in self._moved:
            self._moved[key] = len(self.all)
            self.all.append(leaf)
        return self._moved[key]


def _make_leaf_key(leaf: Moved) -> tuple[object, ...]:
    return leaf.base, tuple(sorted(leaf.to.items())), tuple(sorted(leaf.terms.items()))


def used(leaves: list[Leaf], cells: U32) -> tuple[list[Leaf], U32]:
    """Drops the leaves that no cell uses and no other leaf is based on, and renumbers the cells."""
    is_used = np.zeros(len(leaves), np.bool_)
    is_used[cells] = True
    for number in np.flatnonzero(is_used).tolist():
        if isinstance(leaf := leaves[number], Moved):
            is_used[leaf.base] = True
    now = np.cumsum(is_used) - 1
    kept = [leaves[number] for number in np.flatnonzero(is_used).tolist()]
    kept = [
        dataclasses.replace(f, base=int(now[f.base])) if isinstance(f, Moved) else f for f in kept
    ]
    return kept, now[cells].astype(np.uint32)
