"""One order: the LSNs of the answers agree with real time.

The service claims a total order, by LSNs; real time is a partial one: a call that ended before
another began precedes it. A cycle in both of them together is always a pair of calls, of which the
later one has the lower LSN, because both orders are intervals on a line. So a sweep finds all.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tests.history.reading import History, Operation
from tests.history.verdict import Verdict


class Done(NamedTuple):
    """An operation that was answered. `begun`: when it may have been done at the earliest."""

    operation: Operation
    value: int
    begun: int
    ended: int


class Floors:
    """The highest value that was answered before a moment, and of which operation."""

    def __init__(self, answered: Iterable[Done], skew_ns: int) -> None:
        self._skew_ns = skew_ns
        self._times: list[int] = []
        self._best: list[Done] = []
        for each in sorted(answered, key=lambda each: each.ended):
            if not self._best or each.value > self._best[-1].value:
                self._times.append(each.ended)
                self._best.append(each)

    def find(self, begun: int) -> Done | None:
        i = bisect_left(self._times, begun - self._skew_ns)
        return self._best[i - 1] if i else None

    def at(self, begun: int) -> int:
        """-1 where nothing was answered."""
        found = self.find(begun)
        return -1 if found is None else found.value


class _Rule(NamedTuple):
    """Whatever begins after one of `earlier` was answered has a value above its, or the same where
    that `may_equal` it."""

    earlier: Sequence[Done]
    later: Sequence[Done]
    may_equal: bool
    what: str


def lsn_of(operation: Operation) -> int:
    lsn: int = operation.result["lsn"]
    return lsn


def update_floors(history: History) -> Floors:
    """The LSNs of updates that anyone had been told."""
    return Floors(_find_updates(history), history.skew_ns)


def judge_order(history: History, verdict: Verdict) -> None:
    """Of updates and publications that were answered."""
    updates = _find_updates(history)
    _judge_places(updates, verdict)
    publications = _find_done(history, lsn_of)
    offsets = _find_done(history, lambda each: int(each.result["offset"]))
    rules = [
        _Rule(updates, updates, False, "LSN"),
        _Rule(updates, publications, True, "LSN"),
        _Rule(publications, updates, False, "LSN"),
    ]
    for partition in {each.operation.result["partition"] for each in publications}:
        for values, may_equal, what in ((offsets, False, "offset"), (publications, True, "LSN")):
            of = [e for e in values if e.operation.result["partition"] == partition]
            rules.append(_Rule(of, of, may_equal, what))
    for rule in rules:
        _sweep(rule, history.skew_ns, verdict)
    for operation in history.of("insert", "delete", "publish"):
        _judge_repeats(operation, verdict)


def _find_done(history: History, value: Callable[[Operation], int]) -> list[Done]:
    known = (each for each in history.of("publish") if each.is_known)
    return [Done(each, value(each), each.begun, each.ended) for each in known]


def _find_updates(history: History) -> list[Done]:
    """The updates that were answered. An insert of the query that lives under its id is answered
    with the LSN of the first insert, which perhaps was not answered itself."""
    inserts: dict[str, list[Operation]] = defaultdict(list)
    for each in history.of("insert"):
        inserts[_read_body(each)].append(each)
    found = []
    for each in history.of("insert", "delete"):
        if each.is_known:
            same = inserts[_read_body(each)] if each.call == "insert" else []
            first = [
                other.begun
                for other in same
                if other.is_doubtful or (other.is_known and lsn_of(other) == lsn_of(each))
            ]
            found.append(Done(each, lsn_of(each), min([each.begun, *first]), each.ended))
    return found


def _read_body(operation: Operation) -> str:
    names = ("id", "session", "expression", "region", "retro")
    return json.dumps([operation.args[name] for name in names])


def _sweep(rule: _Rule, skew_ns: int, verdict: Verdict) -> None:
    floors = Floors(rule.earlier, skew_ns)
    for each in rule.later:
        before = floors.find(each.begun)
        if before is None or each.value > before.value:
            continue
        if each.value < before.value or not rule.may_equal:
            verdict.report(
                "backwards",
                f"the second began after the first was answered, but its {rule.what} is "
                f"{each.value}, and that of the first is {before.value}",
                before.operation,
                each.operation,
            )


def _judge_places(updates: Sequence[Done], verdict: Verdict) -> None:
    by_lsn: dict[int, Operation] = {}
    for each in updates:
        other = by_lsn.setdefault(each.value, each.operation)
        calls = {other.call, each.operation.call}
        if other is not each.operation and (
            calls != {"insert"} or _read_body(other) != _read_body(each.operation)
        ):
            verdict.report("misplaced", "two updates have one LSN", other, each.operation)


def _judge_repeats(operation: Operation, verdict: Verdict) -> None:
    """Calls of one operation have one effect, so that their answers agree."""
    results = [each.result for each in operation.attempts if each.outcome == "ok"]
    for other in results[1:]:
        if other != results[0]:
            verdict.report("twice", f"repeats were answered {results[0]} and {other}", operation)
