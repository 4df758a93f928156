"""Assignment to the worker with the least waiting time (algorithms.md 5.3)."""

from __future__ import annotations

import numpy as np

from ps2stream.keyed.waiting_kernels import WaitingArrays, assign_tuples, drain_all
from ps2stream.protocol.frame import F64, I64, U16, Array


class WaitingTimes:
    """What one source infers of the workers' queues from what it sent and how long a tuple takes.

    A backlog grows by one with each tuple and drains by 1 / (sources P_w) a second: each of several
    sources sees its own part of a queue, and takes its part of the worker's time. `correct` sets
    what is known better. Times are seconds on any clock that does not go back; one before the last
    counts as the last.

    seconds: P_w, the time of a tuple on each worker, float64[workers], above 0. Raises ValueError
    for another.
    """

    def __init__(self, seconds: Array, sources: int = 1) -> None:
        n = len(seconds)
        self.sources = sources
        self.now = 0.0
        self.arrays = WaitingArrays(np.zeros(n), np.zeros(n), np.ones(n), np.zeros(n))
        self.learn(seconds)

    def learn(self, seconds: Array) -> None:
        """Takes new times of a tuple; backlogs so far have drained by the old ones."""
        if not np.all(np.asarray(seconds) > 0.0):
            raise ValueError("the time of a tuple must be above 0")
        drain_all(self.arrays, self.now)
        self.arrays.seconds[:] = seconds
        self.arrays.rate[:] = 1.0 / (self.sources * self.arrays.seconds)

    def correct(self, backlogs: Array, now: float) -> None:
        """Sets the backlogs, in tuples of this source, as of a time."""
        self.now = max(self.now, now)
        self.arrays.backlog[:] = backlogs
        self.arrays.since[:] = self.now

    def waits(self, now: float) -> F64:
        """Returns the waiting time of each worker at a time, float64[workers] seconds."""
        self.now = max(self.now, now)
        drain_all(self.arrays, self.now)
        return self.arrays.backlog * self.arrays.seconds

    def assign(self, off: I64, workers: U16, arrivals: F64) -> U16:
        """Returns the worker of each tuple, uint16[n], chosen from its candidates
        workers[off[i]:off[i+1]], at least one. arrivals: float64[n], ascending."""
        times = self.advance(arrivals)
        chosen = np.empty(len(off) - 1, np.uint16)
        assign_tuples(self.arrays, off, workers, times, chosen)
        return chosen

    def advance(self, arrivals: F64) -> F64:
        """Returns times of arrival, none before the last one seen, and remembers the last."""
        times = np.maximum(arrivals, self.now)
        self.now = float(times[-1]) if len(times) else self.now
        return times
