"""Damage of a segment log's files is told, or does no harm: no record is ever lost or wrong
without a word."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ps2stream.errors import DataDirectoryError
from ps2stream.store import frames
from ps2stream.store.disk import Disk
from ps2stream.store.segments import SegmentLog
from tests.sim.disk import SimDisk

PATH = Path("/log")
SIZE = 130  # bytes of a segment: one to four records
Files = dict[str, bytes]
Records = list[tuple[int, bytes]]


def write(disk: Disk | None, path: Path, owners: int) -> Records:
    """A log of several segments by several owners, the last of which was killed."""
    want: Records = []
    for owner in range(owners):
        log = SegmentLog.open(path, disk, SIZE)
        for k in range(9):
            record = b"%d-%d " % (owner, k) * (k + 1)
            want.append((log.append(record), record))
            if k % 2:
                log.sync()
        log.sync()
        log._held.close()
    return want


def left(owners: int, idle: bool) -> tuple[Files, Records]:
    """Its files; with `idle`, one more owner came and wrote nothing."""
    disk = SimDisk(random.Random(1))
    want = write(disk, PATH, owners)
    if idle:
        SegmentLog.open(PATH, disk, SIZE).close()
    return disk.contents(PATH), want


def read_all(files: Files, want: Records) -> Records | DataDirectoryError:
    disk = SimDisk(random.Random(1))
    disk.lock(PATH).close()
    for name, data in files.items():
        disk.put(PATH / name, data)
    try:
        log = SegmentLog.open(PATH, disk, SIZE)
    except DataDirectoryError as error:
        same = disk.contents(PATH) == files
        return error if same else DataDirectoryError("refused, but not left as it was")
    try:
        found = list(log.scan())
    except DataDirectoryError as error:
        return error
    assert [(position, log.read(position)) for position, _ in found] == found
    assert log.append(b"more") == log.end - 12 == want[-1][0] + 8 + len(want[-1][1])
    log.sync()
    log.close()
    with SegmentLog.open(PATH, disk, SIZE) as log:
        assert list(log.scan())[:-1] == found
    return found


def used(name: str, data: bytes) -> int:
    """How many bytes at the beginning mean something."""
    return len(data) if name == "mark" else len(data.rstrip(b"\0"))


def flips(files: Files) -> Iterator[tuple[str, int, Files]]:
    for name, data in files.items():
        for at in range(len(data)):
            for bit in range(8):
                bad = bytearray(data)
                bad[at] ^= 1 << bit
                yield name, at, {**files, name: bytes(bad)}


@pytest.mark.takes_turns
@pytest.mark.parametrize("idle", [False, True])
def test_every_flipped_bit(idle: bool) -> None:
    files, want = left(2, idle)
    assert len(files) == 7
    for name, at, bad in flips(files):
        found = read_all(bad, want)
        if at < used(name, files[name]):
            assert isinstance(found, DataDirectoryError), (name, at)
            assert f"{PATH}/" in str(found)
            assert "Restore a copy" in str(found) or "name each file" in str(found)
        else:
            assert found == want, (name, at)


@pytest.mark.parametrize("idle", [False, True])
def test_every_truncation(idle: bool) -> None:
    files, want = left(2, idle)
    for name, data in files.items():
        for size in range(len(data)):
            found = read_all({**files, name: data[:size]}, want)
            if size < used(name, data):
                assert isinstance(found, DataDirectoryError), (name, size)
            else:
                assert found == want, (name, size)


@pytest.mark.parametrize("idle", [False, True])
def test_a_missing_file(idle: bool) -> None:
    files, want = left(2, idle)
    for name in files:
        found = read_all({n: data for n, data in files.items() if n != name}, want)
        if name == "mark":
            assert found == want  # as the messages say: this goes on with what there is
        else:
            assert isinstance(found, DataDirectoryError), name
    assert isinstance(read_all({"mark": files["mark"]}, want), DataDirectoryError)


def test_files_that_changed_places() -> None:
    files, want = left(2, False)
    names = sorted(files.keys() - {"mark"})
    for a in names:
        for b in names:
            found = read_all({**files, a: files[b]}, want)
            assert found == want if a == b else isinstance(found, DataDirectoryError), (a, b)


def test_a_header_says_that_all_before_it_is_durable() -> None:
    """Also when there is no mark to say so, and nothing follows the header."""
    files, want = left(2, False)
    del files["mark"]
    *_, before, last = sorted(files)
    files[last] = files[last][: frames.HEADER].ljust(SIZE, b"\0")
    start = int.from_bytes(files[last][24:32], "little")
    want = [pair for pair in want if pair[0] < start]
    assert read_all(files, want) == want
    at = used(before, files[before]) - 1
    files[before] = files[before][:at] + b"\xff" + files[before][at + 1 :]
    found = read_all(files, want)
    assert isinstance(found, DataDirectoryError)
    assert f"it should continue to {start}" in str(found)


def test_a_truncated_segment_is_noticed_at_once(tmp_path: Path) -> None:
    write(None, tmp_path, 2)
    first = tmp_path / "000000000001.segment"
    first.write_bytes(first.read_bytes()[:100])
    with pytest.raises(DataDirectoryError, match=r"000000000001.segment: .*it should continue to"):
        SegmentLog.open(tmp_path)


def test_a_mark_or_a_name_that_is_anothers() -> None:
    files, want = left(1, False)
    other, _ = left(2, True)
    assert isinstance(read_all({**files, "mark": other["mark"]}, want), DataDirectoryError)
    only = {"000000000002.segment": files["000000000001.segment"]}
    found = read_all(only, want)
    assert isinstance(found, DataDirectoryError)
    assert "contains segment 1, so it was renamed" in str(found)


def test_a_segment_that_a_stopped_process_began_is_not_taken_for_the_owners() -> None:
    """It looked at the mark, was stopped, and goes on when another owner has found the end."""
    files, want = left(1, True)
    start, _ = want[-1]
    number = len(files)
    late = [frames.SegmentHeader(number, start).encode(), *frames.frames([start], [b"late"])]
    found = read_all({**files, f"{number:012}.segment": b"".join(late)}, want)
    assert isinstance(found, DataDirectoryError)
    assert f"it should begin at {start + 8 + len(want[-1][1])}" in str(found)


def test_frames_that_were_copied_behind_the_end_are_no_records() -> None:
    files, want = left(1, False)
    name = max(files.keys() - {"mark"})
    data = files[name]
    end = used(name, data)
    for start in range(frames.HEADER, end):
        rest = data[start : start + len(data) - end]
        assert read_all({**files, name: data[:end] + rest}, want) == want


def test_garbage_behind_the_end_of_a_file() -> None:
    files, want = left(2, True)
    garbage = random.Random(3).randbytes(1000)
    for name, data in files.items():
        found = read_all({**files, name: data + garbage}, want)
        assert isinstance(found, DataDirectoryError) if name == "mark" else found == want


def test_a_removed_mark_gives_up_the_damaged_end_alone() -> None:
    """What the message about it advises."""
    files, want = left(1, False)
    name = max(files.keys() - {"mark"})
    at = used(name, files[name]) - 1
    bad = files | {name: files[name][:at] + b"\xff" + files[name][at + 1 :]}
    found = read_all(bad, want)
    assert isinstance(found, DataDirectoryError)
    assert "to continue without the rest, remove /log/mark" in str(found)
    del bad["mark"]
    disk = SimDisk(random.Random(1))
    disk.lock(PATH).close()
    for name, data in bad.items():
        disk.put(PATH / name, data)
    with SegmentLog.open(PATH, disk) as log:
        assert list(log.scan()) == want[:-1]


def test_every_flipped_byte_on_a_real_disk(tmp_path: Path) -> None:
    want = write(None, tmp_path, 1)
    files = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    told = 0
    for name, data in files.items():
        for at in range(len(data)):
            for p in tmp_path.iterdir():
                if p.name not in files:
                    p.unlink()
            for other, good in files.items():
                (tmp_path / other).write_bytes(good)
            (tmp_path / name).write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
            try:
                with SegmentLog.open(tmp_path) as log:
                    assert list(log.scan()) == want
            except DataDirectoryError:
                told += 1
    assert told == sum(used(n, data) for n, data in files.items() if n != "lock")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda d: d[:50] + b"\xff" + d[51:], r"000000000001.segment: .* position 0 \(byte 32 "),
        (lambda d: d[:40], "position 0 .*no intact record begins there"),
    ],
)
def test_damage_beside_a_running_owner(
    harm: Callable[[bytes], bytes], message: str, tmp_path: Path
) -> None:
    with SegmentLog.open(tmp_path, segment_bytes=100) as log:
        at = [log.append(bytes([k]) * 50) for k in range(3)]
        log.sync()
        first = tmp_path / "000000000001.segment"
        first.write_bytes(harm(first.read_bytes()))
        with pytest.raises(DataDirectoryError, match=message):
            log.read(at[0])
        with pytest.raises(DataDirectoryError, match=message):
            list(log.scan())
        assert log.read(at[1]) == bytes([1]) * 50
        (tmp_path / "000000000002.segment").unlink()
        with pytest.raises(DataDirectoryError, match=r"000000000002.segment cannot be read"):
            list(log.scan(at[1]))


@pytest.mark.parametrize(("other", "age"), [(2, "newer"), (0, "older")])
def test_another_format_is_refused(
    other: int, age: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "FORMAT", other)
    write(None, tmp_path, 1)
    monkeypatch.undo()
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(DataDirectoryError, match=f"format {other}, {age} than 1"):
        SegmentLog.open(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
