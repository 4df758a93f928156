"""Epoch-decayed SpaceSaving counters with the degrees of hot keys (algorithms.md 5.1 and 5.2)."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from ps2stream.keyed.counter_kernels import (
    ALL,
    CHK,
    DEGREE,
    EPOCH,
    HOT,
    I32,
    NO_PLACE,
    SINGLE,
    STEP,
    TOTAL,
    USED,
    CounterArrays,
    DegreeLimits,
    count_hot,
    count_keys,
    read_frequencies,
)
from ps2stream.protocol.frame import F64, U64

HotRule = Literal["chk", "all", "single"]
RULES: dict[HotRule, int] = {"chk": CHK, "all": ALL, "single": SINGLE}


@dataclasses.dataclass(frozen=True)
class CounterOptions:
    """The parameters of counters, with FISH's values.

    alpha: by which counts are multiplied after each epoch, 0 to 1; epoch: tuples; capacity: keys
    that are counted at once (Kmax); theta: frequency above which a key is hot, None for
    1 / (4 workers); rule: chk (FISH), all (W-Choices) or single (D-Choices); cool: epochs after
    which a degree falls that no tuple has required since.
    """

    alpha: float = 0.2
    epoch: int = 1000
    capacity: int = 1000
    theta: float | None = None
    rule: HotRule = "chk"
    cool: int = 10

    def __post_init__(self) -> None:
        """Raises ValueError for a parameter out of its range."""
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha must be between 0 and 1, not {self.alpha}")
        if min(self.epoch, self.capacity) < 1 or self.cool < 0:
            raise ValueError("epoch and capacity must be at least 1, and cool at least 0")

    def limits(self, workers: int) -> DegreeLimits:
        """Returns what the kernels take, for a number of workers."""
        theta = 1.0 / (4.0 * workers) if self.theta is None else self.theta
        rule = RULES[self.rule]
        return DegreeLimits(float(self.alpha), float(theta), self.epoch, rule, workers, self.cool)


class HotKeyCounters:
    """The counters of one source: which keys are hot in the recent past, and how many workers each
    should have. Memory is bounded by the capacity, and a tuple costs O(log capacity) at most but
    for one pass in some hundred epochs.

    workers: number of workers; seed: of the table's hash, 64-bit unsigned.
    """

    def __init__(self, workers: int, options: CounterOptions | None = None, seed: int = 0) -> None:
        options = options or CounterOptions()
        n = options.capacity
        self.options = options
        self.limits = options.limits(workers)
        self.arrays = CounterArrays(
            key=np.zeros(n, np.uint64), counts=np.zeros(n), degree=np.zeros(n, np.int32),
            needed=np.zeros(n, np.int64), heap=np.zeros(n, np.int32),
            place=np.zeros(n, np.int32), table=np.zeros(1 << (2 * n - 1).bit_length(), np.int32),
            hot=np.zeros(n, np.int32), hot_place=np.full(n, NO_PLACE, np.int32),
            head=np.zeros(n), whole=np.zeros(5, np.int64), real=np.zeros(3),
            seed=np.array([seed], np.uint64),
        )  # fmt: skip
        self.arrays.real[STEP] = 1.0
        self.arrays.whole[DEGREE] = min(2, workers)

    @property
    def total(self) -> float:
        """The sum of all counts, that is, the decayed number of tuples."""
        return float(self.arrays.real[TOTAL] / self.arrays.real[STEP])

    @property
    def epoch(self) -> int:
        """The number of epochs that have ended."""
        return int(self.arrays.whole[EPOCH])

    def resize(self, workers: int) -> None:
        """Goes on with another number of workers; degrees follow it from the next tuple on."""
        self.limits = self.options.limits(workers)
        np.minimum(self.arrays.degree, workers, out=self.arrays.degree)
        self.arrays.whole[DEGREE] = min(int(self.arrays.whole[DEGREE]), workers)

    def count(self, keys: U64) -> I32:
        """Counts keys, uint64[n], in their order. Returns the number of candidates of each at its
        tuple, int32[n]: 2 for one that is not hot."""
        degrees = np.empty(len(keys), np.int32)
        count_keys(self.arrays, self.limits, keys, degrees)
        return degrees

    def frequencies(self, keys: U64) -> F64:
        """Returns the frequency of each key, float64[n]; 0 where it has no counter."""
        out = np.empty(len(keys))
        read_frequencies(self.arrays, keys, out)
        return out

    def counts(self) -> tuple[U64, F64]:
        """Returns (keys uint64[n], decayed counts float64[n]) of all counters."""
        used = self.arrays.whole[USED]
        return self.arrays.key[:used].copy(), self.arrays.counts[:used] / self.arrays.real[STEP]

    def hot(self) -> tuple[U64, F64, I32]:
        """Returns (keys uint64[h], frequencies float64[h], degrees int32[h]) of the keys that are
        hot now, the most frequent first."""
        count_hot(self.arrays, self.limits.theta, self.limits.rule)
        slot = self.arrays.hot[: self.arrays.whole[HOT]]
        slot = slot[np.argsort(-self.arrays.counts[slot], kind="stable")]
        share = self.arrays.counts[slot] / self.arrays.real[TOTAL]
        degree = {ALL: self.limits.workers, SINGLE: int(self.arrays.whole[DEGREE])}
        fixed = degree.get(self.limits.rule)
        held = self.arrays.degree[slot]
        return self.arrays.key[slot], share, held if fixed is None else np.full_like(held, fixed)
