"""A log with an archive and its writer, and what a reader must find, for tests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from ps2stream.archive.layout import ArchiveLimits, ArchiveMark, read_mark
from ps2stream.cluster.archive_writer import ArchiveWriter
from ps2stream.dispatcher.object_log import column
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.log_records import IdentifiedRecord, ObjectRecord
from tests.support.archived import Key, Post, archived, rows_of, some_posts
from tests.support.memory_log import MemoryLog


class ArchivedWorld:
    """The log of a dispatcher with an archive, and what a reader must find in it."""

    def __init__(self, path: Path, seed: int = 0, partition: int = 3, **limits: Any) -> None:
        given = {"size_bytes": 1 << 30, "hours": 100.0, "delay_s": 5.0} | limits
        self.limits = ArchiveLimits(path, **given)
        self.rng = random.Random(seed)
        self.partition = partition
        self.log = MemoryLog()
        self.identity = "a"
        self.now_ms = 10**12
        self.free = 1 << 40
        self.offset = self.lsn = self.wanted = 0
        self.series = 0
        self.logged: list[tuple[int, Key, tuple[int, Post]]] = []  # by position
        self.durable: dict[Key, tuple[int, Post]] = {}
        self.writer = self.open()

    def open(self) -> ArchiveWriter:
        return ArchiveWriter(
            self.log, self.limits, self.partition, self.identity, lambda: self.now_ms,
            lambda _: self.free,
        )  # fmt: skip

    def append(self, count: int = 4) -> None:
        posts = some_posts(self.rng, count)
        self.lsn += self.rng.randrange(3)
        self.offset += self.rng.choice([0, 0, 1 << 30])  # objects that were not logged
        rows = column(rows_of(posts))
        record: Any = ObjectRecord(self.offset, self.lsn, rows)
        if self.rng.random() < 0.3:
            counts = np.array([count], np.int64)
            seq, digest = np.ones(1, np.uint64), np.zeros(2, np.uint64)
            producer = strings_to_column(["p"])
            record = IdentifiedRecord(self.offset, self.lsn, rows, counts, seq, *producer, digest)
        position = self.log.append(record.encode())
        for post in posts:
            key = self.partition, self.series, self.offset
            self.logged.append((position, key, (self.lsn, post)))
            self.offset += 1

    def sync(self) -> None:
        self.log.sync()
        self.durable |= {key: what for at, key, what in self.logged if at < self.log.synced}

    def look(self, is_last: bool = False) -> None:
        self.writer.look(is_last)
        self.trim()

    def trim(self) -> None:
        self.log.trim(min(self.wanted, self.writer.keep_from))

    def kill(self) -> None:
        """The process is killed, and another incarnation finds what was synced."""
        self.writer.close()  # the system lets its locks go
        self.log = self.log.crashed()
        self.logged = [each for each in self.logged if each[0] < self.log.end]
        self.writer = self.open()

    @property
    def mark(self) -> ArchiveMark:
        found = read_mark(self.writer.folder)
        assert found is not None
        return found

    def expected(self) -> dict[Key, tuple[int, Post]]:
        """What was durable below the mark, without the gaps."""
        mark = self.mark
        return {
            key: what
            for key, what in self.durable.items()
            if key[1:] < mark.point
            and not any(g.series == key[1] and g.first <= key[2] < g.end for g in mark.gaps)
        }

    def check(self) -> None:
        assert archived(self.limits.path) == self.expected()
