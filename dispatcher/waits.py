"""The time that an object would wait at each worker, as one dispatcher knows it (algorithms.md
5.3).

Nothing is sent for this: a dispatcher counts the objects that a worker has not answered, and the
answers say how long their matching took. A worker that is slow, or busy with other dispatchers'
objects, answers later, so that more of our own are before it.
"""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import F64, I64

FIRST_US = 2.0
"""The time of an object where no worker has answered yet."""
MEMORY = 1024
"""Answers after which those before count half."""
LONGEST = 8.0
"""The most that an answer counts, as a multiple of what it would take by the mean: a worker that
had to wait for its processor is not slow for long."""
LEAST_ROWS = 200
"""Objects of all workers that count as if each worker had matched them, too: few are no measure."""


class WorkerWaits:
    """What is before each of some workers."""

    def __init__(self, workers: int) -> None:
        self._open = [0] * workers  # objects that were sent and not answered
        self._rows, self._us = [0.0] * workers, [0.0] * workers  # of recent answers
        self._all_rows = self._all_us = 0.0
        self._answers = 0
        self._busy = [0] * workers  # on a processor, by the answers since `take_busy`

    def resize(self, workers: int) -> None:
        """Goes on with another number of workers."""
        for column in (self._open, self._rows, self._us, self._busy):
            del column[workers:]
            column += [0] * (workers - len(column))

    @property
    def waits(self) -> F64:
        """The microseconds that a worker needs for what is before it, float64[workers]."""
        return np.array(self._open) * self.times

    @property
    def time(self) -> float:
        """The microseconds that an object takes at any worker."""
        return self._all_us / self._all_rows if self._all_rows and self._all_us else FIRST_US

    @property
    def times(self) -> F64:
        """The microseconds that an object takes at each worker, float64[workers]."""
        rows, us = np.array(self._rows), np.array(self._us)
        times: F64 = (us + LEAST_ROWS * self.time) / (rows + LEAST_ROWS)
        return times

    def take_busy(self) -> I64:
        """Returns the microseconds for which each worker was on a processor to match what it has
        answered since the last call, int64[workers]."""
        busy = np.array(self._busy, np.int64)
        self._busy = [0] * len(self._busy)
        return busy

    def note_sent(self, worker: int, rows: int) -> None:
        """Notes that objects were sent."""
        if worker < len(self._open):
            self._open[worker] += rows

    def note_done(self, worker: int, rows: int, took_us: int = -1, cpu_us: int = 0) -> None:
        """Notes that objects are no longer before a worker; took_us: what their matching took, -1
        if it is unknown; cpu_us: on a processor."""
        if worker >= len(self._open):
            return
        self._open[worker] = max(self._open[worker] - rows, 0)
        if took_us < 0:
            return
        self._busy[worker] += cpu_us
        took = min(took_us, LONGEST * rows * self.time) if self._answers else took_us
        self._rows[worker] += rows
        self._us[worker] += took
        self._all_rows += rows
        self._all_us += took
        self._answers += 1
        if self._answers % MEMORY == 0:
            self._rows = [value / 2 for value in self._rows]
            self._us = [value / 2 for value in self._us]
            self._all_rows, self._all_us = self._all_rows / 2, self._all_us / 2
