"""Which worker of a group holds a posting of a sharded unit."""

from __future__ import annotations

import numpy as np

from ps2stream.routing.h1 import WorkerGroups
from ps2stream.routing.shard_kernels import hash_places
from ps2stream.routing.unit_kernels import FIRST_GROUP
from tests.support.shards import place_of, shard_of

RNG = np.random.default_rng(5)
WORKERS = (3, 0, 7, 5)
GROUPS = WorkerGroups(
    np.array([0, 4, 6]), np.array([*WORKERS, 1, 2], np.uint16), np.array([1, 0], np.uint8)
)


def hashed(boxes: np.ndarray, off: np.ndarray) -> np.ndarray:
    out = np.empty(len(off) - 1, np.uint64)
    bits = boxes.ravel().view(np.uint64)
    off.setflags(write=False)
    bits.setflags(write=False)
    hash_places(off, bits, out)
    return out


def test_the_place_of_a_query_is_a_hash_of_its_first_box() -> None:
    boxes = RNG.uniform(-90, 90, (40, 4))
    boxes[3] = [-0.0, 0.0, -0.0, 1.0]
    boxes[4] = [0.0, -0.0, 0.0, 1.0]
    off = 4 * np.r_[0, 1, np.arange(3, 41)]  # the second has two
    found = hashed(boxes, off).tolist()
    assert found == [place_of(boxes.ravel()[at : at + 4].tolist()) for at in off[:-1]]
    assert found[2] == found[3]  # -0.0 is 0.0
    assert len(set(found)) == len(found) - 1


def test_a_posting_has_one_worker_of_its_group_and_all_have_some() -> None:
    n = 4000
    term, place = RNG.integers(1, 1 << 62, (2, n)).astype(np.uint64)
    place[: n // 2] = np.arange(n // 2)  # alike but for the lowest bits
    holder = np.full(n, FIRST_GROUP, np.uint16)
    found = GROUPS.choose_shards(holder, term, place)
    want = [shard_of(WORKERS, t, p) for t, p in zip(term.tolist(), place.tolist(), strict=True)]
    assert found.tolist() == want
    for part in (found[: n // 2], found[n // 2 :]):
        share = np.bincount(part, minlength=8)[[*WORKERS]] / len(part)
        assert (abs(share - 0.25) < 0.04).all()


def test_other_holders_stay_as_they_are() -> None:
    holder = np.array([FIRST_GROUP + 1, 2, 9], np.uint16)
    some = np.arange(3, dtype=np.uint64)
    assert GROUPS.choose_shards(holder, some, some).tolist() == holder.tolist()


def test_workers_that_join_take_from_all_and_nobody_else_gains() -> None:
    term, place = RNG.integers(1, 1 << 62, (2, 3000)).astype(np.uint64)
    holder = np.full(3000, FIRST_GROUP, np.uint16)
    few = WorkerGroups(np.array([0, 3]), np.array([0, 3, 7], np.uint16), np.ones(1, np.uint8))
    before = few.choose_shards(holder, term, place)
    after = GROUPS.choose_shards(holder, term, place)
    moved = after != before
    assert (after[moved] == 5).all()
    assert set(before[moved].tolist()) == {0, 3, 7}
    assert 0.2 < moved.mean() < 0.3
