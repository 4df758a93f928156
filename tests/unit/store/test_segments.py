"""The segment log on a real disk: what was synced is there, whatever the process meets."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps2stream.benchmarks.log import run_log
from ps2stream.errors import DataDirectoryError, Unavailable
from ps2stream.protocol.ports import Log
from ps2stream.store import segments
from ps2stream.store.disk import DiskFile, OsDisk
from ps2stream.store.segments import SegmentLog
from tests.sim.disk import SimDisk


def files(path: Path) -> list[str]:
    return sorted(p.name for p in path.glob("*.segment"))


def test_what_was_synced_is_read_back(tmp_path: Path) -> None:
    want: list[tuple[int, bytes]] = []
    for turn in range(4):
        with SegmentLog.open(tmp_path / "a" / "log", segment_bytes=300) as log:
            as_port: Log = log
            assert (as_port.first, list(log.scan())) == (0, want)
            for size in (0, 1, 50, 200, 1000, 7):
                record = bytes([turn]) * size
                want.append((log.append(record), record))
                assert log.read(want[-1][0]) == record
            assert list(log.scan()) == want
            assert log.sync() == log.end
            assert list(log.scan()) == want
            for k, (position, record) in enumerate(want):
                assert log.read(position) == record
                assert list(log.scan(position)) == want[k:]
            log.append(b"lost, for it is not synced")
    assert len(files(tmp_path / "a" / "log")) == 16


def test_a_scan_shows_what_was_there_when_it_was_called(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path, segment_bytes=100) as log:
        for k in range(10):
            log.append(b"%d" % k * 40)
        log.sync()
        log.append(b"x")
        found = log.scan()
        log.append(b"y")
        log.sync()
        assert [record[:1] for _, record in found] == [b"%d" % k for k in range(10)] + [b"x"]
        found = log.scan()
        assert next(found)[1][:1] == b"0"
        log.trim(log.end)
        assert [record[:1] for _, record in found] == [b"9", b"x", b"y"]


def test_positions_that_hold_no_record(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path, segment_bytes=100) as log:
        assert (log.first, log.end) == (0, 0)
        at = [log.append(b"a" * 60) for _ in range(3)]
        for synced in (False, True):
            for position in (-1, log.end, log.end + 5):
                with pytest.raises(KeyError):
                    log.read(position)
            assert list(log.scan(log.end)) == []
            if not synced:
                log.sync()
        with pytest.raises(DataDirectoryError, match=r"position 1 .*no intact record begins there"):
            log.read(at[0] + 1)
        log.trim(at[1])
        with pytest.raises(KeyError):
            log.read(at[0])
        assert log.read(at[1]) == b"a" * 60


@pytest.mark.parametrize("refuses", [False, True])
def test_what_is_durable_leaves_the_page_cache_but_for_its_end(
    refuses: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[tuple[int, int]] = []

    def advise(_fd: int, start: int, size: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        freed.append((start, size))
        if refuses:
            raise OSError(errno.EINVAL, "it takes no advice")

    monkeypatch.setattr(os, "posix_fadvise", advise)
    with SegmentLog.open(tmp_path / "log") as log:
        for i in range(30):
            log.append(bytes([i]) * 100_000)
            log.sync()
        log.append(b"not synced" * 100_000)
        ends = [start + size for start, size in freed]
        assert [start for start, _ in freed] == [0, *ends[:-1]]
        assert all(end % mmap.PAGESIZE == 0 for end in ends)
        assert 0 <= log.synced - ends[-1] - segments._CACHED < 200_000
        assert [record[0] for _, record in log.scan()][:30] == list(range(30))


def test_trimming_forgets_whole_segments_and_keeps_positions(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path, segment_bytes=132) as log:
        at = [log.append(bytes([k]) * 42) for k in range(10)]  # two in a segment
        log.trim(log.end)
        assert log.first == 0  # nothing is synced
        log.sync()
        for before, first in ((at[1], 0), (at[2], 2), (at[5], 4), (at[5], 4), (log.end, 8)):
            log.trim(before)
            assert (log.first, log.bytes) == (at[first], (5 - first // 2) * 132)
            assert len(files(tmp_path)) == 5 - first // 2
    for _ in range(2):
        with SegmentLog.open(tmp_path, segment_bytes=132) as log:
            assert [position for position, _ in log.scan()] == at[8:]
            assert log.end == at[9] + 50
            log.trim(log.end)
            assert log.first == at[8]


def test_a_segment_has_its_room_before_it_is_used(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path, segment_bytes=1 << 20) as log:
        assert files(tmp_path) == []
        log.append(b"x")
        [name] = files(tmp_path)
        assert (tmp_path / name).stat().st_blocks * 512 >= 1 << 20
        assert log.bytes == 1 << 20
        log.sync()
    with SegmentLog.open(tmp_path, segment_bytes=100) as log:
        assert log.bytes == (tmp_path / name).stat().st_size < 100
        log.append(bytes(5000))
        sizes = [(tmp_path / name).stat().st_size for name in files(tmp_path)]
        assert sizes[1] > 5000
        assert sum(sizes) == log.bytes


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    with (
        SegmentLog.open(tmp_path),
        pytest.raises(DataDirectoryError, match=f"in use by process {os.getpid()}"),
    ):
        SegmentLog.open(tmp_path)
    log = SegmentLog.open(tmp_path)
    log.close()
    log.close()
    with pytest.raises(Unavailable, match="closed"):
        log.append(b"")
    with pytest.raises(Unavailable, match="closed"):
        log.sync()


def test_sizes_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="segment_bytes: must be above 40, got 40"):
        SegmentLog.open(tmp_path, segment_bytes=40)


def test_one_thread_appends_while_another_syncs_and_a_third_reads(tmp_path: Path) -> None:
    want: list[tuple[int, bytes]] = []
    done = threading.Event()
    errors: list[BaseException] = []

    def sync() -> None:
        try:
            while not done.is_set():
                log.sync()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    def read() -> None:
        rng = random.Random(1)
        try:
            while not done.is_set():
                if want:
                    position, record = want[rng.randrange(len(want))]
                    assert log.read(position) == record
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    with SegmentLog.open(tmp_path, segment_bytes=20_000) as log:
        threads = [threading.Thread(target=sync), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        for k in range(20_000):
            record = b"%d" % k * (k % 20)
            want.append((log.append(record), record))
        done.set()
        for thread in threads:
            thread.join()
        assert not errors
        log.sync()
        assert list(log.scan()) == want
    with SegmentLog.open(tmp_path) as log:
        assert list(log.scan()) == want


class BrokenDisk(OsDisk):
    """Its files cannot be synced."""

    def create(self, path: Path, size: int) -> DiskFile:
        file = super().create(path, size)
        if path.suffix == ".segment":

            def sync() -> None:
                raise OSError(5, "Input/output error")

            file.sync = sync  # type: ignore[method-assign]
        return file


def test_after_a_failed_sync_nothing_is_taken_but_reading_goes_on(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path) as log:
        log.append(b"old")
        log.sync()
    with SegmentLog.open(tmp_path, BrokenDisk()) as log:
        position = log.append(b"new")
        with pytest.raises(Unavailable, match="Input/output error"):
            log.sync()
        for call in (log.sync, lambda: log.append(b"x"), lambda: log.trim(1)):
            with pytest.raises(Unavailable, match=r"until a restart: .*Input/output error"):
                call()
        assert [record for _, record in log.scan()] == [b"old", b"new"]
        assert log.read(position) == b"new"


def test_a_log_that_is_removed_or_has_failed_says_so(tmp_path: Path) -> None:
    path = tmp_path / "objects-0"
    with SegmentLog.open(path) as log:
        log.append(b"x")
        log.sync()
        assert log.problem == ""
        path.rename(tmp_path / "away")
        assert "another process has taken it over, or it was removed" in log.problem
        (tmp_path / "away").rename(path)
        assert log.problem == ""
    with SegmentLog.open(path, BrokenDisk()) as log:
        log.append(b"new")
        with pytest.raises(Unavailable):
            log.sync()
        with pytest.raises(Unavailable) as refused:
            log.append(b"x")
        assert log.problem == str(refused.value)


def test_a_log_that_was_removed_does_not_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "objects-0"
    with SegmentLog.open(path) as log:
        log.append(b"x")
        log.sync()
        log.append(b"y")
        path.rename(tmp_path / "away")
        with pytest.raises(Unavailable, match="it was removed"):
            log.sync()
    for is_empty in (False, True):
        if is_empty:
            path.mkdir()
        with pytest.raises(DataDirectoryError, match="objects-0 was removed while the service"):
            SegmentLog.open(path, again=True)
    assert list(path.iterdir()) == []
    path.rmdir()
    (tmp_path / "away").rename(path)
    with SegmentLog.open(path, again=True) as log:
        assert [record for _, record in log.scan()][:1] == [b"x"]


def test_a_log_without_room_says_so_until_there_is_room() -> None:
    disk, path = SimDisk(random.Random(1)), Path("/log")
    with SegmentLog.open(path, disk, 1000) as log:
        disk.full = True
        with pytest.raises(Unavailable, match=r"no space .* for 1,000 bytes") as refused:
            log.append(b"x")
        assert log.problem == str(refused.value)
        disk.full = False
        assert log.problem == ""
        log.append(b"x")
        disk.full = True
        assert log.problem == ""


def test_a_sync_that_is_interrupted_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SegmentLog.open(tmp_path) as log:
        log.append(b"x")
        with monkeypatch.context() as patch:

            def interrupted(*_: object) -> None:
                raise KeyboardInterrupt

            patch.setattr(log, "_write_batch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                log.sync()
        with pytest.raises(Unavailable, match="until a restart: KeyboardInterrupt"):
            log.sync()


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataDirectoryError, match="file"):
            SegmentLog.open(path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system of 256 KiB."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("mounting a file system is not allowed here")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def take_the_rest(path: Path) -> None:
    """Fill the file system."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def test_a_full_disk_refuses_and_recovers_without_a_restart(small_disk: Path) -> None:
    """Nothing that was taken fails later, and what is there can be read."""
    want: list[tuple[int, bytes]] = []

    def fill() -> None:
        while True:
            record = os.urandom(1000)
            want.append((log.append(record), record))

    def kept() -> list[tuple[int, bytes]]:
        return [pair for pair in want if pair[0] >= log.first]

    with SegmentLog.open(small_disk / "log", segment_bytes=16 << 10) as log:
        for _ in range(3):
            with pytest.raises(Unavailable, match=r"there is no space .*: No space left"):
                fill()
            take_the_rest(small_disk / "rest")
            end = log.end
            with pytest.raises(Unavailable):
                log.append(bytes(20_000))
            assert log.sync() == log.end == end
            assert list(log.scan()) == kept()
            (small_disk / "rest").unlink()
            log.trim(end - 40_000)
    take_the_rest(small_disk / "rest")
    with SegmentLog.open(small_disk / "log", segment_bytes=16 << 10) as log:
        take_the_rest(small_disk / "more")
        assert log.end == end
        assert list(log.scan()) == kept()
        with pytest.raises(Unavailable, match=r"there is no space .*: No space left"):
            log.append(b"x")
        (small_disk / "rest").unlink()
        want.append((log.append(b"x"), b"x"))
        log.sync()
        assert list(log.scan()) == kept()


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with SegmentLog.open(tmp_path, segment_bytes=16 << 10) as log:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
            with pytest.raises(Unavailable, match=r"there is no space .*: File too large"):
                log.append(b"x")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (log.end, files(tmp_path)) == (0, [])
        log.append(b"x")
        log.sync()


CHILD = """
import os, sys, threading
from ps2stream.store.segments import SegmentLog
log = SegmentLog.open(sys.argv[1], segment_bytes=8000)
def sync():
    while True:
        end = log.sync()
        os.write(1, b"%d\\n" % end)
        log.trim(end - 100_000)
threading.Thread(target=sync).start()
while True:
    log.append(b"%d." % log.end * (log.end % 40))
    if len(log._fresh) > 1000:
        log.sync()
"""


@pytest.mark.slow
def test_what_was_reported_as_synced_survives_a_kill(tmp_path: Path) -> None:
    """Records are functions of their position, so that each can be checked."""
    rng = random.Random(7)
    for _ in range(20):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": "."},
        )
        assert child.stdout is not None
        reported = child.stdout.readline()
        threading.Timer(rng.random() / 5, child.send_signal, [signal.SIGKILL]).start()
        reported = (reported + child.stdout.read()).rpartition(b"\n")[0].rpartition(b"\n")[2]
        assert child.wait() == -signal.SIGKILL
        child.stdout.close()
        with SegmentLog.open(tmp_path, segment_bytes=8000) as log:
            assert log.end >= int(reported)
            next_position = log.first
            for position, record in log.scan():
                assert position == next_position
                assert record == b"%d." % position * (position % 40)
                next_position += 8 + len(record)
            assert next_position == log.end
            assert log.first <= max(0, log.end - 100_000)


def test_the_benchmark_measures_and_leaves_nothing(tmp_path: Path) -> None:
    found = run_log(str(tmp_path), seconds=0.01)
    assert [shape["record_bytes"] for shape in found["shapes"]] == [100, 100, 262_144]
    assert all(shape["records_per_second"] > 0 for shape in found["shapes"])
    assert found["verified"] == {"wrong": 0}
    assert list(tmp_path.iterdir()) == []
