"""An adjustment: which parts of cells migrate from one worker to another, as a value.

A move takes a part, that is all that `source` owns of a cell, or only the terms that it lists,
which splits the cell. A part that reaches a worker who already owns another part of the cell is
merged with it. All moves apply at once: each names a part as the base plan has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ps2stream.errors import PlanError
from ps2stream.routing.costs import balance

MoveKind = Literal["migrate", "split", "merge"]


@dataclasses.dataclass(frozen=True, slots=True)
class PartMove:
    """A part of a cell, or some terms of it, that migrates from `source` to `target`.

    cell: a cell of the base level. terms: None for the whole part. bytes: the size of its queries
    (S_g). load: the load that it adds to the target, in microseconds of a period; for a merge in
    Phase II an upper bound, because objects of both parts are counted twice.
    """

    cell: int
    source: int
    target: int
    bytes: int
    load: float
    terms: tuple[str, ...] | None = None
    kind: MoveKind = "migrate"


@dataclasses.dataclass(frozen=True, slots=True)
class LoadAdjustment:
    """The moves that bring a plan nearer to balance, and the loads that they lead to.

    base_version: the version of the plan that it changes. before, after: the measured and the
    predicted load of each worker, in microseconds of a period. taus: the load that Phase II was
    to move, one value for each pair of workers that reached Phase II.
    """

    base_version: int
    moves: tuple[PartMove, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    taus: tuple[float, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of the queries of all moves, in bytes."""
        return sum(move.bytes for move in self.moves)

    @property
    def balance_before(self) -> float:
        """The measured L_max / L_min; infinite where a worker has no load."""
        return balance(np.array(self.before))

    @property
    def balance_after(self) -> float:
        """The predicted L_max / L_min. It stays above sigma where no set of units could be found:
        some unit is too hot for one worker, or what could migrate is too light."""
        return balance(np.array(self.after))

    def to_dict(self) -> dict[str, Any]:
        """Returns the adjustment as JSON-ready data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LoadAdjustment:
        """Builds an adjustment from what `to_dict` returned. Raises PlanError for other data."""
        try:
            moves = tuple(
                PartMove(
                    **{**move, "terms": None if move["terms"] is None else tuple(move["terms"])}
                )
                for move in data["moves"]
            )
            loads = {name: tuple(map(float, data[name])) for name in ("before", "after", "taus")}
            return cls(base_version=int(data["base_version"]), moves=moves, **loads)
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"adjustment: {error!r}") from None
