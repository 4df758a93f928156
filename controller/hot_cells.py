"""A sample of a few hot cells: asked of the dispatchers, and what their answers say.

Asked at the end of a period in which some part is too hot to move whole, which is seldom, and
of those cells alone: a dispatcher answers with at most a thousand objects, in a millisecond or
two. Who has not answered after a while is not waited for; without any answer no cell is
divided or joined this time.
"""

from __future__ import annotations

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.adjust.cell_sample import CellStatistics, statistics
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import U32
from ps2stream.protocol.messages.loads import SampleReport, SampleRequest
from ps2stream.space.grid import Grid

FRESH = 1
"""Periods for which a sample is used after the one at whose end it was asked for."""


class HotCells:
    """The questions of the controller in its incarnation `epoch`, and the last sample."""

    def __init__(self, epoch: int, dispatchers: int, wait_ticks: int) -> None:
        self._epoch, self._dispatchers, self._wait = epoch, dispatchers, wait_ticks
        self._asked = (0, 0, 0)  # period, tick, route
        self._waiting = False
        self._reports: dict[int, SampleReport] = {}
        self._found: CellStatistics | None = None

    def ask(self, cell: U32, number: int, ticks: int, route: int) -> list[Send]:
        """At the end of the period `number`, under the plan that `route` names."""
        self._asked = number, ticks, route
        self._waiting = True
        self._reports, self._found = {}, None
        request = SampleRequest(self._epoch, number, cell)
        return [Send(Address("dispatcher", i), request) for i in range(self._dispatchers)]

    def take(self, report: SampleReport) -> bool:
        """Whether that was the last one that is waited for. One that is late, of a question
        of a former incarnation or by another plan is ignored."""
        number, _, route = self._asked
        asked = (self._epoch, number, route) == (report.epoch, report.number, report.route)
        if not self._waiting or not asked or report.dispatcher >= self._dispatchers:
            return False
        self._reports[report.dispatcher] = report
        self._waiting = len(self._reports) < self._dispatchers
        return not self._waiting

    def late(self, ticks: int) -> bool:
        """Whether it is now that nobody is waited for any more."""
        if not self._waiting or ticks < self._asked[1] + self._wait:
            return False
        self._waiting = False
        return True

    def statistics(
        self, number: int, route: int, grid: Grid, to: Analysis
    ) -> CellStatistics | None:
        """What was told, if it is not older than a period and under this plan; `to` that
        plan's. None without objects that meet queries."""
        if self._waiting or route != self._asked[2] or number > self._asked[0] + FRESH:
            return None
        if self._reports:
            self._found = statistics(list(self._reports.values()), grid, Analyzer(to))
            self._reports = {}
        return self._found
