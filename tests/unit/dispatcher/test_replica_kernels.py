"""The choice of a replica, against loops over sets and lists."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from ps2stream.dispatcher import replica_kernels as kernels
from ps2stream.protocol.frame import F64

WORKERS = 70
GROUPS = [(3, 69), (0, 1, 64), (2, 3, 4, 5), (4, 64, 69)]
SHARDED = {3}
OFF = np.cumsum([0, *map(len, GROUPS)])
MEMBERS = np.array([w for g in GROUPS for w in g], np.uint16)
KINDS = np.array([g in SHARDED for g in range(len(GROUPS))], np.uint8)


def choose_by_hand(
    chosen: list[list[set[int]]],
    met: list[list[list[int]]],
    waits: list[float],
    time: float,
) -> None:
    """Adds to the workers that each term of each object has chosen those of the groups it met."""
    for terms, groups in zip(chosen, met, strict=True):
        for own, numbers in zip(terms, groups, strict=True):
            own.update(w for number in SHARDED & {*numbers} for w in GROUPS[number])
    last, lead = -1, sum(waits) / len(waits)
    for terms, groups in zip(chosen, met, strict=True):
        sent = set[int]().union(*terms)
        for worker in sorted(sent):
            waits[worker] += time
        for own, numbers in zip(terms, groups, strict=True):
            for number in (number for number in numbers if number not in SHARDED):
                group = GROUPS[number]
                if own & {*group}:
                    continue
                some = [w for w in group if w in sent] or list(group)
                best = min(some, key=lambda w: waits[w])
                if best not in sent:
                    if last in group and waits[last] <= waits[best] + lead:
                        best = last
                    last = best
                own.add(best)
                if best not in sent:
                    sent.add(best)
                    waits[best] += time


@pytest.mark.parametrize("seed", range(12))
def test_each_object_goes_to_one_of_a_group_or_to_all_that_shard_a_unit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, levels = 40, 3
    size = rng.choice([0, 1, 3, 9], n)
    skipped = seed % 2 * 5
    off = skipped + np.r_[0, np.cumsum(size)]
    few = [0, 1, 2, 3, 64, 69]
    chosen = [
        [{int(w) for w in rng.choice(few, 2) if rng.random() < 0.2} for _ in range(k)] for k in size
    ]
    met = [
        [[int(g) for g in rng.integers(0, 4, levels) if rng.random() < 0.4] for _ in range(k)]
        for k in size
    ]
    by_term = np.zeros((int(size.sum()), 2), np.uint64)
    by_group = np.zeros((levels, int(size.sum())), np.uint16)
    flat = [
        (own, groups)
        for row in zip(chosen, met, strict=True)
        for own, groups in zip(*row, strict=True)
    ]
    for k, (own, groups) in enumerate(flat):
        for w in own:
            by_term[k, w >> 6] |= np.uint64(1 << (w & 63))
        for level, g in enumerate(groups):
            by_group[level, k] = g + 1
    waits = rng.integers(0, 50, WORKERS) / 1.0
    known = waits.tolist()
    kernels.choose_replicas(by_term, by_group, off, (OFF, MEMBERS, KINDS), waits, 1.5)
    choose_by_hand(chosen, met, known, 1.5)
    for k, (own, _) in enumerate(flat):
        mask = int(by_term[k, 0]) | int(by_term[k, 1]) << 64
        assert {w for w in range(WORKERS) if mask >> w & 1} == own
    assert waits.tolist() == known


def list_choices(n: int, waits: F64) -> list[int]:
    """Returns the worker of group 1 to which each of n objects of its unit goes."""
    by_term, by_group = np.zeros((n, 2), np.uint64), np.full((1, n), 2, np.uint16)
    kernels.choose_replicas(by_term, by_group, np.arange(n + 1), (OFF, MEMBERS, KINDS), waits, 2.0)
    bits = {w: by_term[:, w >> 6] >> np.uint64(w & 63) & np.uint64(1) for w in GROUPS[1]}
    assert sum(bits.values()).tolist() == [1] * n  # type: ignore[union-attr]
    return [next(w for w, of in bits.items() if of[i]) for i in range(n)]


def test_objects_of_one_unit_go_where_they_wait_least() -> None:
    """Until all wait about equally long, and then in turns."""
    waits = np.zeros(WORKERS)
    waits[64] = 120.0
    found = Counter(list_choices(300, waits))
    assert all(abs(found[w] - n) <= 1 for w, n in zip(GROUPS[1], (120, 120, 60), strict=True))


def test_objects_of_a_busy_stream_stay_together() -> None:
    waits = np.full(WORKERS, 500.0)
    found = list_choices(1000, waits)
    runs = 1 + sum(a != b for a, b in itertools.pairwise(found))
    assert runs <= 1 + 1000 * 2.0 / 500.0
    assert float(np.ptp(waits[list(GROUPS[1])])) <= 500.0 + 2.0


def test_the_queries_of_a_sharded_unit_count_in_equal_parts() -> None:
    met = np.zeros(WORKERS, np.int64)
    kernels.count_group(np.int64(8), np.int64(3), 7, (OFF, MEMBERS, KINDS), met)
    assert met[[*GROUPS[3]]].tolist() == [3, 3, 2]
    assert met.sum() == 8
    kernels.count_group(np.int64(5), np.int64(1), 7, (OFF, MEMBERS, KINDS), met)
    assert met[GROUPS[1][7 % 3]] == 5
