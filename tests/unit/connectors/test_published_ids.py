"""The ids that a source has published: those that it remembers, also after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from ps2stream.connectors import published_ids
from ps2stream.connectors.published_ids import PublishedIds
from ps2stream.errors import InvalidArgument


def test_ids_are_remembered_once_saved_and_a_cut_end_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    ids = PublishedIds(path)
    ids.add(["a", "b", "a"])
    ids.save()
    ids.add(["c"])
    assert "c" in ids
    with path.open("ab") as file:
        file.write(b"cut")
    again = PublishedIds(path)
    assert [id in again for id in "abc"] == [True, True, False]
    again.add(["d"])
    again.save()
    assert [id in PublishedIds(path) for id in "abcd"] == [True, True, False, True]


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_oldest_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    monkeypatch.setattr(published_ids, "MOST_IDS", 3)
    path = tmp_path / "ids"
    ids = PublishedIds(path if is_kept else None)
    for number in range(6):
        ids.add([f"{number}"])
        ids.save()
    assert [f"{number}" in ids for number in range(6)] == [False] * 3 + [True] * 3
    assert path.exists() is is_kept
    if is_kept:
        assert path.stat().st_size == 48
        assert "5" in PublishedIds(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="state"):
        PublishedIds(tmp_path)
