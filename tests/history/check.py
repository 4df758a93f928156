"""Decides from a history alone whether the promises were kept.

Elle (Kingsbury and Alvaro, VLDB 2020) infers the order of transactions from what they read, and
shows a cycle as proof of an anomaly. Here the service itself says its order: updates and objects
have LSNs, matches the handles of their queries, sessions and logs numbers. So the checker infers
what a client was not told from what another one received, compares the claimed order with real
time, and brute force with what came.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests import naive
from tests.history.contents import judge_contents
from tests.history.matching import Key, Matching, Objects
from tests.history.order import judge_order
from tests.history.reading import History, read
from tests.history.sessions import Session, find_sessions, judge_doubles
from tests.history.verdict import Verdict
from tests.history.versions import Versions


def check(paths: Sequence[Path]) -> Verdict:
    """The verdict of a history in one or more files. Raises HistoryError, and OSError."""
    return judge(read(paths))


def judge(history: History) -> Verdict:
    verdict = Verdict()
    if not history.is_settled:
        verdict.report("unsettled", "the last line of a file is not that it has settled")
    for problem in history.problems:
        verdict.report("unexpected", problem)
    verdict.figures["operations"] = len(history.operations)
    verdict.figures["lines"] = history.lines
    verdict.figures["updates"] = sum(each.is_known for each in history.of("insert", "delete"))
    verdict.figures["reads"] = sum(each.is_known for each in history.of("get"))
    judge_order(history, verdict)
    sessions = find_sessions(history, verdict)
    judge_doubles(sessions, verdict)
    objects = Objects(history, verdict)
    judge_contents(history, objects, verdict)
    _match(history, sessions, objects, verdict).judge(verdict)
    return verdict


def find_due(history: History) -> dict[str, set[Key]]:
    """By session: the matches that must come, by what is known by now."""
    scratch = Verdict()
    sessions = find_sessions(history, scratch)
    return _match(history, sessions, Objects(history, scratch), scratch).due


def _match(
    history: History, sessions: dict[str, Session], objects: Objects, verdict: Verdict
) -> Matching:
    delivered: dict[Key, list[tuple[naive.Obj, int | None]]] = defaultdict(list)
    for session in sessions.values():
        for pair in session.pairs.values():
            if pair.object in objects.by_id:
                obj = objects.by_id[pair.object][2]
                delivered[pair.handle, pair.query].append((obj, objects.lsn(pair.object)))
    return Matching(history, sessions, objects, Versions(history, delivered, verdict))
