"""The kernel of a router's buffer: a second of what nodes take from it."""

# mypy: allow-untyped-defs, allow-untyped-decorators, no-check-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

_A = np.uint64(6364136223846793005)
_C = np.uint64(1442695040888963407)
_SHIFT = np.uint64(11)
_UNIT = 2.0**-53


@njit(cache=True, nogil=True)
def serve_second(start, node, cursor, waiting, targets, capacity, credit, state):
    """Sends waiting posts in turn, post `cursor` of a stream without end first, each to the first
    `targets` of its nodes, node[start[i]:start[i + 1]] by rank, until none waits or a node of the
    next one has no credit left. A node gets `capacity` copies of credit a second, and saves up to
    one more second's. credit float64[nodes], state uint64[1]: of the random numbers. Returns (posts
    sent, copies sent, copies shed)."""
    for i in range(len(credit)):
        credit[i] = min(credit[i] + capacity, 2.0 * capacity)
    posts = len(start) - 1
    whole = np.int64(min(targets, 1e9))
    part = targets - whole
    sent, copies, shed = np.int64(0), np.int64(0), np.int64(0)
    while sent < waiting:
        i = (cursor + sent) % posts
        n = start[i + 1] - start[i]
        most = whole
        if n > whole and part > 0.0:
            following = state[0] * _A + _C
            most += 1 if np.float64(following >> _SHIFT) * _UNIT < part else 0
            state[0] = following
        few = min(n, most)
        for k in range(few):
            if credit[node[start[i] + k]] < 1.0:
                return sent, copies, shed
        for k in range(few):
            credit[node[start[i] + k]] -= 1.0
        copies += few
        shed += n - few
        sent += 1
    return sent, copies, shed
