"""A session's backlog against a list of its places, and the memory that it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.merger.backlog import BacklogPlace, SessionBacklog
from ps2stream.merger.journal import MatchJournal
from ps2stream.store.segments import SegmentLog
from tests.support.memory_log import MemoryLog


@pytest.mark.takes_turns
@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 20), max_size=60), st.data())
def test_a_backlog_finds_and_drops(steps: list[int], data: st.DataObject) -> None:
    """With blocks of two rows, so that there are many levels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ps2stream.merger.backlog.BLOCK", 2)
        patch.setattr("ps2stream.merger.journal.CACHE_BYTES", 100)
        backlog, twin = SessionBacklog(1, MatchJournal(MemoryLog())), list[BacklogPlace]()
        following, position = 1, 0
        for step in steps:
            for _ in range(step):
                pairs = data.draw(st.integers(1, 3))
                place = BacklogPlace(position, following, following + pairs - 1, position % 7)
                backlog.append(*place)
                twin.append(place)
                following, position = following + pairs, position + 1
            number = data.draw(st.integers(max(0, following - 60), following - 1))
            backlog.drop(number)
            twin = [place for place in twin if place.last > number]
            assert backlog.oldest == (twin[0] if twin else None)
            assert backlog.size == sum(place.size for place in twin)
            for place in twin:
                assert backlog.find(place.first) == backlog.find(place.last) == place
            for missing in (0, following):
                with pytest.raises(KeyError):
                    backlog.find(missing)
            assert backlog.held_bytes < 4_000


def test_a_backlog_of_a_day_takes_no_more_memory_than_one_of_minutes(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path) as log:
        backlog = SessionBacklog(1, MatchJournal(log))
        for i in range(200_000):
            backlog.append(i, i + 1, i + 1, 10)
        assert backlog.held_bytes < 40_000
        backlog.drop(100_000)
        place = backlog.oldest
        assert place is not None
        assert (place.position, backlog.size) == (100_000, 1_000_000)
        assert backlog.held_bytes < 50_000
