"""Brute force: the matches that must have come, those that may have, and the rest, which are
false."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from tests import naive
from tests.history.order import lsn_of, update_floors
from tests.history.reading import History, HistoryError, Operation, Pair, object_of
from tests.history.sessions import Session, find_delivered
from tests.history.verdict import SHOWN, Verdict
from tests.history.versions import Version, Versions

Key = tuple[int, str]
"""The handle of a query and the id of an object."""
DOUBT_MS = 3_600_000
"""So much the service's clock may differ from the history's where the end of an object is near."""


class Objects:
    """Those of all publications, by their ids, which no two of them share."""

    def __init__(self, history: History, verdict: Verdict) -> None:
        self.by_id: dict[str, tuple[Operation, int, naive.Obj]] = {}
        places: dict[tuple[int, int], Operation] = {}
        for operation in history.of("publish"):
            rows = operation.args["objects"]
            for i, row in enumerate(rows):
                if row[0] in self.by_id:
                    raise HistoryError(f"{operation}: object {row[0]} was published before")
                self.by_id[row[0]] = operation, i, object_of(row)
            if not operation.is_known:
                outcome = "refused" if operation.is_refused else "unknown"
                verdict.figures[outcome] += len(rows)
                continue
            verdict.figures["published"] += len(rows)
            result = operation.result
            if result["accepted"] != len(rows):
                verdict.report("forgotten", f"{result['accepted']} were accepted", operation)
            for i in range(len(rows)):
                place = result["partition"], result["offset"] + i
                other = places.setdefault(place, operation)
                if other is not operation:
                    verdict.report("misplaced", f"two objects at {place}", other, operation)

    def lsn(self, name: str) -> int | None:
        """None where it is not known, or nobody published it."""
        operation = self.by_id[name][0] if name in self.by_id else None
        return lsn_of(operation) if operation is not None and operation.is_known else None

    def place(self, name: str) -> tuple[int, int] | None:
        operation, i, _ = self.by_id[name]
        if not operation.is_known:
            return None
        return operation.result["partition"], operation.result["offset"] + i


class Withdrawals:
    """Whether an object was withdrawn when a query with retro came."""

    def __init__(self, history: History) -> None:
        self._by_object: dict[str, list[Operation]] = defaultdict(list)
        self._skew_ns = history.skew_ns
        for operation in history.of("withdraw"):
            if not operation.is_refused:
                for name in operation.args["ids"]:
                    self._by_object[name].append(operation)

    def is_certain(self, name: str, publication: Operation, insert: Operation) -> bool:
        return any(
            publication.ended + self._skew_ns < each.begun
            and each.ended + self._skew_ns < insert.begun
            for each in self._by_object[name]
        )

    def is_possible(self, name: str, publication: Operation) -> bool:
        """Those that ended before the publication began do not concern it."""
        return any(
            each.ended + self._skew_ns >= publication.begun for each in self._by_object[name]
        )


class Matching:
    """Judges the pairs of all sessions."""

    def __init__(
        self, history: History, sessions: dict[str, Session], objects: Objects, versions: Versions
    ) -> None:
        self._history = history
        self._sessions = sessions
        self._objects = objects
        self._versions = versions
        self._withdrawals = Withdrawals(history)
        self.due: dict[str, set[Key]] = {name: set() for name in sessions}
        self._may: dict[str, set[Key]] = {name: set() for name in sessions}
        self.retro = self.withdrawn = 0
        for version, name, is_certain in (*self._find_live(), *self._find_retro()):
            found = self.due if is_certain else self._may
            found[version.query.session].add((version.start, name))

    def _find_live(self) -> Iterator[tuple[Version, str, bool]]:
        """The matches of queries that were live at an object's LSN, which is known, and whether
        they must come."""
        versions = sorted(self._versions.by_handle.values(), key=lambda each: each.start)
        versions = [each for each in versions if each.query.session in self._sessions]
        known = [each for each in self._history.of("publish") if each.is_known]
        live: list[Version] = []
        at = 0
        for operation in sorted(known, key=lsn_of):
            lsn = lsn_of(operation)
            while at < len(versions) and versions[at].start <= lsn:
                live.append(versions[at])
                at += 1
            live = [each for each in live if lsn < each.end]
            is_kept = operation.args["level"] == "durable"
            for row in operation.args["objects"]:
                obj = object_of(row)
                for version in live:
                    if naive.matches(version.query, obj):
                        yield version, row[0], is_kept and lsn <= version.sure

    def _find_retro(self) -> Iterator[tuple[Version, str, bool]]:
        """The same of queries with retro, and objects of before."""
        valid = [each for each in self._objects.by_id.items() if each[1][2].until]
        satisfied = cache(naive.satisfied)  # many share a text

        def match_plain(query: naive.Query, obj: naive.Obj) -> bool:
            inside = naive.inside(query.region, obj.lon, obj.lat)
            return inside and satisfied(query.expression, obj.text)

        for version in self._versions.by_handle.values():
            query = version.query
            if not query.retro or query.session not in self._sessions:
                continue
            for name, (operation, _, obj) in valid:
                lsn = self._objects.lsn(name)
                if lsn is None or lsn >= version.start:
                    continue
                is_match = naive.matches if obj.attributes else match_plain
                if not is_match(query, obj):
                    continue
                if self._withdrawals.is_certain(name, operation, version.operation):
                    self.withdrawn += 1
                    continue
                self.retro += 1
                begun_ms, ended_ms = self._history.wall_ms
                if obj.until < begun_ms - DOUBT_MS:
                    continue
                is_sure = obj.until > ended_ms + DOUBT_MS
                is_sure &= not self._withdrawals.is_possible(name, operation)
                yield version, name, is_sure and operation.args["level"] == "durable"

    def judge(self, verdict: Verdict) -> None:
        verdict.figures["retro"] = self.retro
        verdict.figures["withdrawn"] = self.withdrawn
        unknown: dict[int, list[Version]] = defaultdict(list)
        for session, pairs in find_delivered(self._sessions).items():
            verdict.figures["expected"] += len(self.due[session])
            verdict.figures["delivered"] += len(pairs)
            for key, pair in pairs.items():
                if key in self.due[session] or key in self._may[session]:
                    self._judge_place(session, pair, verdict)
                else:
                    self._judge_other(session, pair, unknown, verdict)
            self._judge_lost(session, pairs, verdict)
        self._judge_unknown(unknown, verdict)

    def _judge_lost(self, session: str, pairs: dict[Key, Pair], verdict: Verdict) -> None:
        lost = sorted(self.due[session] - pairs.keys())
        if not self._history.is_settled or len(lost) <= self._sessions[session].room:
            return
        for handle, name in lost[:SHOWN]:
            version, operation = self._versions.by_handle[handle], self._objects.by_id[name][0]
            why = f"{session}: {name} at LSN {self._objects.lsn(name)} meets {version.query}"
            verdict.report("lost", why, version.operation, operation, count=0)
        verdict.anomalies["lost"] += len(lost)

    def _judge_place(self, session: str, pair: Pair, verdict: Verdict) -> None:
        place = self._objects.place(pair.object)
        if place is not None and place != pair.place:
            operation = self._objects.by_id[pair.object][0]
            verdict.report("misplaced", f"{session}: {pair}", operation)
        self._judge_order(session, pair, verdict)

    def _judge_order(self, session: str, pair: Pair, verdict: Verdict) -> None:
        """Also where the LSNs say otherwise."""
        version, operation = (
            self._versions.by_handle[pair.handle], self._objects.by_id[pair.object][0]
        )  # fmt: skip
        ender = version.ender
        if ender is not None and ender.ended + self._history.skew_ns < operation.begun:
            verdict.report("after_delete", f"{session}: {pair}", ender, operation)

    def _judge_other(
        self, session: str, pair: Pair, unknown: dict[int, list[Version]], verdict: Verdict
    ) -> None:
        """A pair that is not known to be right."""
        version = self._versions.by_handle.get(pair.handle)
        if pair.object not in self._objects.by_id:
            verdict.report("false", f"{session}: nobody published the object of {pair}")
            return
        operation, _, obj = self._objects.by_id[pair.object]
        if version is None or version.query.id != pair.query or version.query.session != session:
            verdict.report("false", f"{session}: nobody inserted the query of {pair}", operation)
        elif not naive.matches(version.query, obj):
            why = f"{session}: {pair} is none: {version.query}, {obj}"
            verdict.report("false", why, version.operation, operation)
        elif operation.is_refused:
            verdict.report("false", f"{session}: the object of {pair} was refused", operation)
        elif not operation.is_known:
            if not (version.query.retro and obj.until):
                unknown[id(operation)].append(version)
            self._judge_order(session, pair, verdict)
        elif version.ender is not None and version.ender.ended < operation.begun:
            self._judge_order(session, pair, verdict)
        else:
            why = f"{session}: {pair} was not live at LSN {lsn_of(operation)}, or was withdrawn"
            verdict.report("false", why, version.operation, operation)

    def _judge_unknown(self, found: dict[int, list[Version]], verdict: Verdict) -> None:
        """A publication that was not answered has one LSN, at which all its matches were live, and
        which is not below those that anyone had been told before it began."""
        floors = update_floors(self._history)
        publications = {id(each): each for each in self._history.of("publish")}
        for key, versions in found.items():
            operation = publications[key]
            before = floors.find(operation.begun)
            floor = -1 if before is None else before.value
            start = max((each.start for each in versions), default=0)
            end = min(versions, key=lambda each: each.end)
            if max(start, floor) >= end.end:
                events = [each.operation for each in versions if each.start == start]
                events += [] if end.ender is None else [end.ender]
                events += [] if before is None else [before.operation]
                verdict.report(
                    "false", "an object was matched as of no single LSN", operation, *events
                )
