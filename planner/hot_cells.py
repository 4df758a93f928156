"""A sample of a few hot cells: asked of the dispatchers, and what their answers say.

Asked at the end of a period in which some part is too hot to move whole, which is seldom, and
of those cells alone: a dispatcher answers with at most a thousand objects, in a millisecond or
two. Who has not answered after a while is not waited for; without any answer no cell is
divided or joined this time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ps2stream.batch import U32, column_to_strings
from ps2stream.grid import Grid
from ps2stream.load_messages import SampleReport, SampleRequest
from ps2stream.messages import Address, Send
from ps2stream.plan import TOP_TERM, hash_units
from ps2stream.planner.counting import POSTINGS, find
from ps2stream.planner.hits import Hits
from ps2stream.planner.recent import copies
from ps2stream.planner.sample import assemble, ordered, posts, units_of
from ps2stream.planner.statistics import CellTable, Statistics
from ps2stream.terms import Analysis, Analyzer

FRESH = 1
"""Periods for which a sample is used after the one at whose end it was asked for."""


class HotCells:
    """The questions of the controller in its incarnation `epoch`, and the last sample."""

    def __init__(self, epoch: int, dispatchers: int, wait_ticks: int) -> None:
        self._epoch, self._dispatchers, self._wait = epoch, dispatchers, wait_ticks
        self._asked = (0, 0, 0)  # period, tick, route
        self._waiting = False
        self._reports: dict[int, SampleReport] = {}
        self._found: Statistics | None = None

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

    def statistics(self, number: int, route: int, grid: Grid, to: Analysis) -> Statistics | None:
        """What was told, if it is not older than a period and under this plan; `to` that
        plan's. None without objects that meet queries."""
        if self._waiting or route != self._asked[2] or number > self._asked[0] + FRESH:
            return None
        if self._reports:
            self._found = statistics(list(self._reports.values()), grid, Analyzer(to))
            self._reports = {}
        return self._found


def statistics(
    reports: Sequence[SampleReport], grid: Grid, analyzer: Analyzer, seed: int = 0
) -> Statistics | None:
    """The objects that several dispatchers told of in the time that all of them cover, each
    dispatcher's in proportion to what it accepted; and the queries under the terms that these
    have. Terms that none of them has are not known by name. None where nothing is left."""
    since = max(report.since for report in reports)
    lon, lat, weight, accepted = (
        np.concatenate([getattr(r, name) for r in reports])
        for name in ("lon", "lat", "weight", "accepted")
    )
    text = [t for r in reports for t in column_to_strings(r.text_off, r.text)]
    rows = np.flatnonzero(accepted >= since)
    rows = np.repeat(rows, copies(weight[rows], seed))
    told = [text[row] for row in rows.tolist()]
    # Lines are apart, so that the tokens of the whole are those of its lines.
    words = [TOP_TERM, *analyzer.tokens("\n".join(told))]
    hashes = hash_units(analyzer, words)
    order = np.argsort(hashes)
    cell, term, queries = (
        np.concatenate([getattr(r, name) for r in reports]) for name in ("cell", "term", "queries")
    )
    at, known = find(hashes[order], term)
    # All dispatchers know all queries; one may be a moment ahead.
    count: dict[tuple[int, str], int] = {}
    for unit in np.flatnonzero(known).tolist():
        count[int(cell[unit]), words[order[at[unit]]]] = int(queries[unit])
    if not told or not count:
        return None
    none = np.zeros(len(count), np.int64)
    columns = [*map(list, zip(*count, strict=True)), list(count.values()), none, none]
    postings = ordered(pa.table(columns, schema=POSTINGS))
    hits = Hits(units_of(postings, analyzer), analyzer, grid)
    hits.add(posts(lon[rows], lat[rows], told))
    held = np.flatnonzero(hits.cells)
    cells = CellTable(held, hits.cells[held].astype(np.float64))
    numbers = {"live": 0, "inserts": 0, "deletes": 0}
    return assemble(grid, {}, numbers, postings, cells, hits.units, hits.signatures()).stats
