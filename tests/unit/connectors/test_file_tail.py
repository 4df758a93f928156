"""ps2stream/connectors/file_tail.py: growth, renames, truncation, and restarts amid them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ps2stream.connectors import file_tail
from ps2stream.connectors.file_tail import CsvRecords, FilePlace, FileTail, TailLine
from ps2stream.errors import InvalidArgument


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was replaced does not grow any more."""
    monkeypatch.setattr(file_tail, "SETTLE_S", 0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "posts.log"
    found.write_bytes(b"one\ntwo\npart")
    return found


def drained(tail: FileTail) -> list[bytes | None]:
    """All lines that are there now, in the files that follow, too."""
    out: list[bytes | None] = []
    idle = 0
    while idle < 3:  # a replacement is noticed first, and followed at the next look
        if lines := tail.read_lines():
            out += [line.data for line in lines]
        idle = 0 if lines or tail.go_on() else idle + 1
    return out


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_last_line_without_its_end_waits_or_counts(path: Path) -> None:
    tail = FileTail(path, FilePlace(), ends_partial=False)
    assert drained(tail) == [b"one", b"two"]
    append(path, b"ial\nfo")
    assert drained(tail) == [b"partial"]
    tail.close()
    whole = FileTail(path, FilePlace(), ends_partial=True)
    assert drained(whole) == [b"one", b"two", b"partial", b"fo"]
    whole.close()


def test_a_renamed_file_is_read_to_its_end_and_then_the_new_one(path: Path) -> None:
    tail = FileTail(path, FilePlace(), ends_partial=False)
    assert drained(tail) == [b"one", b"two"]
    old = path.rename(path.with_name("posts.log.1"))
    assert drained(tail) == []  # nobody made the new one yet
    append(old, b"ial\nlate\nno end")
    path.write_bytes(b"new\n")
    assert drained(tail) == [b"partial", b"late", b"no end", b"new"]
    tail.close()


def test_a_truncated_file_is_read_from_its_beginning(path: Path) -> None:
    tail = FileTail(path, FilePlace(), ends_partial=False)
    assert drained(tail) == [b"one", b"two"]
    path.write_bytes(b"x\n")
    assert drained(tail) == [b"x"]
    path.write_bytes(b"another beginning, and longer than before\n")
    assert drained(tail) == [b"another beginning, and longer than before"]
    tail.close()


def test_a_restart_goes_on_through_all_files_that_came_meanwhile(path: Path) -> None:
    tail = FileTail(path, FilePlace(), ends_partial=False)
    [first, _] = tail.read_lines()
    place = tail.place(first.end)
    tail.close()
    append(path, b"ial\n")
    path.rename(path.with_name("posts.log.2"))
    for name, data in (("posts.log.1", b"middle\n"), ("posts.log", b"newest\n")):
        path.with_name(name).write_bytes(data)
    tail = FileTail(path, place, ends_partial=False)
    assert drained(tail) == [b"two", b"partial", b"middle", b"newest"]
    tail.close()


def test_a_place_in_a_file_that_is_gone_is_no_place_in_another(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tail = FileTail(path, FilePlace(), ends_partial=False)
    [*_, last] = tail.read_lines()
    place = tail.place(last.end)
    tail.close()
    path.write_bytes(b"other\nlines\nof the same inode\n")
    tail = FileTail(path, place, ends_partial=False)
    assert drained(tail) == [b"other", b"lines", b"of the same inode"]
    assert "is gone" in caplog.text
    tail.close()


def test_lines_beyond_the_limit_take_no_memory_and_hide_no_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tail, "LINE_BYTES", 10)
    monkeypatch.setattr(file_tail, "READ_BYTES", 4)
    path.write_bytes(b"a" * 10 + b"\n" + b"b" * 100 + b"\nshort\n" + b"c" * 11 + b"\nlast\n")
    tail = FileTail(path, FilePlace(), ends_partial=False)
    assert drained(tail) == [b"a" * 10, None, b"short", None, b"last"]
    tail.close()


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="No such file"):
        FileTail(tmp_path / "none", FilePlace(), ends_partial=True)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(InvalidArgument, match="not a regular file"):
            FileTail(path, FilePlace(), ends_partial=True)


def test_a_quoted_cell_goes_over_the_end_of_a_line() -> None:
    lines = [b'1,"two', b"lines", b'"', b"2,x", b'3,"open']
    ends = [sum(len(line) + 1 for line in lines[: i + 1]) for i in range(len(lines))]
    starts = [0, *ends[:-1]]
    records = CsvRecords()
    made = [TailLine(*each, 1) for each in zip(lines, starts, ends, strict=True)]
    found = list(records.join_lines(made[:2])) + list(records.join_lines(made[2:]))
    assert [(r.data, r.start, r.end) for r in found] == [
        (b'1,"two\nlines\n"', 0, ends[2]),
        (b"2,x", ends[2], ends[3]),
    ]
    assert [r.data for r in records.flush()] == [b'3,"open']
    assert not list(records.flush())
