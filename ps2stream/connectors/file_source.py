"""A growing file to service: JSON lines or CSV, each line published at least once."""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ps2stream.client.client import Client
from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.feed_state import SourceState
from ps2stream.connectors.file_tail import CsvRecords, FilePlace, FileTail, TailLine
from ps2stream.connectors.mapping import RecordFields
from ps2stream.connectors.publisher import SourcePublisher
from ps2stream.connectors.rejected_file import append_records
from ps2stream.connectors.retry import ConnectorAbandoned
from ps2stream.errors import InvalidArgument, invalid
from ps2stream.posts.readers import read_cells

log = logging.getLogger(__name__)

ROWS = 2000
DRAIN_S = 15.0
LETTER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options of a source. follow: wait for more at the end of the file. every_s: between two looks
    at it. bad: what becomes of lines that are no posts: `stop` ends with an error, `skip` counts
    them, `file` appends them to `dead_letters`."""

    path: Path
    kind: Literal["jsonl", "csv"]
    follow: bool = False
    every_s: float = 0.5
    state: Path | None = None
    bad: Literal["stop", "skip", "file"] = "stop"
    dead_letters: Path | None = None


class FileSource:
    """Publishes until `stop` is set, or without `follow` up to the end of the file. The state has
    the place up to which the service has stored everything, so after a crash a few lines are
    published again. A line without an id gets one of its place and content, so a repeat has the
    same."""

    def __init__(
        self,
        client: Client,
        fields: RecordFields,
        options: FileOptions,
        counts: ConnectorCounts,
        teller: CountsReporter,
    ) -> None:
        self._fields = fields
        self._options = options
        self._counts = counts
        self._teller = teller
        self._abandon = threading.Event()
        self._publisher = SourcePublisher(client, counts, self._abandon)
        self._csv = CsvRecords() if options.kind == "csv" else None
        self._head: list[str] | None = None

    def run(self, stop: threading.Event, ready: Callable[[], None]) -> None:
        """Runs the source; calls `ready` once the file is open. Raises what no retry can help."""
        path = self._options.path
        self._state = SourceState(self._options.state, str(path.absolute()))
        over = threading.Event()
        limit = threading.Thread(target=self._limit_drain, args=(stop, over), daemon=True)
        limit.start()
        try:
            self._tail = FileTail(path, self._read_place(), not self._options.follow)
            try:
                if not self._tail.is_new and self._csv is not None:
                    self._read_head(self._tail.read_first_line())
                ready()
                self._read_until(stop)
            finally:
                self._tail.close()
        except ConnectorAbandoned:
            log.warning("the last lines were not answered; they will be published again")
        finally:
            over.set()
            self._state.close()
            limit.join()

    def _limit_drain(self, stop: threading.Event, over: threading.Event) -> None:
        """Abandons what is still under way DRAIN_S after the stop was requested."""
        while not stop.wait(0.2):
            if over.is_set():
                return
        if not over.wait(DRAIN_S):
            self._abandon.set()

    def _read_place(self) -> FilePlace:
        value = self._state.values.get("place", {})
        try:
            place = FilePlace(**value)
            numbers = (place.inode, place.head, place.offset)
            if not isinstance(place.digest, str) or not all(type(n) is int for n in numbers):
                raise TypeError
            return place
        except TypeError:
            raise invalid("state", f"{self._options.state} has no place in a file") from None

    def _read_until(self, stop: threading.Event) -> None:
        while not stop.is_set():
            if lines := self._tail.read_lines():
                begins, self._tail.is_new = self._tail.is_new, False
                self._publish_lines(self._take_records(lines, begins), stop)
            elif self._end_file():
                continue
            elif not self._options.follow:
                break
            else:
                stop.wait(self._options.every_s)
            if self._teller.due():
                self._teller.tell()

    def _end_file(self) -> bool:
        """Goes on to the next file. Returns whether there is one."""
        if self._csv is not None and self._tail.is_finished:
            self._publish_lines(list(self._csv.flush()), threading.Event())
        return self._tail.go_on()

    def _take_records(self, lines: list[TailLine], begins: bool) -> list[TailLine]:
        if self._csv is None:
            return lines
        if begins:
            self._csv = CsvRecords()
            self._read_head(lines[0].data or b"")
            lines = lines[1:]
        return list(self._csv.join_lines(lines))

    def _read_head(self, line: bytes) -> None:
        try:
            self._head = next(csv.reader([line.decode("utf-8-sig").rstrip("\r")], strict=True))
        except (UnicodeDecodeError, csv.Error, StopIteration):
            raise invalid(f"{self._options.path}:1", "expected the header of CSV") from None
        if len(set(self._head)) != len(self._head):
            raise invalid(f"{self._options.path}:1", "has a column twice")

    # --- publishing -----------------------------------------------------------

    def _publish_lines(self, lines: Sequence[TailLine], stop: threading.Event) -> None:
        for begin in range(0, len(lines), ROWS):
            some = lines[begin : begin + ROWS]
            self._publish_some([line for line in some if line.data is None or line.data.strip()])
            self._state.values["place"] = asdict(self._tail.place(some[-1].end))
            self._state.save()
            if stop.is_set():
                return

    def _publish_some(self, lines: list[TailLine]) -> None:
        self._counts.add("taken", len(lines))
        bad = self._publish_records(lines)
        if bad and self._options.bad == "stop":
            first = min(bad)
            self._state.values["place"] = asdict(self._tail.place(lines[first].start))
            self._state.save()
            raise invalid(f"{self._options.path} byte {lines[first].start}", bad[first])
        self._put_away([(lines[i], reason) for i, reason in sorted(bad.items())])
        self._counts.add("done", len(lines) - len(bad))

    def _publish_records(self, lines: list[TailLine]) -> dict[int, str]:
        """Publishes lines. Returns what is wrong with those that are no posts; where these end the
        connector, none after the first of them is published."""
        records, bad = self._parse_lines(lines)
        numbers = [i for i in range(len(lines)) if i not in bad]
        found = self._fields.convert(
            [records[i] for i in numbers], [_make_id(lines[i]) for i in numbers]
        )
        bad |= {numbers[row]: reason for row, reason in found.bad.items()}
        if bad and self._options.bad == "stop":
            if first := min(bad):
                bad |= self._publish_records(lines[:first])
            return bad
        if len(found.posts):
            for row, reason in self._publisher.publish(found.posts):
                bad[numbers[found.rows[row]]] = reason
        return bad

    def _parse_lines(self, lines: list[TailLine]) -> tuple[list[bytes | None], dict[int, str]]:
        records: list[bytes | None] = []
        bad: dict[int, str] = {}
        for number, line in enumerate(lines):
            record = None
            try:
                if line.data is None:
                    raise ValueError("the line is too long")
                record = line.data if self._csv is None else self._parse_row(line.data)
            except InvalidArgument as error:
                bad[number] = "; ".join(v.description for v in error.violations)
            except (ValueError, csv.Error) as error:
                bad[number] = str(error)
            records.append(record)
        return records, bad

    def _parse_row(self, data: bytes) -> bytes:
        """Returns a row of CSV as JSON. Raises ValueError, InvalidArgument or csv.Error."""
        head = self._head or []
        text = data.decode("utf-8").rstrip("\r")
        rows = list(csv.reader(text.splitlines(keepends=True), strict=True))
        if len(rows) != 1 or len(rows[0]) != len(head):
            found = len(rows[0]) if len(rows) == 1 else "other lines"
            raise ValueError(f"expected {len(head)} fields as in the header, got {found}")
        row: Mapping[str, Any] = dict(zip(head, rows[0], strict=True))
        cells = {name: value for name, value in read_cells("row", row).items() if value != ""}
        return json.dumps({"text": "", **cells}).encode()

    def _put_away(self, bad: Sequence[tuple[TailLine, str]]) -> None:
        self._counts.add("bad", len(bad))
        for line, reason in bad[:10]:
            log.warning("not published: byte %d: %s", line.start, reason)
        if bad and self._options.dead_letters is not None:
            append_records(self._options.dead_letters, self._describe_bad(bad))

    def _describe_bad(self, bad: Sequence[tuple[TailLine, str]]) -> Iterator[dict[str, Any]]:
        for line, reason in bad:
            shown = (
                None if line.data is None else line.data[:LETTER_BYTES].decode("utf-8", "replace")
            )
            place = {"file": str(self._options.path), "byte": line.start}
            yield place | {"reason": reason, "line": shown}


def _make_id(line: TailLine) -> str:
    """Returns the id of a line without one, a hash of its place and content."""
    what = f"{line.inode} {line.start} ".encode() + (line.data or b"")
    return hashlib.sha256(what).hexdigest()[:32]
