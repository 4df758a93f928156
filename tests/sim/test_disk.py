"""The simulated disk loses what a real one may lose, and nothing else."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from ps2stream.errors import DataDirectoryError
from tests.sim.disk import SECTOR, PowerCut, SimDisk

ROOT = Path("/d")
A, B = ROOT / "a", ROOT / "b"


def disk(seed: int = 0) -> SimDisk:
    found = SimDisk(random.Random(seed))
    found.lock(ROOT)
    return found


def test_sectors_that_were_not_synced_are_lost_one_by_one() -> None:
    seen = set()
    for seed in range(100):
        it = disk(seed)
        file = it.create(A, 2 * SECTOR)
        file.pwritev([b"o" * 2 * SECTOR], 0)
        file.sync()
        it.sync(ROOT)
        file.pwritev([b"m" * SECTOR], 0)
        file.pwritev([b"n" * 2 * SECTOR], 0)
        assert file.pread(9999, 0) == b"n" * 2 * SECTOR
        it.crash()
        found = it.contents(ROOT)["a"]
        assert found == found[:1] * SECTOR + found[SECTOR : SECTOR + 1] * SECTOR
        seen.add(found[::SECTOR])
    assert seen == {x + y for x in (b"o", b"m", b"n") for y in (b"o", b"n")}


def test_names_that_were_not_synced_are_lost_but_a_rename_is_whole() -> None:
    seen = set()
    for seed in range(100):
        it = disk(seed)
        it.create(A, 1).sync()
        it.sync(ROOT)
        it.rename(A, B)
        it.create(A, 2).sync()
        it.crash()
        seen.add(tuple(sorted((n, len(data)) for n, data in it.contents(ROOT).items())))
    assert seen == {(("a", 1),), (("b", 1),), (("a", 2),), (("a", 2), ("b", 1))}


def test_a_failed_sync_leaves_in_memory_what_it_did_not_write() -> None:
    lost = 0
    for seed in range(20):
        it = disk(seed)
        file = it.create(A, SECTOR)
        file.sync()
        it.sync(ROOT)
        file.pwritev([b"x"], 0)
        it.fail_sync = True
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        it.fail_sync = False
        file.sync()
        assert file.pread(1, 0) == b"x"
        it.crash()
        lost += it.contents(ROOT)["a"][:1] == b"\0"
    assert 0 < lost < 20


def test_a_full_disk_has_room_only_where_it_was_taken() -> None:
    it = disk()
    file = it.create(A, 10)
    it.full = True
    file.pwritev([b"0123", b"456789"], 0)
    for call in (lambda: it.create(B, 1), lambda: file.pwritev([b"x"], 10)):
        with pytest.raises(OSError, match="No space") as caught:
            call()
        assert caught.value.errno == errno.ENOSPC
    assert it.contents(ROOT) == {"a": b"0123456789"}


def test_a_fuse_leaves_a_write_half_done() -> None:
    seen = set()
    for seed in range(40):
        it = disk(seed)
        it.fuse = 1
        file = it.create(A, 3 * SECTOR)
        with pytest.raises(PowerCut):
            file.pwritev([b"x" * 2 * SECTOR], SECTOR // 2)
        with pytest.raises(PowerCut):
            it.remove(A)
        it.kill()
        seen.add(it.contents(ROOT)["a"].count(b"x"))
    assert seen == {0, SECTOR // 2, 3 * SECTOR // 2}


def test_a_lock_is_one_owners_until_the_process_ends() -> None:
    it = SimDisk(random.Random(0))
    first = it.lock(ROOT)
    with pytest.raises(DataDirectoryError, match="in use"):
        it.lock(ROOT)
    it.kill()
    it.lock(ROOT)
    first.close()  # of a process that lives on: the lock is another's now
    with pytest.raises(DataDirectoryError):
        it.lock(ROOT)


def test_files_that_were_open_in_a_crash_are_of_no_use() -> None:
    it = disk()
    file = it.create(A, 1)
    file.sync()
    it.sync(ROOT)
    assert it.is_in_place(A, file)
    it.crash()
    file.pwritev([b"x"], 0)
    file.sync()
    assert not it.is_in_place(A, file)
    assert it.contents(ROOT) == {"a": b"\0"}
