"""Room for matches grows and keeps what it holds."""

from __future__ import annotations

import numpy as np

from ps2stream.workers.radix.arrays import RadixMatches


def test_room_for_matches_is_doubled() -> None:
    room = RadixMatches(np.arange(4, dtype=np.uint32), *(np.arange(4) + i for i in range(4)))
    grown = room.grow()
    assert [len(getattr(grown, name)) for name in RadixMatches._fields] == [8] * 5
    for name in RadixMatches._fields:
        old, new = getattr(room, name), getattr(grown, name)
        assert new.dtype == old.dtype
        assert (new[:4] == old).all()
