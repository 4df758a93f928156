"""The costs of a worker's work, and how evenly it is divided (algorithms.md 1.3, 1.11)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ps2stream.protocol.frame import F64, I64, U32


@dataclasses.dataclass(frozen=True, slots=True)
class Costs:
    """The costs c1 to c4 of Definition 1, in microseconds: of a candidate, an object, an insert
    and a delete of a posting. The defaults were fitted once; `ps2stream calibrate` fits them to
    a machine."""

    c1: float = 0.02
    c2: float = 0.6
    c3: float = 0.6
    c4: float = 0.2


class PartWeights(NamedTuple):
    """The load of parts, in any unit of measure: base-level cell uint32[n], worker int64[n],
    weight float64[n]. Rows of the same part are summed; rows that the plan does not assign to
    that worker are ignored."""

    cell: U32
    worker: I64
    weight: F64


def balance(loads: F64) -> float:
    """Returns L_max / L_min, which is infinite if a worker has nothing to do."""
    low = float(loads.min())
    return float(loads.max()) / low if low > 0 else float("inf")
