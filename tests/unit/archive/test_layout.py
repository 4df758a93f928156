"""The files of an archive: their names, their documents, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.archive.layout import (
    COMPACTED,
    HEAD,
    MANIFEST,
    MARK,
    MOST_GAPS,
    ArchiveMark,
    ArchivePoint,
    CompactedFile,
    CompactedManifest,
    RawFile,
    dispatcher_folder,
    encode_head,
    is_archive,
    read_snapshot,
)
from ps2stream.errors import InvalidArgument

OFFSETS = st.integers(0, (1 << 62) - 1)


@given(st.integers(0, 999_999), OFFSETS, OFFSETS)
def test_a_name_says_what_a_file_has_and_sorts_as_its_offsets(
    series: int, first: int, end: int
) -> None:
    file = RawFile(series, first, end)
    assert RawFile.parse(file.name) == file
    assert RawFile.parse(file.name + ".new") is None
    other = RawFile(0, end, first)
    assert (file.name < other.name) == (file < other)


def make_archive(path: Path) -> Path:
    """An archive with files up to offset 30, of which 20 are complete and 10 compacted."""
    folder = dispatcher_folder(path, 7)
    folder.mkdir(parents=True)
    (path / HEAD).write_bytes(encode_head())
    (folder / MARK).write_bytes(ArchiveMark(7, "log", offset=20).encode())
    for first in (0, 10, 20):
        (folder / RawFile(0, first, first + 10).name).write_bytes(b"")
    (folder / (RawFile(0, 30, 40).name + ".new")).write_bytes(b"")
    (path / COMPACTED).mkdir()
    manifest = CompactedManifest(
        3,
        {7: ArchivePoint(0, 10)},
        (CompactedFile("000003/a", 5, 9, 100, "objects"), CompactedFile("b", 5, 9, 9, "terms")),
        (9, 8),
    )
    (path / COMPACTED / MANIFEST).write_bytes(manifest.encode())
    return path


def test_a_snapshot_has_what_is_complete_once(tmp_path: Path) -> None:
    path = make_archive(tmp_path / "archive")
    assert is_archive(path)
    assert not is_archive(tmp_path)
    found = read_snapshot(path)
    folder = dispatcher_folder(path, 7)
    assert found.files == [path / COMPACTED / "000003/a", folder / RawFile(0, 10, 20).name]
    assert found.superseded == [folder / RawFile(0, 0, 10).name]
    assert found.manifest.bits == (9, 8)
    assert [mark.partition for mark in found.marks] == [7]


@pytest.mark.parametrize("name", [HEAD, f"dispatcher-7/{MARK}", f"{COMPACTED}/{MANIFEST}"])
@pytest.mark.parametrize(
    ("was", "now", "problem"),
    [
        (b'"format": 1', b'"format": 9', "has the format 9; this version reads and writes"),
        (b'"format": 1', b'"former": 1', "is damaged"),
        (b"{", b"", "is damaged"),
    ],
)
def test_what_is_damaged_or_of_another_format_is_refused(
    tmp_path: Path, name: str, was: bytes, now: bytes, problem: str
) -> None:
    path = make_archive(tmp_path / "archive")
    document = path / name
    document.write_bytes(document.read_bytes().replace(was, now, 1))
    with pytest.raises(InvalidArgument, match=problem) as error:
        read_snapshot(path)
    assert str(document) in str(error.value)


def test_a_mark_remembers_so_many_gaps_and_all_that_was_lost() -> None:
    mark = ArchiveMark(0, "log")
    for at in range(MOST_GAPS + 5):
        mark = dataclasses.replace(mark, offset=10 * at + 9).add_gap(10 * at, 2)
        assert mark.add_gap(10 * at, 2) is mark
    assert len(mark.gaps) == MOST_GAPS
    assert mark.gaps[-1].first == 10 * (MOST_GAPS + 4)
    assert mark.lost == 2 * (MOST_GAPS + 5)
    assert ArchiveMark.decode(mark.encode(), Path()) == mark
