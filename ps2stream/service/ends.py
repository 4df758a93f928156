"""Checks of the ends that queries and objects are given."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.limits import VALIDITY_MS
from ps2stream.protocol.frame import I64

NO_END = 0
"""Stands for no end in a column of ends."""
ENDED = -1
"""Stands for an end of 0 in such a column, which is long past."""


class EndProblem(NamedTuple):
    """A row whose end cannot be taken, and the reason."""

    row: int
    description: str


def find_end_problems(until: I64, now_ms: int) -> list[EndProblem]:
    """Returns the rows with an end, Unix ms, that is over or too far ahead, in row order."""
    if not until.any():
        return []
    out = []
    for row in np.flatnonzero(((until <= now_ms) | (until > now_ms + VALIDITY_MS)) & (until != 0)):
        end = int(until[row])
        if end <= now_ms:
            problem = f"is over: it is {now_ms} now, Unix milliseconds"
        else:
            problem = f"lies {end - now_ms} ms ahead, over the limit validity_ms {VALIDITY_MS}"
        out.append(EndProblem(int(row), problem))
    return out
