"""What the dispatchers report of hot units, and when the controller acts on it (algorithms.md 6.3).

Reports are requested twice a second and combined into the shares of the whole stream. The plan is
changed when two in a row say that a worker has too much, and a unit is replicated no longer when it
was cool for long. Under a stationary stream the plan therefore changes once, if at all. Nothing is
done while publications wait for something else than a worker (`is_held`).
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence

import numpy as np

from ps2stream.planner.adjust.replicate import (
    HotUnit,
    ReplicationRules,
    StreamShares,
    UnitKey,
    discount_shards,
    is_held,
    is_unbalanced,
    list_cool_units,
    replicate,
)
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.loads import NO_CELL, HotUnitsReport, HotUnitsRequest
from ps2stream.routing.plan import RoutingPlan

REPORT_TICKS = 5
RECENT = 8
"""Reports that are taken together where one alone is no proof."""
CONFIRMED = 2
"""Reports in a row that must show an imbalance."""


class HotUnitWatch:
    """The requests of the controller in its incarnation `epoch`, and what follows from the
    answers. acts: whether units are replicated, or it only says whether plan changes would pay."""

    def __init__(
        self, epoch: int, dispatchers: int, rules: ReplicationRules, acts: bool = True
    ) -> None:
        self.rules = rules
        self.held = False  # no plan change would pay now
        self._acts = acts
        self.balance = 0.0  # most over mean of the workers' loads, as last reported
        self.shares: dict[UnitKey, float] = {}  # of the hot units, as last reported
        self._epoch, self._dispatchers = epoch, dispatchers
        self._asked = dispatchers
        self._number = 0
        self._reports: dict[int, HotUnitsReport] = {}
        self._imbalances = 0  # in a row
        self._recent: deque[StreamShares] = deque(maxlen=RECENT)
        self._cool_for: dict[UnitKey, int] = {}  # reports in a row

    def request(self) -> list[Send]:
        """Requests a report of every dispatcher."""
        self._number += 1
        self._asked = self._dispatchers
        self._reports.clear()
        weigh = int(self._imbalances > 0)  # the plan may change by the next reports
        request = HotUnitsRequest(self._epoch, self._number, weigh)
        return [Send(Address("dispatcher", i), request) for i in range(self._dispatchers)]

    def take(self, report: HotUnitsReport) -> bool:
        """Takes a report; returns whether it was the last one that is waited for."""
        if (report.epoch, report.number) != (self._epoch, self._number):
            return False
        self._reports[report.dispatcher] = report
        whole = len(self._reports) == self._asked
        self._dispatchers = report.dispatchers or self._dispatchers  # for the next request
        return whole

    def forget(self) -> None:
        """Begins anew, as after a change of the plan."""
        self._imbalances = 0
        self._recent.clear()
        self._cool_for.clear()
        self._reports.clear()
        self.shares = {}
        self.held = False

    def propose(self, plan: RoutingPlan, route: int) -> RoutingPlan | None:
        """Returns the plan that the last reports require; None if none, or if a report is of
        another plan than that of this route."""
        reports = list(self._reports.values())
        self._reports.clear()
        if any(report.route != route for report in reports):
            return None
        stream = combine_reports(reports, plan.workers)
        if stream is None:
            self._imbalances = 0  # those of a stream that paused are not in a row
            return None
        stream = discount_shards(plan, stream)
        if not plan.replicas:  # what batches bring is what the stream brings
            stream = dataclasses.replace(stream, scatter=None)
        self._recent.append(stream)
        self.shares = stream.unit_shares
        if self.rules.aim < stream.balance and not is_unbalanced(stream, self.rules):
            stream = join_streams(self._recent)  # it takes longer to be sure of a small imbalance
        self.balance = stream.balance
        was_crowded = any(recent.crowded for recent in self._recent)
        self.held = is_held(dataclasses.replace(stream, crowded=was_crowded), self.rules)
        over = is_unbalanced(stream, self.rules)
        acts = self._acts and not self.held
        self._imbalances = self._imbalances + 1 if over and acts else 0
        cool = self._list_cooled(plan, stream)
        if not acts or (self._imbalances < CONFIRMED and not cool):
            return None
        self._imbalances = 0
        return replicate(plan, stream, self.rules, cool)

    def _list_cooled(self, plan: RoutingPlan, stream: StreamShares) -> set[UnitKey]:
        """Returns the replicated units that have been cool for long."""
        now = list_cool_units(plan, stream, self.rules)
        self._cool_for = {unit: self._cool_for.get(unit, 0) + 1 for unit in now}
        enough = self.rules.cool_s * 10 / REPORT_TICKS
        return {unit for unit, reports in self._cool_for.items() if reports >= enough}


def join_streams(recent: Sequence[StreamShares]) -> StreamShares:
    """Returns what was sent in several moments together, with the units of the last."""
    objects = sum(stream.objects for stream in recent)
    sent = sum((stream.sent * stream.objects for stream in recent), np.zeros(1)) / objects
    scatters = [(s.scatter, s.objects) for s in recent if s.scatter is not None]
    square = sum(((scatter * n) ** 2 for scatter, n in scatters), np.zeros(len(sent)))
    scatter = np.sqrt(square) / objects
    return dataclasses.replace(recent[-1], sent=sent, objects=objects, scatter=scatter)


def combine_reports(reports: Sequence[HotUnitsReport], workers: int) -> StreamShares | None:
    """Returns what several dispatchers saw as one stream; None without objects. Shares count by
    the objects that a dispatcher routed."""
    objects = sum(report.objects for report in reports)
    if not objects:
        return None
    sent, busy, variance = np.zeros(workers), np.zeros(workers), np.zeros(workers)
    share: dict[tuple[int | None, str | None, int], float] = {}
    postings: dict[tuple[int | None, str | None], float] = {}
    rate = updates = 0.0
    for report in reports:
        n = min(workers, len(report.sent))
        sent[:n] += report.sent[:n] / objects
        busy[:n] += report.busy[:n] / (max(report.ms, 1) * 1000)
        variance[:n] += report.scatter[:n]
        rate += report.objects * 1000 / max(report.ms, 1)
        updates = max(updates, report.updates * 1000 / max(report.ms, 1))  # all have the same
        weights = report.postings / max(report.stored, 1)
        units = _list_units(report) if report.objects else []
        for (key, part), weight in zip(units, weights.tolist(), strict=False):
            share[key] = share.get(key, 0.0) + part * report.objects / objects
            postings[key[:2]] = max(postings.get(key[:2], 0.0), weight)
    found = [
        HotUnit(cell, term, part, owner, postings[cell, term])
        for (cell, term, owner), part in share.items()
    ]
    found.sort(key=lambda unit: -unit.share)
    crowded = any(report.crowded for report in reports)
    scatter = np.sqrt(variance) / objects
    most = float(busy.max(initial=0.0))
    return StreamShares(tuple(found), sent, objects, rate, updates, scatter, most, crowded)


def _list_units(
    report: HotUnitsReport,
) -> list[tuple[tuple[int | None, str | None, int], float]]:
    """Returns (cell, word, owner) and the share of each unit of a report."""
    found: list[tuple[tuple[int | None, str | None, int], float]] = []
    off = report.term_off.tolist()
    raw = report.term.tobytes()
    rows = zip(report.cell.tolist(), report.owner.tolist(), report.share.tolist(), strict=True)
    for i, (cell, owner, share) in enumerate(rows):
        if cell == NO_CELL:
            found.append(((None, raw[off[i] : off[i + 1]].decode(), owner), share))
        else:
            found.append(((cell, None, 0), share))
    return found
