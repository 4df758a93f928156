"""Writes a history: one JSON value a line, as calls begin and end and as matches come.

The first line is `{"history": 1, "clock": ..., "skew_ns": ..., "wall_ms": ...}`. Every line has
`at`, nanoseconds of one monotonic clock. The clocks of a history differ by `skew_ns` at most. The
other lines are:

* `{"begin": N, "process", "call", "operation", "args"}`: a call begins. Calls of one operation are
  the same request again.
* `{"end": N, "outcome", "result"}`: it has ended. ok: it was answered so. refused: it was
  answered that nothing has been done. unknown: it may have been done, or may be done later.
* `{"session", "stream", "first", "partition", "pairs", "objects"}`: matches came on the stream that
  call number `stream` opened. The first pair has the number `first`. A pair is [handle, query id,
  row of objects], an object [id, offset, lon, lat, text, attributes], with null for what was not
  requested.
* `{"session", "stream", "gap": [first, last, count]}`: a gap was announced.
* `{"process", "problem"}`: a client was answered what no client should be.
* `{"settled": true}`: the last line. What is not there by now has not come.

The calls, with their args and results:

* insert: id, session, expression, region, replace, retro; lsn
* delete: id; lsn
* publish: level, producer, seq, objects [id, lon, lat, text, attributes, until]; lsn, partition,
  offset, accepted
* withdraw: ids; nothing
* get: id; lsn of the insert, session, expression, or {} where there is no such query
* deliver: session, after; nothing. `after`: the cursor stands for this number; 0: there is none.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self


class Recorder:
    """Writes the file at `path`, from any thread; without a path nothing is written. `clock`
    returns nanoseconds."""

    def __init__(
        self, path: Path | None, *, clock: Callable[[], int] = time.monotonic_ns, skew_ns: int = 0
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._calls = 0
        self._file = None if path is None else path.open("w", encoding="utf-8", buffering=1)
        self._write(
            {"history": 1, "clock": "monotonic", "skew_ns": skew_ns,
             "wall_ms": int(time.time() * 1000)}
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def begin(self, process: str, call: str, operation: str = "", **args: Any) -> int:
        """Returns the number of the call. An operation that is empty has no other calls."""
        with self._lock:
            self._calls += 1
            number = self._calls
            self._append(
                {"begin": number, "process": process, "call": call,
                 "operation": operation or f"call {number}", "args": args}
            )  # fmt: skip
        return number

    def end(self, call: int, outcome: str, **result: Any) -> None:
        self._write({"end": call, "outcome": outcome, "result": result})

    def receive(
        self,
        session: str,
        stream: int,
        first: int,
        partition: int,
        pairs: Sequence[Sequence[Any]],
        objects: Sequence[Sequence[Any]],
    ) -> None:
        self._write(
            {"session": session, "stream": stream, "first": first, "partition": partition,
             "pairs": pairs, "objects": objects}
        )  # fmt: skip

    def skip(self, session: str, stream: int, first: int, last: int, count: int) -> None:
        """A gap was announced."""
        self._write({"session": session, "stream": stream, "gap": [first, last, count]})

    def complain(self, process: str, problem: str) -> None:
        self._write({"process": process, "problem": problem})

    def settle(self) -> None:
        """What is due had its time to come."""
        self._write({"settled": True})

    def _write(self, line: dict[str, Any]) -> None:
        with self._lock:
            self._append(line)

    def _append(self, line: dict[str, Any]) -> None:
        if self._file is None:  # also for a client that is late
            return
        # Read under the lock, so that lines are in the order of their times.
        self._file.write(json.dumps({"at": self._clock(), **line}, separators=(",", ":")) + "\n")
