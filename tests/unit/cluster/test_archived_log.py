"""A log with an archive: a thread follows it, and nothing else notices."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from ps2stream.archive.layout import ArchiveLimits
from ps2stream.cluster import archived_log
from ps2stream.cluster.archive_writer import ArchiveWriter
from ps2stream.cluster.archived_log import ArchivedLog
from ps2stream.dispatcher.object_log import column
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.log_records import ObjectRecord
from tests.support.archived import Post, archived, rows_of
from tests.support.memory_log import MemoryLog

HERE = Address("dispatcher", 2)
POST = Post("id", 5, None, 1.0, 2.0, "rain")


def append(log: ArchivedLog, offset: int) -> int:
    return log.append(ObjectRecord(offset, 1, column(rows_of([POST]))).encode())


def test_what_is_durable_is_archived_and_only_then_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archived_log, "LOOK_S", 0.01)
    inner = MemoryLog()
    limits = ArchiveLimits(tmp_path / "archive", 1 << 30, 1.0, 3600.0)
    log = ArchivedLog.follow(inner, limits, HERE, "log")
    for offset in range(3):
        append(log, offset)
    log.sync()
    log.trim(log.end)
    append(log, 3)  # and not synced
    log.close()
    assert archived(limits.path) == {(2, 0, i): (1, POST) for i in range(3)}
    assert log.status()["archived_objects"] == 3
    assert 0 < inner.first < inner.synced  # the last record that was read stays


def test_what_is_asked_for_is_archived_before_it_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archived_log, "LOOK_S", 0.01)
    limits = ArchiveLimits(tmp_path / "archive", 1 << 30, 1.0, 3600.0)
    looks, look = [0], ArchiveWriter.look

    def count(writer: ArchiveWriter, is_last: bool = False) -> None:
        look(writer, is_last)
        looks[0] += 1

    monkeypatch.setattr(ArchiveWriter, "look", count)
    log = ArchivedLog.follow(MemoryLog(), limits, HERE, "log")
    end = append(log, 0) + 1
    log.sync()
    before, deadline = looks[0], time.monotonic() + 60
    while looks[0] < before + 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert archived(limits.path) == {}
    while not log.settle(end):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert archived(limits.path) == {(2, 0, 0): (1, POST)}
    log.close()
    assert log.settle(log.synced)
    (tmp_path / "archive" / "dispatcher-2").rename(tmp_path / "elsewhere")
    (tmp_path / "archive" / "dispatcher-2").write_text("")
    log = ArchivedLog.follow(MemoryLog(), limits, HERE, "log")
    while not log.settle(1):  # it cannot be written, and so is not waited for
        assert time.monotonic() < deadline
        time.sleep(0.01)
    log.close()


def test_an_error_ends_the_archive_and_not_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def fail(self: ArchiveWriter, is_last: bool) -> None:
        failed.set()
        raise ZeroDivisionError

    monkeypatch.setattr(archived_log, "LOOK_S", 0.01)
    monkeypatch.setattr(ArchiveWriter, "look", fail)
    inner = MemoryLog()
    limits = ArchiveLimits(tmp_path / "archive", 1 << 30, 1.0, 3600.0)
    log = ArchivedLog.follow(inner, limits, HERE, "log")
    assert failed.wait(60)
    append(log, 0)
    end = append(log, 1)
    log.sync()
    log.trim(end)
    assert dict(log.scan()).keys() >= {end}
    log.close()
    assert inner.first == end  # nothing is held back
    assert "an error" in log.status()["archive_problem"]
