"""Naive twins of the schemes of keyed streams: dictionaries, loops and eager decay."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

WORD = 2**64 - 1


def murmur64a(data: bytes, seed: int) -> int:
    """MurmurHash64A as its author wrote it, for whole words."""
    m, r = 0xC6A4A7935BD1E995, 47
    h = seed ^ (len(data) * m & WORD)
    for (k,) in struct.iter_unpack("<Q", data):
        k = k * m & WORD
        k ^= k >> r
        k = k * m & WORD
        h = (h ^ k) * m & WORD
    h ^= h >> r
    h = h * m & WORD
    return h ^ h >> r


def hashed(key: int, seed: int) -> int:
    return murmur64a(struct.pack("<Q", key), seed)


def hash_to(key: int, seed: int, n: int) -> int:
    return (hashed(key, seed) >> 32) * n >> 32


def choices_of(key: int, seeds: Sequence[int], n: int, d: int) -> list[int]:
    """The first d choices; the second is hashed anew until it differs from the first."""
    out = [hash_to(key, seed, n) for seed in seeds[:d]]
    tries = 1
    while d > 1 and n > 1 and out[1] == out[0] and tries <= 64:
        out[1] = hash_to(key, (seeds[1] + tries) & WORD, n)
        tries += 1
    if d > 1 and n > 1 and out[1] == out[0]:
        out[1] = (out[0] + 1) % n
    return out


def least(workers: Sequence[int], loads: Sequence[float]) -> int:
    return min(workers, key=lambda w: loads[w])


class NaiveGreedy:
    def __init__(self, n: int, seeds: Sequence[int]) -> None:
        self.n, self.seeds, self.loads = n, seeds, [0] * n

    def route(self, key: int) -> int:
        best = least(choices_of(key, self.seeds, self.n, len(self.seeds)), self.loads)
        self.loads[best] += 1
        return best


class NaiveMemory:
    """PoTC with seeds, On-Greedy without; `place` makes it Off-Greedy."""

    def __init__(self, n: int, seeds: Sequence[int]) -> None:
        self.n, self.seeds, self.loads = n, seeds, [0] * n
        self.owner: dict[int, int] = {}

    def place(self, counts: dict[int, int]) -> None:
        expected = [0] * self.n
        for key in sorted(counts, key=lambda key: -counts[key]):
            self.owner[key] = least(range(self.n), expected)
            expected[self.owner[key]] += counts[key]

    def route(self, key: int) -> int:
        if key not in self.owner:
            d = len(self.seeds)
            open_to = choices_of(key, self.seeds, self.n, d) if d else range(self.n)
            self.owner[key] = least(open_to, self.loads)
        self.loads[self.owner[key]] += 1
        return self.owner[key]


class NaiveCounters:
    """Algorithms 1 and 2, with eager decay and searches through all counters."""

    def __init__(
        self, n: int, alpha: float, epoch: int, capacity: int, theta: float, rule: str, cool: int
    ) -> None:
        self.n, self.alpha, self.epoch, self.capacity = n, alpha, epoch, capacity
        self.theta, self.rule, self.cool = theta, rule, cool
        self.slots: list[int] = []
        self.count: dict[int, float] = {}
        self.degree: dict[int, int] = {}
        self.needed: dict[int, int] = {}
        self.total, self.in_epoch, self.number = 0.0, 0, 0
        self.least = min(2, n)

    def is_hot(self, key: int) -> bool:
        f = self.count[key] / self.total if self.total else 0.0
        return f > self.theta or (self.rule != "chk" and f == self.theta)

    def end(self) -> None:
        hot = sorted(self.count[key] / self.total for key in self.slots if self.is_hot(key))
        if self.rule == "chk":
            d = 2
            while d < self.n and 1 - (1 - 1 / self.n) ** (d * len(hot)) < sum(hot):
                d += 1
            self.least = min(d, self.n)
        elif self.rule == "single":
            self.least = naive_single(hot[::-1], 1 - sum(hot), self.n)
        self.count = {key: c * self.alpha for key, c in self.count.items()}
        self.total *= self.alpha
        self.in_epoch, self.number = 0, self.number + 1

    def add(self, key: int) -> int:
        """Counts a tuple and returns the number of candidates."""
        if self.in_epoch == self.epoch:
            self.end()
        self.in_epoch += 1
        if key not in self.count and len(self.slots) == self.capacity:
            at = min(range(self.capacity), key=lambda i: (self.count[self.slots[i]], i))
            old = self.slots[at]
            self.slots[at] = key
            self.count[key] = self.count.pop(old)
            self.degree.pop(old, None)
        elif key not in self.count:
            self.slots.append(key)
            self.count[key] = 0.0
        self.count[key] += 1
        self.total += 1
        if not self.is_hot(key):
            return min(2, self.n)
        if self.rule == "all":
            return self.n
        if self.rule == "single":
            return self.least
        index = math.floor(math.log2(max(self.count.values()) / self.count[key]))
        d = min(max(self.n // 2**index, self.least), self.n)
        idle = self.number - self.needed.get(key, 0)
        if d >= self.degree.get(key, 0) or idle > self.cool:
            self.degree[key], self.needed[key] = d, self.number
        return self.degree[key]


def naive_single(head: Sequence[float], tail: float, n: int) -> int:
    """The d of D-Choices, from the condition as it is written."""
    if not head:
        return min(2, n)
    for d in range(max(math.ceil(head[0] * n), 2), n):
        for h in range(1, len(head) + 1):
            b = n - n * (1 - 1 / n) ** (h * d)
            load = sum(head[:h]) + (b / n) ** d * sum(head[h:]) + (b / n) ** 2 * tail
            if load > b / n + 1e-4:
                break
        else:
            return d
    return n


class NaiveHead:
    def __init__(self, n: int, seeds: Sequence[int], counters: NaiveCounters) -> None:
        self.n, self.seeds, self.loads, self.counters = n, seeds, [0] * n, counters

    def route(self, key: int) -> int:
        d = self.counters.add(key)
        open_to = range(self.n) if d >= self.n else choices_of(key, self.seeds, self.n, d)
        best = least(open_to, self.loads)
        self.loads[best] += 1
        return best


def naive_ring(workers: Sequence[int], nodes: int, seed: int) -> list[tuple[int, int, int]]:
    """The nodes of a ring in order: (place, worker, number of the node)."""
    return sorted(
        (hashed(worker << 32 | i, seed) >> 32, worker, i)
        for worker in workers
        for i in range(nodes)
    )


def clockwise(ring: Sequence[tuple[int, int, int]], key: int, seed: int, d: int) -> list[int]:
    """The first d distinct workers clockwise of a key."""
    place = hashed(key, seed) >> 32
    after = [node for node in ring if node[0] >= place] + [n for n in ring if n[0] < place]
    out: list[int] = []
    for _, worker, _ in after:
        if worker not in out:
            out.append(worker)
    return out[:d]


class NaiveWaiting:
    """Algorithm 3 with continuous drain: all workers drain at every tuple."""

    def __init__(self, seconds: Sequence[float], sources: int) -> None:
        self.seconds, self.sources = list(seconds), sources
        self.backlog, self.now = [0.0] * len(seconds), 0.0

    def assign(self, workers: Sequence[int], now: float) -> int:
        for w, per_tuple in enumerate(self.seconds):
            drained = (now - self.now) / (self.sources * per_tuple)
            self.backlog[w] = max(0.0, self.backlog[w] - drained)
        self.now = now
        best = workers[0]
        for w in workers:
            if self.backlog[w] * self.seconds[w] < self.backlog[best] * self.seconds[best]:
                best = w
        self.backlog[best] += 1
        return best
