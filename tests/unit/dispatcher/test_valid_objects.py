"""The window of valid objects, against a dictionary."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ps2stream.dispatcher import valid_objects
from ps2stream.dispatcher.valid_objects import GRACE_MS, ValidObjects
from ps2stream.protocol.id_sets import IdSet
from tests.support.valid_objects import Thing, objects


def kept(window: ValidObjects) -> dict[int, tuple[int, int]]:
    """The end and the LSN of each object, by offset."""
    found = {}
    for chunk in window.chunks:
        assert (np.diff(chunk.offset) > 0).all()
        columns = chunk.offset.tolist(), chunk.rows.until.tolist(), chunk.lsn.tolist()
        for offset, until, lsn in zip(*columns, strict=True):
            assert offset not in found
            found[offset] = until, lsn
    return found


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("limit", [0, 2_000, 1 << 30])
def test_what_is_kept_is_all_that_ends_after_the_horizon(
    seed: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valid_objects, "CHUNK_ROWS", 8)
    rng, window, every = random.Random(seed), ValidObjects(limit), dict[int, tuple[int, int]]()
    offset, now, horizon = 0, 0, 0
    for lsn in range(1, 60):
        things: list[Thing] = [
            ("", "x" * rng.randrange(9), rng.choice([0, now + rng.randrange(200_000)]))
            for _ in range(rng.randrange(1, 20))
        ]
        n = len(things)
        window.add(objects(things), np.arange(offset, offset + n), np.full(n, lsn))
        every |= {offset + i: (end, lsn) for i, (_, _, end) in enumerate(things) if end}
        offset += n
        now += rng.randrange(20_000)
        if rng.random() < 0.3:
            window.expire(now)
        if rng.random() < 0.2 and every:
            gone = rng.choice(list(every))
            window.drop(gone)
            del every[gone]
        assert window.horizon >= horizon
        horizon = window.horizon
        assert kept(window) == {at: which for at, which in every.items() if which[0] > horizon}
        assert window.size == sum(chunk.size for chunk in window.chunks) <= max(limit, 0)
    assert limit == 0 or sum(len(c.rows) for c in window.split(1 << 9)) == len(window)


def test_objects_expire_a_while_after_their_end_only() -> None:
    window = ValidObjects(1 << 20)
    things = objects([("a", "", 1_000), ("b", "", 2_000)])
    window.add(things, np.arange(2), np.ones(2, np.int64))
    window.expire(1_000 + GRACE_MS - 1)
    assert (len(window), window.horizon) == (2, 0)
    window.expire(1_000 + GRACE_MS)
    assert (len(window), window.horizon, window.evicted) == (1, 1_000, 0)


def test_what_few_objects_remain_is_in_few_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valid_objects, "CHUNK_ROWS", 16)
    window = ValidObjects(200_000)
    for lsn in range(400):
        things: list[Thing] = [("", "x", lsn + 1)] * 15 + [("", "x", 1 << 40)]
        window.add(objects(things), np.arange(16 * lsn, 16 * lsn + 16), np.full(16, lsn))
    assert window.evicted > 1_000
    assert len(window.chunks) < 150  # 400 have been added
    assert len(kept(window)) == len(window)


def test_withdrawn_objects_are_dropped_and_nothing_is_kept_of_chunks_that_have_ended() -> None:
    window = ValidObjects(1 << 20)
    rows = objects([("a", "x", 1_000), ("b", "x", 900_000), ("a", "x", 900_000)])
    window.add(rows, np.arange(3), np.ones(3, np.int64))
    size = window.size
    assert window.withdraw(IdSet([b"b", b"no"])) == 1
    assert [chunk.offset.tolist() for chunk in window.chunks] == [[0, 2]]
    assert window.size < size
    assert window.horizon == 0  # a withdrawn object is not one that may be missing
    window.expire(1_000 + GRACE_MS)
    assert not window._hashes
    assert window.withdraw(IdSet([b"a"])) == 1
    assert (len(window), window.size, window.chunks) == (0, 0, [])
