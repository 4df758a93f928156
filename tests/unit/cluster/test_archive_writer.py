"""The writer of the archive: what is durable in the log comes into it once, whatever happens."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ps2stream.archive import layout
from ps2stream.archive.layout import ArchiveMark, read_snapshot
from ps2stream.cluster import archive_writer
from ps2stream.cluster.archive_writer import check_folder
from ps2stream.errors import DataDirectoryError, InvalidArgument
from ps2stream.protocol.log_records import (
    ProgressRecord,
    SplitRecord,
)
from ps2stream.store import directory
from tests.support.archived import archived
from tests.support.archived_world import ArchivedWorld
from tests.support.memory_log import MemoryLog

HOUR_MS = 3_600_000


class Killed(BaseException):
    """The process was killed."""


@pytest.fixture(autouse=True)
def _no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills are simulated, and no power cuts: what was written need not reach the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ArchivedWorld]:
    found = ArchivedWorld(tmp_path / "archive")
    yield found
    found.writer.close()


def kill_in(patch: pytest.MonkeyPatch, when: int) -> None:
    """Kills the process in one of its next replacements of a file, before or after it."""
    replace = directory.replace_file
    left = [when]

    def run(path: Path, data: bytes) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        replace(path, data)
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    patch.setattr(archive_writer, "replace_file", run)


@pytest.mark.parametrize("seed", range(12))
def test_all_that_is_durable_is_there_once_after_any_kills(tmp_path: Path, seed: int) -> None:
    world = ArchivedWorld(tmp_path / "archive", seed)
    rng = world.rng
    world.look()
    for _ in range(60):
        match rng.choice(["append", "append", "sync", "sync", "look", "time", "kill", "die",
                          "note", "trim", "new", "mark"]):  # fmt: skip
            case "append":
                world.append(rng.randrange(1, 6))
            case "sync":
                world.sync()
            case "look":
                world.look()
            case "time":
                world.now_ms += rng.randrange(8000)
            case "note":
                notes: list[Any] = [ProgressRecord(world.offset, 1 << 40), SplitRecord(1)]
                world.log.append(rng.choice(notes).encode())
            case "trim":
                world.wanted = rng.randrange(world.log.synced + 1)
                world.trim()
            case "kill":
                world.kill()
            case "die" | "mark" as how:
                with pytest.MonkeyPatch.context() as patch:
                    kill_in(patch, rng.randrange(1, 5))
                    world.now_ms += 6000
                    died = False
                    try:
                        world.look()
                    except Killed:
                        died = True
                if died and how == "die":  # else the same process tries it again
                    world.kill()
            case "new" if rng.random() < 0.2:  # another log in its place
                world.sync()
                world.look(is_last=True)
                world.writer.close()
                world.log, world.identity = MemoryLog(), f"log {rng.random()}"
                world.offset, world.wanted = 0, 0
                world.series, world.logged = world.series + 1, []
                world.writer = world.open()
                world.look()
        world.check() if world.writer._held else None
    world.sync()
    world.look(is_last=True)
    world.check()
    assert world.expected() == world.durable
    assert world.mark.objects == len(world.durable)
    assert not world.mark.gaps
    assert world.writer.keep_from >= max((at for at, *_ in world.logged), default=0)
    world.writer.close()


def test_nothing_is_written_before_it_is_synced_nor_before_the_delay(world: ArchivedWorld) -> None:
    world.look()
    world.append()
    world.now_ms += 6000
    world.look()
    assert archived(world.limits.path) == {}
    world.sync()
    world.look()  # read now
    assert archived(world.limits.path) == {}
    world.now_ms += 4999
    world.look()
    assert archived(world.limits.path) == {}
    world.now_ms += 1
    world.look()
    assert archived(world.limits.path) == world.durable


def test_a_file_is_written_once_it_is_full(
    world: ArchivedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_writer, "FILE_ROWS", 10)
    for _ in range(6):
        world.append(4)
    world.sync()
    world.look()
    world.check()
    sizes = [len(rows) for rows in (read_snapshot(world.limits.path).files,)]
    assert sizes == [2]
    assert len(archived(world.limits.path)) == 24


def test_a_log_is_not_trimmed_beyond_the_archive(world: ArchivedWorld) -> None:
    world.look()
    world.append()
    world.sync()
    world.wanted = world.log.end
    world.look()
    assert world.log.first == 0
    world.now_ms += 5000
    world.look()
    world.append()
    world.sync()
    world.now_ms += 5000
    world.look()
    world.now_ms += 5000
    world.look()
    assert world.log.first > 0


def test_a_full_disk_loses_the_oldest_and_counts_it(
    world: ArchivedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_writer, "LAG_BYTES", 20_000)
    world.look()
    world.append()
    world.sync()
    world.look(is_last=True)
    world.free = archive_writer.RESERVE_BYTES
    kept = world.log.synced
    for _ in range(200):
        world.append()
        world.sync()
        world.now_ms += 5000
        world.wanted = world.log.synced
        world.look()
        assert world.log.end - world.log.first < 20_000 + 2 * kept + 3000
    figures = world.writer.status()
    assert "leaves to others" in figures["archive_problem"]
    assert figures["archive_failing"] == 1
    assert figures["archive_lost_objects"] > 0
    world.free = 1 << 40
    world.look(is_last=True)
    assert not world.writer.problem
    assert world.writer.status()["archive_failing"] == 0
    world.check()
    mark = world.mark
    assert mark.lost == len(world.durable) - len(world.expected()) > 0
    assert mark.lost == sum(gap.objects or 0 for gap in mark.gaps)
    world.kill()
    world.look()
    assert world.mark.gaps == mark.gaps


def test_a_folder_that_cannot_be_made_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_writer, "LAG_BYTES", 3000)
    (tmp_path / "file").write_text("")
    world = ArchivedWorld(tmp_path / "file")
    world.append()
    world.sync()
    world.look()
    assert world.writer.problem
    assert world.writer.keep_from == 0
    for _ in range(20):
        world.append()
    world.sync()
    world.look()
    assert world.writer.keep_from == world.log.synced  # the log keeps no more for it
    (tmp_path / "file").unlink()
    world.look(is_last=True)
    assert not world.writer.problem
    world.check()
    world.writer.close()


def test_what_a_log_dropped_while_there_was_no_archive_is_a_gap(world: ArchivedWorld) -> None:
    world.append()
    world.sync()
    world.look(is_last=True)
    world.writer.close()
    before = world.mark.offset
    for _ in range(3):
        world.append()
        world.sync()
    last = next(at for at, *_ in reversed(world.logged))
    world.log.trim(last)
    for _ in range(2):  # the second incarnation tells it no second time
        world.writer = world.open()
        world.look(is_last=True)
        world.writer.close()
    assert [(g.first, g.objects) for g in world.mark.gaps] == [(before, None)]
    found = archived(world.limits.path)
    assert len(found) == 8
    assert found.items() <= world.durable.items()


def test_a_log_that_went_back_begins_a_series(world: ArchivedWorld) -> None:
    world.append()
    world.sync()
    earlier = world.log.crashed()
    world.append()
    world.sync()
    world.look(is_last=True)
    first = dict(world.durable)
    world.writer.close()
    world.log, world.series = earlier, 1
    world.logged, world.durable = [], {}
    world.offset = 4
    for _ in range(9):  # beyond where the mark is
        world.append()
    world.sync()
    world.writer = world.open()
    world.look(is_last=True)
    found = archived(world.limits.path)
    assert {k: v for k, v in found.items() if k[1] == 0} == first
    again = {k: v for k, v in found.items() if k[1] == 1}
    assert world.durable.items() <= again.items()
    assert len(again) == len(world.durable) + 4  # the log has its beginning still


def test_old_files_are_removed_by_age_and_bytes(tmp_path: Path) -> None:
    world = ArchivedWorld(tmp_path / "archive", hours=2.0)
    for _ in range(3):
        world.append()
        world.sync()
        world.look(is_last=True)
        world.now_ms += HOUR_MS
    world.look()
    assert len(archived(world.limits.path)) == 8
    assert world.writer.status()["archive_removed_files"] == 1
    size = world.writer.status()["archive_bytes"]
    world.writer.close()
    world.limits = world.limits._replace(size_bytes=size - 1, hours=1e6)
    world.writer = world.open()
    world.look()
    assert len(archived(world.limits.path)) == 4
    world.limits = world.limits._replace(size_bytes=1)
    world.writer.close()
    world.writer = world.open()
    world.look()
    assert len(archived(world.limits.path)) == 4  # the newest stays
    world.writer.close()


def test_a_folder_that_cannot_be_written_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    below = tmp_path / "file/archive"
    with pytest.raises(DataDirectoryError) as refused:
        check_folder(below)
    assert str(refused.value) == f"archive: {below} cannot be written: Not a directory"
    proc = Path("/proc/archive")  # root has every right there, and cannot write
    with pytest.raises(DataDirectoryError, match=r"^archive: /proc/archive cannot be written: "):
        check_folder(proc)
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    (open_folder / "letter").write_text("")
    open_folder.chmod(0o755)
    with pytest.raises(DataDirectoryError, match=r"^archive: .* open to other users"):
        check_folder(open_folder)


def test_a_folder_that_can_be_written_is_left_empty_and_closed(tmp_path: Path) -> None:
    folder = tmp_path / "new/archive"
    for _ in range(2):
        check_folder(folder)
        assert list(folder.iterdir()) == []
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_full_disk_does_not_keep_a_service_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(reason: int) -> None:
        def run(file: int) -> None:
            raise OSError(reason, os.strerror(reason))

        monkeypatch.setattr(os, "fsync", run)

    fail(errno.ENOSPC)
    check_folder(tmp_path)
    fail(errno.EIO)
    with pytest.raises(DataDirectoryError, match="Input/output error"):
        check_folder(tmp_path)


def test_others_may_not_read_the_archive(world: ArchivedWorld) -> None:
    world.append()
    world.sync()
    world.look(is_last=True)
    for path in [world.limits.path, *world.limits.path.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_two_writers_do_not_write_the_same_folder(world: ArchivedWorld) -> None:
    world.look()
    second = world.open()
    second.look()
    assert f"in use by process {os.getpid()}" in second.problem
    world.writer.close()
    second.look()
    assert not second.problem
    second.close()


def test_another_format_is_refused_and_left_alone(world: ArchivedWorld) -> None:
    world.append()
    world.sync()
    world.look(is_last=True)
    world.writer.close()
    head = world.limits.path / layout.HEAD
    head.write_bytes(head.read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(InvalidArgument, match="format 2; this version reads and writes format 1"):
        read_snapshot(world.limits.path)
    world.writer = world.open()
    world.append()
    world.sync()
    before = sorted(world.writer.folder.iterdir())
    world.look(is_last=True)
    assert "format 2" in world.writer.problem
    assert sorted(world.writer.folder.iterdir()) == before


def test_the_mark_says_what_it_is_of(world: ArchivedWorld) -> None:
    world.append()
    world.sync()
    world.look(is_last=True)
    mark = world.mark
    assert (mark.partition, mark.identity, mark.series) == (3, "a", 0)
    assert (mark.offset, mark.lsn, mark.objects) == (world.offset, world.lsn, 4)
    assert ArchiveMark.decode(mark.encode(), Path()) == mark
    assert dataclasses.replace(mark, gaps=()) == mark
