"""Kernels of the assignment by waiting time (algorithms.md 5.3)."""

# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.keyed.compiling import inline_kernel, kernel
from ps2stream.protocol.frame import F64


class WaitingArrays(NamedTuple):
    """What a source knows of workers, each float64[workers]: backlog C_w in tuples, as it was at
    the time `since`; seconds P_w for a tuple; rate, tuples that drain in a second."""

    backlog: F64
    since: F64
    seconds: F64
    rate: F64


@inline_kernel
def drain(w, worker, now):
    """Drains a backlog up to a time, which must not be before the last one."""
    left = w.backlog[worker] - (now - w.since[worker]) * w.rate[worker]
    w.backlog[worker] = max(0.0, left)
    w.since[worker] = now


@kernel
def pick_least_waiting(w, workers, begin, end, now):
    """Returns the worker of workers[begin:end] with the least waiting time C_w P_w, the first of
    equals, and counts a tuple in its backlog (Algorithm 3)."""
    best = np.int64(workers[begin])
    least = np.inf
    for j in range(begin, end):
        worker = np.int64(workers[j])
        drain(w, worker, now)
        wait = w.backlog[worker] * w.seconds[worker]
        if wait < least:
            best, least = worker, wait
    w.backlog[best] += 1.0
    return best


@kernel
def assign_tuples(w, off, workers, arrivals, chosen):
    """Picks a worker for each tuple of its candidates workers[off[i]:off[i+1]] at arrivals[i],
    float64[n] seconds, ascending. Writes it into chosen, uint16[n]."""
    for i in range(chosen.shape[0]):
        chosen[i] = pick_least_waiting(w, workers, off[i], off[i + 1], arrivals[i])


@kernel
def drain_all(w, now):
    """Drains all backlogs up to a time."""
    for worker in range(w.backlog.shape[0]):
        drain(w, worker, now)
