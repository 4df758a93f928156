"""The time that an object would wait at each worker, as one dispatcher knows it (algorithms.md
5.3).

Nothing is sent for this: a dispatcher counts the objects that a worker has not answered, and the
answers say how long the matching took. Other dispatchers' objects, which are in the worker's queue
too, are known only by that time: a worker that is busy with them answers later, so that more of
our own are before it.
"""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import F64

FIRST_US = 2.0
"""The time of an object at a worker that has not answered yet; equal for all, so that only their
objects count."""
RECENT = 0.05
"""The weight of an answer of a full batch in the average time of an object; smaller answers weigh
less, as their time is less certain."""
FULL_ROWS = 512


class WorkerWaits:
    """What is before each worker: `waits` float64[workers] microseconds, `times` float64[workers]
    microseconds an object."""

    def __init__(self, workers: int) -> None:
        self._rows = np.zeros(workers)
        self.times: F64 = np.full(workers, FIRST_US)

    def resize(self, workers: int) -> None:
        """Goes on with another number of workers."""
        if workers == len(self._rows):
            return
        rows, times = np.zeros(workers), np.full(workers, FIRST_US)
        kept = min(workers, len(self._rows))
        rows[:kept], times[:kept] = self._rows[:kept], self.times[:kept]
        self._rows, self.times = rows, times

    @property
    def waits(self) -> F64:
        """The microseconds that a worker needs for the objects that it has not answered."""
        return self._rows * self.times

    def note_sent(self, worker: int, rows: int) -> None:
        """Notes that objects were sent."""
        if worker < len(self._rows):
            self._rows[worker] += rows

    def note_done(self, worker: int, rows: int, took_us: int = -1) -> None:
        """Notes that objects are no longer before a worker; took_us: what their matching took, -1
        if it is unknown."""
        if worker >= len(self._rows):
            return
        self._rows[worker] = max(self._rows[worker] - rows, 0.0)
        if took_us >= 0 and rows:
            weight = RECENT * min(rows / FULL_ROWS, 1.0)
            time = max(took_us / rows, 1e-3)
            self.times[worker] += weight * (time - self.times[worker])
