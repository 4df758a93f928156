"""A sample of the objects in a few hot cells, which the controller requests of the dispatchers.

The sample is requested at the end of a period in which some part is too hot to migrate whole,
which is seldom, and for those cells alone. A dispatcher answers with at most a thousand objects,
in a millisecond or two. One that does not answer in time is not waited for; without any answer no
cell is divided or joined this time.
"""

from __future__ import annotations

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.adjust.cell_sample import CellStatistics, statistics
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import U32
from ps2stream.protocol.messages.loads import SampleReport, SampleRequest
from ps2stream.space.grid import Grid

FRESH = 1
"""Periods for which a sample is used after the one at whose end it was requested."""


class HotCells:
    """The requests of the controller in its incarnation `epoch`, and the last sample."""

    def __init__(self, epoch: int, dispatchers: int, wait_ticks: int) -> None:
        self._epoch, self._dispatchers, self._wait_ticks = epoch, dispatchers, wait_ticks
        self._request = (0, 0, 0)  # period, tick, route
        self._waiting, self._asked = False, dispatchers
        self._reports: dict[int, SampleReport] = {}
        self._found: CellStatistics | None = None

    def ask(self, cell: U32, number: int, ticks: int, route: int) -> list[Send]:
        """Requests a sample at the end of the period `number`, under the plan of this route."""
        self._request = number, ticks, route
        self._waiting = True
        self._reports, self._found = {}, None
        self._asked = self._dispatchers
        request = SampleRequest(self._epoch, number, cell)
        return [Send(Address("dispatcher", i), request) for i in range(self._dispatchers)]

    def take(self, report: SampleReport) -> bool:
        """Takes a report; returns whether it was the last one that is waited for. A report that is
        late, by another plan, or of a request of a former incarnation is ignored."""
        number, _, route = self._request
        is_answer = (self._epoch, number, route) == (report.epoch, report.number, report.route)
        if not self._waiting or not is_answer or report.dispatcher >= self._asked:
            return False
        self._reports[report.dispatcher] = report
        self._waiting = len(self._reports) < self._asked
        self._dispatchers = report.dispatchers or self._dispatchers  # for the next request
        return not self._waiting

    def late(self, ticks: int) -> bool:
        """Stops waiting for reports if it is time; returns whether it did."""
        if not self._waiting or ticks < self._request[1] + self._wait_ticks:
            return False
        self._waiting = False
        return True

    def statistics(
        self, number: int, route: int, grid: Grid, to: Analysis
    ) -> CellStatistics | None:
        """Returns the statistics of the sample, if it is not older than a period and under this
        plan; `to` is that plan's analysis. None without objects that meet queries."""
        if self._waiting or route != self._request[2] or number > self._request[0] + FRESH:
            return None
        if self._reports:
            self._found = statistics(list(self._reports.values()), grid, Analyzer(to))
            self._reports = {}
        return self._found
