"""Each index has a name, a maker and a format of its own."""

from __future__ import annotations

from ps2stream.space.grid import Grid
from ps2stream.workers.indexes import INDEX_NAMES, INDEXES, SNAPSHOT_FORMATS


def test_each_name_makes_an_empty_index() -> None:
    assert list(INDEXES) == list(INDEX_NAMES) == list(SNAPSHOT_FORMATS)
    assert len({type(INDEXES[name](Grid())) for name in INDEX_NAMES}) == len(INDEX_NAMES)
    assert all(INDEXES[name](Grid()).stats()[:3] == (0, 0, 0) for name in INDEX_NAMES)


def test_no_snapshot_is_taken_for_that_of_another_index() -> None:
    assert len(set(SNAPSHOT_FORMATS.values())) == len(INDEX_NAMES)
