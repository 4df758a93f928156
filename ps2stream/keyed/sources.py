"""Sources of a keyed stream: each scheme as one of several sources runs it (algorithms.md 4, 5)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ps2stream.keyed.choice_kernels import (
    NOBODY,
    copy_table,
    place_by_weight,
    route_greedily,
    route_remembered,
)
from ps2stream.keyed.counters import CounterOptions, HotKeyCounters
from ps2stream.keyed.hot_kernels import route_by_choices, route_by_ring
from ps2stream.keyed.ring import HashRing
from ps2stream.keyed.waiting import WaitingTimes
from ps2stream.protocol.frame import F64, I64, U16, U64

FIRST_ROOM = 1 << 10


def draw_seeds(seed: int, n: int) -> U64:
    """Returns the seeds of n hash functions, uint64[n], of which the first are the same for
    every n."""
    return np.random.default_rng([seed, 0]).integers(0, 1 << 63, n).astype(np.uint64)


class KeySource(ABC):
    """A source of a keyed stream, which sends each tuple to a worker and keeps its own state."""

    @abstractmethod
    def route(self, keys: U64, arrivals: F64) -> U16:
        """Returns the worker of each tuple, uint16[n]. keys: uint64[n]; arrivals: float64[n]
        seconds, ascending, which only FISH reads."""

    def correct(self, loads: I64) -> None:  # noqa: B027 (most schemes have no estimate)
        """Takes the true loads of workers in the place of its own estimate (probing)."""


class ShuffleSource(KeySource):
    """Shuffle grouping: round-robin, whatever the key. first: the worker of its first tuple."""

    def __init__(self, workers: int, first: int = 0) -> None:
        self.workers, self.next = workers, first

    def route(self, keys: U64, arrivals: F64) -> U16:
        """Returns the next workers in turn."""
        chosen = (np.arange(self.next, self.next + len(keys)) % self.workers).astype(np.uint16)
        self.next = (self.next + len(keys)) % self.workers
        return chosen


class GreedySource(KeySource):
    """Greedy-d by the loads that this source has made itself; d = 1 hashes, d = 2 is PKG."""

    def __init__(self, workers: int, seed: int, choices: int = 2) -> None:
        self.loads = np.zeros(workers, np.int64)
        self.seeds = draw_seeds(seed, choices)

    def route(self, keys: U64, arrivals: F64) -> U16:
        """Returns the least loaded of each key's choices, the first of equals."""
        chosen = np.empty(len(keys), np.uint16)
        route_greedily(keys, self.seeds, self.loads, chosen)
        return chosen

    def correct(self, loads: I64) -> None:
        """Goes on from the true loads."""
        self.loads[:] = loads


class RememberingSource(KeySource):
    """Schemes that never split a key: its worker is chosen when it first comes, and remembered.

    choices: hashed choices of a new key, of which the least loaded is taken (2: PoTC); 0: the least
    loaded of all workers (On-Greedy). Memory grows with the number of keys.
    """

    def __init__(self, workers: int, seed: int, choices: int) -> None:
        self.loads = np.zeros(workers, np.int64)
        self.seeds = np.r_[draw_seeds(seed + 1, 1), draw_seeds(seed, choices)]
        self.table = np.zeros(FIRST_ROOM, np.uint64)
        self.owner = np.full(FIRST_ROOM, NOBODY, np.uint16)
        self.used = 0

    def place(self, keys: U64, weights: I64) -> None:
        """Places all keys of a stream, uint64[n], distinct, by descending weight, their tuples
        int64[n], the first of equals, before it begins (Off-Greedy). A key that is not among them
        is placed when it comes."""
        while 2 * (self.used + len(keys)) > len(self.table):
            self._make_room()
        order = np.argsort(-weights, kind="stable")
        expected = np.zeros(len(self.loads), np.int64)
        place_by_weight(
            keys[order], weights[order], self.seeds[0], expected, self.table, self.owner
        )
        self.used += len(keys)

    def route(self, keys: U64, arrivals: F64) -> U16:
        """Returns the worker of each key."""
        chosen = np.empty(len(keys), np.uint16)
        begin, self.used = self._route_from(keys, 0, chosen)
        while begin < len(keys):
            self._make_room()
            begin, self.used = self._route_from(keys, begin, chosen)
        return chosen

    def _route_from(self, keys: U64, begin: int, chosen: U16) -> tuple[int, int]:
        found: tuple[int, int] = route_remembered(
            keys, begin, self.seeds, self.loads, self.table, self.owner, self.used, chosen
        )
        return found

    def _make_room(self) -> None:
        table = np.zeros(2 * len(self.table), np.uint64)
        owner = np.full(len(table), NOBODY, np.uint16)
        copy_table(self.table, self.owner, self.seeds[0], table, owner)
        self.table, self.owner = table, owner


class HeadSource(KeySource):
    """D-Choices and W-Choices: PKG for the tail, more hashed choices or all workers for the head
    of the most frequent keys. The options' rule is `single` or `all`."""

    def __init__(self, workers: int, seed: int, options: CounterOptions) -> None:
        self.loads = np.zeros(workers, np.int64)
        self.seeds = draw_seeds(seed, workers)
        self.counters = HotKeyCounters(workers, options, seed)

    def route(self, keys: U64, arrivals: F64) -> U16:
        """Returns the least loaded of each key's choices."""
        chosen = np.empty(len(keys), np.uint16)
        counters = self.counters
        route_by_choices(
            counters.arrays, counters.limits, self.seeds, self.loads, keys, chosen
        )  # fmt: skip
        return chosen

    def correct(self, loads: I64) -> None:
        """Goes on from the true loads."""
        self.loads[:] = loads


class FishSource(KeySource):
    """FISH: recent hot keys, their degrees, the ring, and the least waiting time.

    counters: of this source alone; ring: of the live workers; waiting: of all workers, indexed by
    their numbers on the ring.
    """

    def __init__(self, counters: HotKeyCounters, ring: HashRing, waiting: WaitingTimes) -> None:
        self.counters, self.ring, self.waiting = counters, ring, waiting

    def change_ring(self, ring: HashRing) -> None:
        """Goes on with other workers."""
        self.ring = ring
        self.counters.resize(len(ring.workers))

    def route(self, keys: U64, arrivals: F64) -> U16:
        """Returns the candidate of each key with the least waiting time."""
        chosen = np.empty(len(keys), np.uint16)
        counters, ring = self.counters, self.ring
        route_by_ring(
            counters.arrays, counters.limits, ring.places, ring.order.ravel(), ring.depth,
            ring.key_seed, self.waiting.arrays, keys, self.waiting.advance(arrivals), chosen,
        )  # fmt: skip
        return chosen
