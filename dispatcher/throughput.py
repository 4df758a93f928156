"""Notices that objects wait in a dispatcher while hardly any are completed.

Time is counted in ticks, so that the same events always give the same result. Objects wait
while the oldest open batch is older than a fast batch takes. Throughput is then low if few objects
per second are completed, or few compared with what this dispatcher usually completes.
"""

from __future__ import annotations

from collections import deque

WAIT_TICKS = 2
"""Age of the oldest batch from which objects wait: more than 0.1 s."""
WINDOW_TICKS = 10
"""The time over which completed objects are counted: 1 s."""
STALL_TICKS = 30
"""How long throughput must be low: 3 s, the time after which a batch is first sent again."""
HUNG_TICKS = 100
"""Age from which a single batch is a stall, however many others are completed."""
FEW_OBJECTS = 1_000
"""Objects per second below which throughput is low on any machine; set by judgement."""
COLLAPSE = 20
"""Throughput is low if it falls to the usual one divided by this."""
REPORT_TICKS = 600
"""The least time between two reports, of one long stall or of two: a minute."""
MEMORY_TICKS = 6_000
"""The time after which a rate that is no longer reached has faded to about a third: 10 minutes."""


class ThroughputMonitor:
    """The state of one dispatcher's throughput. `stalled` says whether objects wait now while
    throughput is low; `stalls` counts how often that began, `low_ticks` how long it has lasted."""

    def __init__(self) -> None:
        self.stalled = False
        self.stalls = 0
        self.low_ticks = 0
        self._totals = deque([0], maxlen=WINDOW_TICKS + 1)
        self._usual = 0.0  # objects in a window
        self._quiet_ticks = REPORT_TICKS  # since the last report

    def tick(self, completed: int, age: int) -> bool:
        """Counts one tick, and returns whether a stall is to be reported now.

        completed: objects since the start. age: ticks that the oldest open batch has been open,
        0 where there is none.
        """
        self._totals.append(completed)
        done = completed - self._totals[0]
        low = age >= WAIT_TICKS and done <= max(FEW_OBJECTS, self._usual / COLLAPSE)
        self.low_ticks = self.low_ticks + 1 if low or age >= HUNG_TICKS else 0
        if not self.low_ticks:
            self._usual = max(done, self._usual * (1 - 1 / MEMORY_TICKS))
        before, self.stalled = self.stalled, self.low_ticks >= STALL_TICKS or age >= HUNG_TICKS
        self.stalls += self.stalled and not before
        self._quiet_ticks += 1
        reports = self.stalled and self._quiet_ticks > REPORT_TICKS
        if reports:
            self._quiet_ticks = 0
        return reports
