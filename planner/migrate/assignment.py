"""The assignment of a new plan's workers to those that run, so that most bytes stay in place.

A planner numbers its workers as it likes, so its plan taken literally moves nearly everything. Only
who becomes whom decides how much of that is real. This is the assignment problem, solved exactly by
shortest augmenting paths with potentials (the Hungarian algorithm): O(m^3), in whole bytes.
"""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import I64

_FAR = np.iinfo(np.int64).max


def assign(kept: I64) -> I64:
    """Returns the worker that each role of the new plan goes to, int64[m], each worker once, such
    that the sum of `kept` is largest.

    kept int64[m, m] >= 0: the bytes that stay if the worker (row) takes the role (column). Equal
    arguments give equal answers; where nothing stays, each worker takes the role of its number.
    Raises ValueError for a matrix that is not square.
    """
    if kept.ndim != 2 or kept.shape[0] != kept.shape[1]:
        raise ValueError(f"kept must be square, got {kept.shape}")
    n = len(kept)
    cost = kept.max(initial=0) - kept
    of_row, of_column = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)  # potentials
    owner = np.zeros(n + 1, np.int64)  # the row of each column, from 1; 0: none yet
    before = np.zeros(n + 1, np.int64)
    for row in range(1, n + 1):
        owner[0], column = row, 0
        least, done = np.full(n + 1, _FAR), np.zeros(n + 1, np.bool_)
        while True:
            done[column] = True
            mine = int(owner[column])
            reduced = cost[mine - 1] - of_row[mine] - of_column[1:]
            nearer = 1 + np.flatnonzero(~done[1:] & (reduced < least[1:]))
            least[nearer], before[nearer] = reduced[nearer - 1], column
            column = 1 + int(np.argmin(np.where(done[1:], _FAR, least[1:])))
            step = least[column]
            of_row[owner[done]] += step
            of_column[done] -= step
            least[~done] -= step
            if not owner[column]:
                break
        while column:
            owner[column] = owner[before[column]]
            column = int(before[column])
    return owner[1:] - 1
