"""An adjustment: which parts of cells go from one worker to another, as a value.

A move takes a part, all that `source` owns of a cell; or, where it lists terms, these of it:
the cell is split. A part that comes to a worker who owns another part of the cell is merged
with it. All moves are meant at once: each names a part as the base plan has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ps2stream.errors import PlanError
from ps2stream.routing.costs import balance

MoveKind = Literal["move", "split", "merge"]


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """cell: of the base level; terms: None for the whole part; bytes: what its queries take
    (S_g); load: what it brings the target, microseconds of a period; of a merge in Phase II
    at most: objects of both parts are counted twice."""

    cell: int
    source: int
    target: int
    bytes: int
    load: float
    terms: tuple[str, ...] | None = None
    kind: MoveKind = "move"


@dataclasses.dataclass(frozen=True, slots=True)
class Adjustment:
    """base_version: of the plan that it changes; before, after: the measured and the
    predicted load of each worker, microseconds of a period; taus: the load that Phase II was
    to move, once for each pair of workers that it came to."""

    base_version: int
    moves: tuple[Move, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    taus: tuple[float, ...] = ()

    @property
    def bytes(self) -> int:
        """What moves."""
        return sum(move.bytes for move in self.moves)

    @property
    def balance_before(self) -> float:
        """L_max / L_min as measured; infinite where a worker has nothing to do."""
        return balance(np.array(self.before))

    @property
    def balance_after(self) -> float:
        """As predicted. Above sigma where no set of units could be found: some unit is too
        hot for one worker, or what could move is too light."""
        return balance(np.array(self.after))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Adjustment:
        """The inverse. Raises PlanError."""
        try:
            moves = tuple(
                Move(**{**move, "terms": None if move["terms"] is None else tuple(move["terms"])})
                for move in data["moves"]
            )
            loads = {name: tuple(map(float, data[name])) for name in ("before", "after", "taus")}
            return cls(base_version=int(data["base_version"]), moves=moves, **loads)
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"adjustment: {error!r}") from None
