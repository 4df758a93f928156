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


def mark_given_ends(until: I64) -> I64:
    """Returns ends that were given, of which none looks like no end."""
    return np.where(until == NO_END, ENDED, until)


def find_end_problems(until: I64, now_ms: int, time: I64 | None = None) -> list[EndProblem]:
    """Returns the rows with an end, Unix ms, that is over, too far ahead, or not after the time of
    its row, in row order."""
    if not until.any():
        return []
    is_bad = (until <= now_ms) | (until > now_ms + VALIDITY_MS)
    if time is not None:
        is_bad |= until <= time
    out = []
    for row in np.flatnonzero(is_bad & (until != NO_END)).tolist():
        end = int(until[row])
        if end <= now_ms:
            problem = f"is over: it is {now_ms} now, Unix milliseconds"
        elif time is not None and end <= time[row]:
            problem = f"is not after the time of the object, {time[row]}"
        else:
            problem = f"lies {end - now_ms} ms ahead, over the limit validity_ms {VALIDITY_MS}"
        out.append(EndProblem(row, problem))
    return out
