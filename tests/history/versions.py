"""The lives of queries: from which LSN to which one each was live, as the history proves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests import naive
from tests.history.order import lsn_of, update_floors
from tests.history.reading import NEVER, History, Operation, query_of
from tests.history.verdict import Verdict


@dataclass
class Version:
    """A query from `start`, its handle, to `end`, without it; up to `sure`, with it, no update of
    unknown outcome can have ended it. `ender`: what did."""

    query: naive.Query
    operation: Operation
    start: int
    end: int = NEVER
    sure: int = NEVER
    ender: Operation | None = None

    def is_live(self, lsn: int) -> bool:
        return self.start <= lsn < self.end


Delivered = Mapping[tuple[int, str], Sequence[tuple[naive.Obj, int | None]]]
"""By handle and query id: the objects that came for it, with their LSNs where they are known."""


class Versions:
    """By handle. An insert that nobody was told of has one if a match or a read names it."""

    def __init__(self, history: History, delivered: Delivered, verdict: Verdict) -> None:
        self.by_handle: dict[int, Version] = {}
        self._delivered = delivered
        self._verdict = verdict
        self._skew_ns = history.skew_ns
        self._floors = update_floors(history)
        self._by_id: dict[str, list[Version]] = defaultdict(list)
        self._inserts: dict[str, list[Operation]] = defaultdict(list)
        self._unknown: dict[str, list[Operation]] = defaultdict(list)
        self._deletes: dict[str, list[Operation]] = defaultdict(list)
        for operation in history.of("insert", "delete"):
            self._add(operation)
        gets = history.of("get")
        self._learn_from_matches()
        self._learn_from_reads(gets)
        for name, versions in self._by_id.items():
            versions.sort(key=lambda each: each.start)
            self._end(name, versions)
        for operation in history.of("delete"):
            if any(each.result.get("code") == "NOT_FOUND" for each in operation.attempts):
                self._judge_absence(operation, "forgotten")
        self._judge_reads(gets)

    def _add(self, operation: Operation) -> None:
        name = operation.args["id"]
        if operation.call == "insert":
            self._inserts[name].append(operation)
        if not operation.is_known:
            if not operation.is_refused:
                self._unknown[name].append(operation)
        elif operation.call == "delete":
            self._deletes[name].append(operation)
        else:
            self._start(lsn_of(operation), operation)

    def _start(self, handle: int, operation: Operation) -> None:
        if handle not in self.by_handle:  # else it is the same query once more, or misplaced
            version = Version(query_of(operation), operation, handle)
            self.by_handle[handle] = version
            self._by_id[version.query.id].append(version)

    # --- inserts that were not answered --------------------------------------------------

    def _learn_from_matches(self) -> None:
        for (handle, name), objects in sorted(self._delivered.items()):
            for operation in self._candidates(handle, name):
                if all(naive.matches(query_of(operation), obj) for obj, _ in objects):
                    self._learn(handle, operation)
                    break

    def _learn_from_reads(self, gets: Sequence[Operation]) -> None:
        for read in gets:
            handle = read.result.get("lsn", 0)
            for operation in self._candidates(handle, read.args["id"]) if handle else ():
                if _is_same(read, operation):
                    self._learn(handle, operation)
                    break

    def _candidates(self, handle: int, name: str) -> list[Operation]:
        """The inserts that may have this handle: those that were not answered, and those that were
        asked for again, when what the first call had inserted was perhaps deleted."""
        if handle in self.by_handle:
            return []
        doubtful = [each for each in self._inserts[name] if each.is_doubtful]
        return [each for each in doubtful if self._floors.at(each.begun) < handle]

    def _learn(self, handle: int, operation: Operation) -> None:
        if not operation.is_known:
            self._unknown[operation.args["id"]].remove(operation)
        self._start(handle, operation)

    # --- ends ----------------------------------------------------------------------------

    def _end(self, name: str, versions: list[Version]) -> None:
        enders = [(lsn_of(each), each) for each in self._deletes[name]]
        enders += [(each.start, each.operation) for each in versions]
        enders.sort(key=lambda each: each[0])
        for version in versions:
            for lsn, operation in enders:
                if lsn > version.start:
                    version.end, version.ender = lsn, operation
                    break
            seen = self._delivered.get((version.start, name), ())
            came = max((lsn for _, lsn in seen if lsn is not None), default=0)
            doubts = self._list_doubts(version)
            sure = [max(self._floors.at(each.begun), version.start, came) for each in doubts]
            version.sure = min(sure, default=NEVER)
            self._judge_end(version, doubts)

    def _list_doubts(self, version: Version) -> list[Operation]:
        """Updates that may have ended it, though nobody knows."""
        return [
            each
            for each in self._unknown[version.query.id]
            if (each.call == "delete" or each.args["replace"])
            and self._floors.at(each.begun) < version.end
        ]

    def _judge_end(self, version: Version, doubts: list[Operation]) -> None:
        """An id is free again only once its query is deleted."""
        ender = version.ender
        if ender is None or ender.call == "delete" or ender.args["replace"] or doubts:
            return
        self._verdict.report(
            "forgotten",
            "the id was given to another query, although nobody deleted the first",
            version.operation,
            ender,
        )

    # --- reads ---------------------------------------------------------------------------

    def _judge_reads(self, gets: Sequence[Operation]) -> None:
        for read in gets:
            if not read.is_known:
                continue
            handle = read.result.get("lsn")
            if handle is None:
                self._judge_absence(read, "stale")
            else:
                self._judge_presence(read, handle)
        self._judge_succession([each for each in gets if each.result.get("lsn")])

    def _judge_absence(self, call: Operation, kind: str) -> None:
        """The call was answered that there is no such query."""
        last = max(each.ended for each in call.attempts) + self._skew_ns
        name = call.args["id"]
        for version in self._by_id[name]:
            others = [*self._unknown[name], *self._deletes[name]]
            others += [each.operation for each in self._by_id[name] if each is not version]
            inserted = version.operation.ended + self._skew_ns < call.begun
            if inserted and not any(
                each is not call and each.ended > version.operation.begun and each.begun < last
                for each in others
            ):
                self._verdict.report(
                    kind, "the query is live, but was said not to be", version.operation, call
                )

    def _judge_presence(self, read: Operation, handle: int) -> None:
        version = self.by_handle.get(handle)
        if version is None or not _is_same(read, version.operation):
            events = () if version is None else (version.operation,)
            self._verdict.report("altered", "nobody inserted what was read", *events, read)
        elif version.ender is not None and version.ender.ended + self._skew_ns < read.begun:
            self._verdict.report(
                "stale", "the query had ended before it was read", version.ender, read
            )

    def _judge_succession(self, reads: Sequence[Operation]) -> None:
        """What one read has told, a later one does not take back."""
        highest: dict[str, list[Operation]] = defaultdict(list)
        for read in reads:
            for before in highest[read.args["id"]]:
                early = before.ended + self._skew_ns < read.begun
                if early and before.result["lsn"] > read.result["lsn"]:
                    self._verdict.report(
                        "stale", "a later read told of an older query", before, read
                    )
                    break
            highest[read.args["id"]].append(read)


def _is_same(read: Operation, insert: Operation) -> bool:
    names = ("session", "expression")
    return [read.result[n] for n in names] == [insert.args[n] for n in names] and (
        read.args["id"] == insert.args["id"]
    )
