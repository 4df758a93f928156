"""An append-only log in a topic of Kafka: the `Log` of ports.py.

Appending only buffers; a sync is one transaction. Positions count bytes of frames, as in a segment
file, and not messages: Kafka's offsets are known after a write, and transactions leave gaps.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

from ps2stream.errors import DataDirectoryError, Unavailable
from ps2stream.store.frames import FRAME, HEADER, walk_frames
from ps2stream.store.identity import LogIdentity
from ps2stream.store.kafka_chunks import (
    MAX_RECORD,
    ChunkHeader,
    ChunkOffsets,
    ChunkRun,
    LogChunk,
    cut_chunks,
)
from ps2stream.store.kafka_cluster import (
    KafkaAdmin,
    KafkaCluster,
    damage_error,
    warn_once,
)
from ps2stream.store.kafka_reader import KafkaReader, MessagesGone
from ps2stream.store.kafka_writer import KafkaLogWriter

log = logging.getLogger("ps2stream.store")
PATIENCE_S = 30.0
"""Seconds for which brokers are waited for; others take over within ten or so."""
_RECENT = 8 << 20  # bytes written last that are kept in memory
_PAGES = 4  # read last
_LOOKS = 5  # at a log from which others delete


class KafkaLog:
    """A Log in the topic of a Kafka cluster. Make one with `KafkaLog.open`.

    One thread may append while another syncs and others read, scan and trim.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        name: str,
        parts: tuple[KafkaAdmin, KafkaLogWriter, KafkaReader],
        segment_bytes: int,
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._admin, self._writer, self._reader = parts
        self._segment_bytes = segment_bytes
        self._offsets = ChunkOffsets()
        self._recent = ChunkRun()
        self._pages: deque[ChunkRun] = deque(maxlen=_PAGES)
        self._fresh: dict[int, bytes] = {}  # appended records, by position
        self._writing: dict[int, bytes] = {}  # and those that a sync is writing
        self._refusing = ""  # why appends are refused for now
        self._failed = ""
        self._lock = threading.Lock()  # guards all the fields
        self._syncing = threading.Lock()  # one sync at a time
        self._reading = threading.Lock()  # guards the reader and the pages
        self._deletion: Any = None  # the last one that was begun
        oldest, last = find_ends(cluster, name, self._admin, self._reader, settled=True)
        self._is_new = last is None
        self._first = self._synced = self._last = 0
        self.identity: LogIdentity | None = None
        if oldest is not None and last is not None:
            self._offsets.add(oldest)
            self._offsets.add(last)
            self._first, self._synced = last.header.first, last.end
            self._last = last.header.base
            self.identity = last.header.identity
        self._end = self._synced
        self._recent.append(self._end, b"")
        self._trim_to = self._first
        self._named = self.identity

    @classmethod
    def open(
        cls,
        cluster: KafkaCluster,
        name: str,
        *,
        again: bool = False,
        segment_bytes: int = 16 << 20,
        patience_s: float = PATIENCE_S,
    ) -> Self:
        """Opens the log of this name, or makes one, and fences whoever had it open. `again`: it has
        been written before. `segment_bytes` are trimmed at once; brokers that are away are waited
        for during `patience_s`.

        Raises FailedPrecondition when the topic does not keep what it acknowledges,
        DataDirectoryError when records are missing or damaged, Unavailable when the brokers cannot
        be reached.
        """
        if cluster.caveat:
            warn_once(cluster.caveat)
        admin = KafkaAdmin(cluster)
        if not admin.has_log(name, wait=again):
            if again:
                raise damage_error(cluster, name, "there is no such topic any more")
            admin.make_topic(name)
        admin.check_log(name)
        with ExitStack() as undo:
            writer = KafkaLogWriter(cluster, name, patience_s)
            undo.callback(writer.close)
            admin.check_transactions()
            reader = KafkaReader(cluster, name, patience_s)
            undo.callback(reader.close)
            opened = cls(cluster, name, (admin, writer, reader), segment_bytes)
            if again and opened._is_new:
                raise damage_error(cluster, name, "it is empty")
            undo.pop_all()
        return opened

    def close(self) -> None:
        with self._syncing, self._reading, self._lock:
            self._failed = self._failed or "it is closed"
            self._writer.close()
            self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def identify(self, identity: LogIdentity) -> None:
        """Gives the log this identity with the next sync."""
        with self._lock:
            self.identity = identity

    # --- reading -------------------------------------------------------------------

    @property
    def first(self) -> int:
        with self._lock:
            return self._first

    @property
    def end(self) -> int:
        return self._end

    @property
    def synced(self) -> int:
        return self._synced

    def read(self, position: int) -> bytes:
        with self._lock:
            for waiting in (self._fresh, self._writing):
                if (record := waiting.get(position)) is not None:
                    return record
            if not self._first <= position < self._synced:
                raise KeyError(position)
            if position >= self._recent.base:
                record = self._recent.read(position)
                if record is None:
                    raise KeyError(position)
                return record
        page = self._find_page(position)
        if page is None:
            raise KeyError(position)  # it was trimmed in the meantime
        if (record := page.read(position)) is None:
            raise self._report_damage(position)
        return record

    def scan(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        with self._lock:
            waiting = [*self._writing.items(), *self._fresh.items()]
            return self._scan_records(start, self._first, self._synced, waiting)

    def _scan_records(
        self, start: int, first: int, synced: int, waiting: list[tuple[int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        at = max(start, first)
        while at < synced:
            page = self._find_page(at)
            if page is None:
                at = self.first  # it was trimmed in the meantime
                continue
            stop = min(page.end, synced)
            reached = yield from walk_frames(page, HEADER, at, stop)
            if reached < stop:
                raise self._report_damage(reached)
            at = reached
        for position, record in waiting:
            if position >= start:
                yield position, record

    def _find_page(self, position: int) -> ChunkRun | None:
        """Returns chunks from the one on that holds a synced position; None if it was trimmed."""
        with self._lock:
            if self._recent.base <= position < self._recent.end:
                return self._recent.copy_from(position)
        with self._reading:
            for page in self._pages:
                if page.base <= position < page.end:
                    return page
            if position < self.first:
                return None
            try:
                page = self._reader.read_page(position, self._synced, self._offsets)
            except MessagesGone:
                if position < self.first:
                    return None
                problem = f"the records from position {position} on were deleted by somebody else"
                raise damage_error(self._cluster, self._name, problem) from None
            self._pages.append(page)
            return page

    def _report_damage(self, position: int) -> DataDirectoryError:
        problem = f"position {position} is damaged: no intact record begins there"
        return damage_error(self._cluster, self._name, problem)

    # --- writing -------------------------------------------------------------------

    def append(self, record: bytes) -> int:
        if len(record) > MAX_RECORD:
            raise ValueError(f"record: {len(record)} bytes are over the limit of {MAX_RECORD}")
        with self._lock:
            self._check_usable()
            if self._refusing:
                raise Unavailable(self._refusing)
            position = self._end
            self._fresh[position] = record
            self._end = position + len(record) + FRAME
            return position

    def sync(self) -> int:
        with self._syncing:
            with self._lock:
                self._check_usable()
                end, identity = self._end, self.identity
                if end == self._synced and identity == self._named:
                    return end
                batch = self._writing = self._fresh
                self._fresh = {}
                first = self._find_next_first()
            try:
                chunks = self._write_batch(batch, first, identity)
            except BaseException as error:
                with self._lock:
                    self._failed = str(error) or type(error).__name__
                raise
            with self._lock:
                for chunk in chunks:
                    self._offsets.add(chunk)
                    self._recent.append(chunk.header.base, chunk.data)
                    self._last = chunk.header.base
                self._recent.shrink(_RECENT)
                self._synced, self._named = end, identity
                self._writing, self._refusing = {}, ""
                self._is_new = False
            self._delete_before(first)
            return end

    def _write_batch(
        self, batch: dict[int, bytes], first: int, identity: LogIdentity | None
    ) -> list[LogChunk]:
        cut = list(cut_chunks([*batch], [*batch.values()])) or [(self._synced, 0, b"")]
        named = () if identity is None else identity
        parts = [(ChunkHeader(base, more, first, *named), data) for base, more, data in cut]
        messages = [(header.encode(), data) for header, data in parts]
        written = self._writer.write(messages, self._refuse_for_now)
        return [
            LogChunk(offset, header, data)
            for offset, (header, data) in zip(written, parts, strict=True)
        ]

    def _refuse_for_now(self, why: str) -> None:
        """Lets `append` refuse for this reason until a sync succeeds."""
        with self._lock:
            self._refusing = why

    def trim(self, before: int) -> None:
        """Only notes the position: a later sync removes what fills a segment."""
        with self._lock:
            self._check_usable()
            self._trim_to = max(self._trim_to, min(before, self._last))

    def _find_next_first(self) -> int:
        """Returns where the log begins after the next sync: at a chunk that is known."""
        if self._trim_to - self._first < self._segment_bytes:
            return self._first
        known = self._offsets.find(self._trim_to)
        return self._first if known is None else max(self._first, known[0])

    def _delete_before(self, first: int) -> None:
        """Deletes what lies before the new beginning, which the last chunk names by now."""
        if first == self._first:
            return
        known = self._offsets.find(first)
        assert known is not None
        with self._lock:
            self._first = first
        self._offsets.drop(first)
        before = self._deletion
        if before is not None and before.done() and (error := before.exception()) is not None:
            where = self._cluster.topic(self._name)
            log.warning("%s: what was trimmed of %s stays: %s", self._cluster, where, error)
        # Nobody waits for it: what is left, the next one includes.
        self._deletion = self._admin.delete_before(self._name, known[1])

    def _check_usable(self) -> None:
        if self._failed:
            raise Unavailable(self._describe_failure())

    def _describe_failure(self) -> str:
        where = f"{self._cluster}, log {self._name}"
        return f"{where} accepts no writes until a restart: {self._failed}"

    @property
    def problem(self) -> str:
        with self._lock:
            return self._describe_failure() if self._failed else self._refusing

    @property
    def bytes(self) -> int:
        with self._lock:
            return self._end - self._first


def find_ends(
    cluster: KafkaCluster, name: str, admin: KafkaAdmin, reader: KafkaReader, settled: bool = False
) -> tuple[LogChunk | None, LogChunk | None]:
    """Returns the first and the last chunk of a log; None for a new one. `settled`: as in
    KafkaAdmin.find_bounds. Raises DataDirectoryError when chunks are missing that were not trimmed,
    Unavailable."""
    for left in reversed(range(_LOOKS)):
        start, stop = admin.find_bounds(name, settled)
        try:
            last = reader.find_last(start, stop)
            oldest = None if last is None else reader.find_first(start, stop)
            break
        except MessagesGone:  # what is the first one has changed since it was asked for
            if not left:
                raise Unavailable(f"{cluster.topic(name)}: records go as they are read") from None
    if last is None:
        if start:
            raise damage_error(cluster, name, "all its records were deleted by somebody else")
        return None, None
    assert oldest is not None
    if oldest.header.base > last.header.first:
        problem = (
            f"the records from position {last.header.first} to {oldest.header.base} were deleted "
            "by somebody else; check the topic's retention.ms and retention.bytes"
        )
        raise damage_error(cluster, name, problem)
    return oldest, last


def look_at_end(cluster: KafkaCluster, name: str) -> tuple[int, LogIdentity | None]:
    """Returns the end and the identity of a log, which others may have open; (0, None) for a new
    one. Raises DataDirectoryError, Unavailable."""
    reader = KafkaReader(cluster, name, PATIENCE_S)
    try:
        _, last = find_ends(cluster, name, KafkaAdmin(cluster), reader)
    finally:
        reader.close()
    return (0, None) if last is None else (last.end, last.header.identity)
