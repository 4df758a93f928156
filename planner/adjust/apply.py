"""The plan after an adjustment: H1 differs for the moved parts and for nothing else.

A leaf is taken as (base, to, terms): what `Moved` says, with nothing moved in other leaves.
A move changes `to` or `terms`; then what says nothing new is dropped. So a cell of which all
has come to one worker is in that worker's space leaf again, and leaves that nothing stands
on go: the plan is as large as what is moved out of place, not as its history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analyzer
from ps2stream.planner.adjust.adjustment import Adjustment, Move
from ps2stream.protocol.frame import U32
from ps2stream.routing.leaves import Leaf, Moved, Space, Text, holders
from ps2stream.routing.plan import RoutingPlan, hash_units


def apply(plan: RoutingPlan, adjustment: Adjustment, version: int | None = None) -> RoutingPlan:
    """The plan with all moves made, derived from `plan`; version: by default the next.

    Raises PlanError where the adjustment is for another version, names a cell, worker or
    part that is not there, or moves a part twice."""
    if adjustment.base_version != plan.version:
        raise PlanError(
            f"adjustment: made for plan version {adjustment.base_version}; "
            f"the current one is {plan.version}"
        )
    by_cell: dict[int, list[Move]] = {}
    for move in adjustment.moves:
        by_cell.setdefault(move.cell, []).append(move)
    held = holders(plan.leaves)
    _check(plan, held, by_cell)
    leaves, cells = _Leaves(plan.leaves, held), plan.cells.copy()
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


def _check(
    plan: RoutingPlan, held: Sequence[tuple[int, ...]], by_cell: dict[int, list[Move]]
) -> None:
    split = [m for moves in by_cell.values() for m in moves if m.terms is not None]
    h1 = plan.compile(analyzer := Analyzer(plan.analysis)) if split else None
    for cell, moves in by_cell.items():
        if not 0 <= cell < len(plan.cells):
            raise PlanError(f"adjustment: cell {cell}; the grid has {len(plan.cells)}")
        seen: set[tuple[int, str | None]] = set()
        for move in moves:
            if move.source not in held[int(plan.cells[cell])]:
                raise PlanError(f"adjustment: worker {move.source} owns nothing of cell {cell}")
            if not 0 <= move.target < plan.workers:
                raise PlanError(f"adjustment: worker {move.target} of {plan.workers}")
            for part in [(move.source, t) for t in move.terms or (None,)]:
                if part in seen:
                    raise PlanError(f"adjustment: moves {part[1] or 'all'} of cell {cell} twice")
                seen.add(part)
            if h1 is not None and move.terms:
                hashes = hash_units(analyzer, move.terms)
                owner = h1.owners(np.full(len(hashes), cell, np.uint32), hashes)
                if len(strange := np.flatnonzero(owner != move.source)):
                    raise PlanError(
                        f"adjustment: worker {move.source} does not own "
                        f"{move.terms[strange[0]]!r} in cell {cell}"
                    )


class _Leaves:
    """The leaves of a plan, and those that moves add."""

    def __init__(self, leaves: Sequence[Leaf], held: Sequence[tuple[int, ...]]) -> None:
        self.all = list(leaves)
        self._held = held
        self._space = {f.worker: n for n, f in enumerate(self.all) if isinstance(f, Space)}
        self._moved = {_key(f): n for n, f in enumerate(self.all) if isinstance(f, Moved)}

    def after(self, number: int, moves: list[Move]) -> int:
        """The number of the leaf of a cell that was in leaf `number`."""
        leaf = self.all[number]
        old = leaf if isinstance(leaf, Moved) else Moved(number)
        new = {move.source: move.target for move in moves if move.terms is None}
        to = {w: old.to.get(w, w) for w in self._held[old.base]}
        to = {w: new.get(now, now) for w, now in to.items()}
        terms = {term: new.get(w, w) for term, w in old.terms.items()}
        terms |= {term: move.target for move in moves for term in move.terms or ()}
        base = old.base
        if len(owners := set(to.values())) == 1:
            base = self._space_of(owners.pop())
            to = {}
        to = {w: now for w, now in sorted(to.items()) if w != now}
        terms = {t: w for t, w in sorted(terms.items()) if self._owner(base, to, t) != w}
        return self._number_of(Moved(base, to, terms)) if to or terms else base

    def _owner(self, base: int, to: dict[int, int], term: str) -> int | None:
        """Who owns a term that is not listed; None where that is left to the hash."""
        leaf = self.all[base]
        if isinstance(leaf, Text) and term in leaf.terms:
            return to.get(leaf.terms[term], leaf.terms[term])
        if isinstance(leaf, Space):
            return leaf.worker
        assert isinstance(leaf, Text)
        owners = {to.get(w, w) for w in leaf.workers}
        return owners.pop() if len(owners) == 1 else None

    def _space_of(self, worker: int) -> int:
        if worker not in self._space:
            self._space[worker] = len(self.all)
            self.all.append(Space(worker))
        return self._space[worker]

    def _number_of(self, leaf: Moved) -> int:
        if (key := _key(leaf)) not in self._moved:
            self._moved[key] = len(self.all)
            self.all.append(leaf)
        return self._moved[key]


def _key(leaf: Moved) -> tuple[object, ...]:
    return leaf.base, tuple(sorted(leaf.to.items())), tuple(sorted(leaf.terms.items()))


def used(leaves: list[Leaf], cells: U32) -> tuple[list[Leaf], U32]:
    """Without the leaves that no cell is in and none stands on."""
    used = np.zeros(len(leaves), np.bool_)
    used[cells] = True
    for number in np.flatnonzero(used).tolist():
        if isinstance(leaf := leaves[number], Moved):
            used[leaf.base] = True
    now = np.cumsum(used) - 1
    kept = [leaves[number] for number in np.flatnonzero(used).tolist()]
    kept = [
        dataclasses.replace(f, base=int(now[f.base])) if isinstance(f, Moved) else f for f in kept
    ]
    return kept, now[cells].astype(np.uint32)
