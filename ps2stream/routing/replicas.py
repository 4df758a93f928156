"""Replicas and shards: hot units that several workers own together (algorithms.md 6.3).

The queries of a replicated unit are live at each of its workers, and each object that meets it goes
to one of them. Those of a sharded unit are divided among its workers, and each object goes to all
of them. A plan lists such units beside its leaves, which assign all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ps2stream.errors import PlanError
from ps2stream.routing.leaves import whole
from ps2stream.routing.unit_kernels import LEVEL_SHIFT
from ps2stream.space.grid import Grid

MAX_REPLICATED = 4096
"""The most replicated units of a plan: an adjustment names tens, and every actor compiles them."""


@dataclass(frozen=True, slots=True)
class ReplicatedUnit:
    """A unit that `workers`, at least two and each once, own together.

    cell: level << 28 | cell on that level, None for all cells of all levels. term: None for all
    terms of the cell. One of the two is given. Where several apply to a cell and a term, the one
    with both comes first, then the one with the term. sharded: whether the queries of the unit are
    divided among the workers, and not at each of them.
    """

    cell: int | None
    term: str | None
    workers: tuple[int, ...]
    sharded: bool = False

    @property
    def verb(self) -> str:
        """What the plan does to the unit."""
        return "sharded" if self.sharded else "replicated"


def check_replicas(replicas: Sequence[ReplicatedUnit], workers: int, grid: Grid) -> None:
    """Raises PlanError for units that are listed twice or too many, and for cells and workers that
    do not exist."""
    if len(replicas) > MAX_REPLICATED:
        raise PlanError(
            f"plan: {len(replicas)} units are replicated, the limit is {MAX_REPLICATED}"
        )
    seen: set[tuple[int | None, str | None]] = set()
    for unit in replicas:
        name = describe_unit(unit)
        if unit.cell is None and unit.term is None:
            raise PlanError("plan: a replicated unit names neither a cell nor a term")
        if unit.cell is not None and not _is_cell(unit.cell, grid):
            raise PlanError(f"plan: {name} is replicated, but the grid has no such cell")
        if (unit.cell, unit.term) in seen:
            raise PlanError(f"plan: {name} is replicated twice")
        seen.add((unit.cell, unit.term))
        if len({*unit.workers}) < max(len(unit.workers), 2):
            raise PlanError(
                f"plan: {name} must be replicated to at least two workers, each named once, "
                f"got {list(unit.workers)}"
            )
        for worker in unit.workers:
            if not 0 <= worker < workers:
                raise PlanError(
                    f"plan: {name} is replicated to worker {worker}, but there are {workers} "
                    "workers"
                )


def describe_unit(unit: ReplicatedUnit) -> str:
    """Describes a replicated unit in words, for errors and people."""
    term = "all terms" if unit.term is None else repr(unit.term)
    if unit.cell is None:
        return f"{term} everywhere"
    level, cell = unit.cell >> LEVEL_SHIFT, unit.cell & ((1 << LEVEL_SHIFT) - 1)
    return f"{term} in cell {cell}" + (f" of level {level}" if level else "")


def unit_to_dict(unit: ReplicatedUnit) -> dict[str, Any]:
    """Returns a JSON-ready dict, in which what is None, and `sharded` if it is false, is left
    out."""
    named = {"cell": unit.cell, "term": unit.term}
    given: dict[str, Any] = {k: v for k, v in named.items() if v is not None}
    return given | {"workers": list(unit.workers)} | ({"sharded": True} if unit.sharded else {})


def unit_from_dict(data: object) -> ReplicatedUnit:
    """Reads what `unit_to_dict` returns. Raises PlanError."""
    if not isinstance(data, Mapping):
        raise PlanError(f"plan: {data!r} is not a replicated unit")
    if unknown := sorted(set(data) - {"cell", "term", "workers", "sharded"}):
        raise PlanError(f"plan: a replicated unit has the unknown field {unknown[0]!r}")
    cell, term = data.get("cell"), data.get("term")
    if term is not None and not isinstance(term, str):
        raise PlanError(f"plan: the term of a replicated unit must be a text, got {term!r}")
    workers, sharded = (
        tuple(whole(worker) for worker in data["workers"]),
        data.get("sharded", False),
    )
    if not isinstance(sharded, bool):
        raise PlanError(f"plan: whether a unit is sharded must be true or false, got {sharded!r}")
    return ReplicatedUnit(None if cell is None else whole(cell), term, workers, sharded)


def _is_cell(cell: int, grid: Grid) -> bool:
    level = cell >> LEVEL_SHIFT
    if not 0 <= level < grid.levels:
        return False
    return cell - (level << LEVEL_SHIFT) < grid.columns(level) * grid.rows(level)
