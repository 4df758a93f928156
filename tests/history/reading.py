"""Reads histories: files of lines as `record` writes them, into operations and receipts."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests import naive

CALLS = ("insert", "delete", "publish", "withdraw", "get", "deliver")
OUTCOMES = ("ok", "refused", "unknown")
NEVER = 1 << 62
_Line = tuple[str, dict[str, Any]]  # where it stands, and what it says


class HistoryError(ValueError):
    """The file is no history: names the line, the field and the problem."""


@dataclass(slots=True)
class Attempt:
    """One call; `line`: where it begins. Without an end its outcome is unknown."""

    line: str
    process: str
    begun: int
    ended: int = NEVER
    outcome: str = "unknown"
    result: dict[str, Any] = field(default_factory=dict)


@dataclass
class Operation:
    """What a client wanted, and the calls with which it asked for it."""

    name: str
    call: str
    args: dict[str, Any]
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def begun(self) -> int:
        return self.attempts[0].begun

    @property
    def first_ok(self) -> Attempt | None:
        """The first answer that it has been done."""
        done = [each for each in self.attempts if each.outcome == "ok"]
        return min(done, key=lambda each: each.ended, default=None)

    @property
    def ended(self) -> int:
        """When it was first known to have been done; NEVER if it was not."""
        return NEVER if self.first_ok is None else self.first_ok.ended

    @property
    def is_known(self) -> bool:
        return self.first_ok is not None

    @property
    def is_refused(self) -> bool:
        """Whether it has certainly not been done."""
        return all(each.outcome == "refused" for each in self.attempts)

    @property
    def is_doubtful(self) -> bool:
        """Whether a call of it may have done more than anyone was told."""
        return any(each.outcome == "unknown" for each in self.attempts)

    @property
    def result(self) -> dict[str, Any]:
        return {} if self.first_ok is None else self.first_ok.result

    def __str__(self) -> str:
        known = self.first_ok
        first = self.attempts[0]
        told = f"{known.result} at {known.ended}" if known else "not answered"
        about = self.args.get("id") or self.args.get("session") or ""
        return f"{first.line} {first.process} {self.call} {about} from {self.begun}: {told}"


class Pair(NamedTuple):
    """A match with its number, as it came."""

    number: int
    handle: int
    query: str
    object: str
    place: tuple[int, int]


class Receipt(NamedTuple):
    """What came at once: pairs from a number on, or a gap [first, last, count]."""

    line: str
    at: int
    session: str
    stream: int
    first: int
    pairs: list[Pair]
    objects: list[list[Any]]
    gap: list[int] | None


@dataclass
class History:
    """Everything of the files. Operations are in the order of their beginnings."""

    operations: list[Operation] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    streams: dict[int, Operation] = field(default_factory=dict)  # by the call that opened them
    problems: list[str] = field(default_factory=list)
    skew_ns: int = 0
    wall_ms: tuple[int, int] = (0, 0)  # when it began and ended
    is_settled: bool = False
    lines: int = 0

    def of(self, *calls: str) -> list[Operation]:
        return [each for each in self.operations if each.call in calls]


def read(paths: Sequence[Path]) -> History:
    """Reads the files of one history, each with the calls of some clients. Raises HistoryError,
    and OSError."""
    several = len(paths) > 1
    return _Reader().read([list(_parse(path, several)) for path in paths])


def read_lines(lines: Sequence[dict[str, Any]]) -> History:
    """The same of lines in memory. Raises HistoryError."""
    return _Reader().read([[(f"line {row}", line) for row, line in enumerate(lines, 1)]])


def _parse(path: Path, several: bool) -> Iterator[_Line]:
    with path.open(encoding="utf-8") as file:
        for row, text in enumerate(file, 1):
            where = f"{path.name}:{row}" if several else f"line {row}"
            if not text.endswith("\n"):
                break  # the writer was killed here
            try:
                line = json.loads(text)
            except ValueError:
                raise HistoryError(f"{where}: is not JSON") from None
            yield where, line


class _Reader:
    def __init__(self) -> None:
        self._history = History()
        self._operations: dict[tuple[int, str], Operation] = {}
        self._calls: dict[int, Attempt] = {}

    def read(self, files: Sequence[Sequence[_Line]]) -> History:
        found, settled, times = self._history, 0, []
        every = [_order(number, lines) for number, lines in enumerate(files)]
        for at, number, where, line in heapq.merge(*every, key=lambda each: each[0]):
            found.lines += 1
            times.append(at)
            try:
                settled += self._take(at, number, where, line)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise HistoryError(f"{where}: {type(error).__name__}: {error}") from None
        found.operations.sort(key=lambda each: each.begun)
        found.is_settled = settled == len(files)
        span_ms = (times[-1] - times[0]) // 1_000_000 if times else 0
        found.wall_ms = found.wall_ms[0], found.wall_ms[0] + span_ms
        return found

    def _take(self, at: int, number: int, where: str, line: dict[str, Any]) -> bool:
        """Whether it is the last one of its file."""
        found = self._history
        if "begin" in line:
            self._begin(at, number, where, line)
        elif "end" in line:
            attempt = self._calls[_unique(number, line["end"])]
            attempt.ended, attempt.result = at, line["result"]
            attempt.outcome = _one_of("outcome", line["outcome"], OUTCOMES)
        elif "pairs" in line or "gap" in line:
            found.receipts.append(_receipt(at, number, where, line))
        elif "problem" in line:
            found.problems.append(f"{where} {line['process']}: {line['problem']}")
        elif "history" in line:
            found.skew_ns = max(found.skew_ns, line["skew_ns"])
            found.wall_ms = line["wall_ms"], 0
        elif "settled" not in line:
            raise ValueError(f"nothing is known of {sorted(line)}")
        return "settled" in line

    def _begin(self, at: int, number: int, where: str, line: dict[str, Any]) -> None:
        found = self._history
        kind, key = _one_of("call", line["call"], CALLS), (number, line["operation"])
        operation = self._operations.get(key)
        if operation is None:
            operation = Operation(line["operation"], kind, line["args"])
            self._operations[key] = operation
            found.operations.append(operation)
        elif (operation.call, operation.args) != (kind, line["args"]):
            raise ValueError(f"operation {line['operation']} is another request than before")
        attempt = Attempt(where, line["process"], at)
        operation.attempts.append(attempt)
        call = _unique(number, line["begin"])
        if self._calls.setdefault(call, attempt) is not attempt:
            raise ValueError(f"begin: there was a call {line['begin']} before")
        if kind == "deliver":
            found.streams[call] = operation


def _order(number: int, lines: Sequence[_Line]) -> Iterator[tuple[int, int, str, dict[str, Any]]]:
    """The lines of a file with their times and its number."""
    last = -NEVER
    for row, (where, line) in enumerate(lines):
        at = line.get("at") if isinstance(line, dict) else None
        if not isinstance(at, int) or at < last:
            raise HistoryError(f"{where}: at: must be an integer, and not fall")
        if not row and line.get("history") != 1:
            raise HistoryError(f"{where}: history: must be 1")
        last = at
        yield at, number, where, line


def _receipt(at: int, number: int, where: str, line: dict[str, Any]) -> Receipt:
    stream, gap = _unique(number, line["stream"]), line.get("gap")
    if gap is not None:
        return Receipt(where, at, line["session"], stream, gap[0], [], [], gap)
    objects, partition = line["objects"], line["partition"]
    pairs = [
        Pair(i, handle, query, objects[row][0], (partition, objects[row][1]))
        for i, (handle, query, row) in enumerate(line["pairs"], line["first"])
    ]
    return Receipt(where, at, line["session"], stream, line["first"], pairs, objects, None)


def _unique(number: int, call: int) -> int:
    return number << 40 | call


def _one_of(field: str, value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise ValueError(f"{field}: {value} is none of {', '.join(allowed)}")
    return value


def query_of(operation: Operation) -> naive.Query:
    """The query of an insert."""
    args = operation.args
    return naive.Query(
        args["id"], args["session"], args["expression"], args["region"], retro=args["retro"]
    )


def object_of(row: Sequence[Any]) -> naive.Obj:
    """An object of a publication: [id, lon, lat, text, attributes, until]."""
    _, lon, lat, text, attributes, until = row
    return naive.Obj(lon, lat, text, attributes, until)
