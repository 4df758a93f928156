"""One batch under way: its size, when it is complete, and which deaths it is blamed for."""

from __future__ import annotations

from ps2stream.dispatcher.open_batch import DEATHS, LEAST_BYTES, ROWS, TEXT_BYTES, OpenBatch
from tests.support.desk import rows


def test_a_full_batch_has_its_size_by_rows_and_none_is_smaller_than_the_least() -> None:
    assert OpenBatch(1, rows(ROWS), 0, {}, suspect=False).size == TEXT_BYTES
    assert OpenBatch(1, rows(1), 0, {}, suspect=False).size == LEAST_BYTES


def test_a_batch_is_complete_once_nothing_is_awaited() -> None:
    open_ = OpenBatch(1, rows(1), 0, {}, suspect=False)
    assert open_.is_complete
    open_.releases.add(4)
    assert not open_.is_complete


def test_deaths_make_a_batch_a_suspect_and_then_it_must_have_been_begun() -> None:
    open_ = OpenBatch(1, rows(2), 0, {}, suspect=False)
    for _ in range(DEATHS):
        assert not open_.suspect
        open_.count_death(begun=False)
    assert open_.suspect
    open_.count_death(begun=False)
    assert not open_.is_fatal
    open_.count_death(begun=True)
    assert open_.is_fatal
