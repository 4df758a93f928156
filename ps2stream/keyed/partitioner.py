"""A keyed stream through several sources to workers: one interface for all schemes.

    stream = make_partitioner("pkg", workers=50, sources=5, seed=1)
    chosen = stream.assign(keys)

State is kept from call to call, so that a stream may come in any number of batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from ps2stream.keyed.counters import CounterOptions, HotKeyCounters
from ps2stream.keyed.ring import NODES, HashRing
from ps2stream.keyed.sources import (
    FishSource,
    GreedySource,
    HeadSource,
    KeySource,
    RememberingSource,
    ShuffleSource,
)
from ps2stream.keyed.waiting import WaitingTimes
from ps2stream.protocol.frame import F64, I64, U16, U64, Array

Scheme = Literal[
    "shuffle", "hash", "pkg", "potc", "on-greedy", "off-greedy", "d-choices", "w-choices", "fish"
]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
GLOBAL: frozenset[Scheme] = frozenset(("potc", "on-greedy", "off-greedy"))
"""Schemes whose sources must share their state."""
MOST_WORKERS = 0xFFFF
"""Workers are numbered by 16 bits, of which one number stands for nobody."""
FISH = CounterOptions()
LIFETIME = CounterOptions(alpha=1.0)
"""How D- and W-Choices count: over the whole stream, in as many counters as FISH."""


@dataclasses.dataclass(frozen=True, eq=False)
class SchemeOptions:
    """The parameters of schemes; each scheme reads its own.

    choices: of PKG (Greedy-d); shared: all sources know the loads that all make (estimator G),
    where otherwise each knows its own (L); probe_every: tuples of the whole stream after which all
    sources learn the true loads (L with probing), 0 for never; known: (keys uint64[n], tuples
    int64[n]) of the stream to come, for Off-Greedy; counters: of FISH; head: of D- and W-Choices,
    their theta None for 1 / (5 workers) and their rule that of the scheme; seconds: time of a
    tuple on each worker, float64[workers], None for 1 each; timed: FISH assigns by waiting time,
    where otherwise by the number of tuples that the source has sent; nodes: virtual nodes.
    """

    choices: int = 2
    shared: bool = False
    probe_every: int = 0
    known: tuple[U64, I64] | None = None
    counters: CounterOptions = FISH
    head: CounterOptions = LIFETIME
    seconds: F64 | None = None
    timed: bool = True
    nodes: int = NODES


class KeyedPartitioner:
    """A stream that several sources send to workers, each source by its own state.

    sources: at least one; workers: their number; probe_every: as in SchemeOptions. `loads`,
    int64[workers], are the tuples that each worker has got.
    """

    def __init__(self, sources: Sequence[KeySource], workers: int, probe_every: int = 0) -> None:
        self.sources = tuple(sources)
        self.loads = np.zeros(workers, np.int64)
        self.tuples = 0
        self.probe_every = probe_every

    def assign(
        self, keys: U64, arrivals: F64 | None = None, senders: Array | None = None
    ) -> U16:  # fmt: skip
        """Returns the worker of each tuple, uint16[n].

        keys: uint64[n]; arrivals: float64[n] seconds, ascending, None for all at 0; senders: the
        source of each tuple, integers [n], None for one after the other. Raises ValueError for
        columns of another length, and for a source that there is not.
        """
        n, sources = len(keys), len(self.sources)
        if (arrivals is not None and len(arrivals) != n) or (
            senders is not None and len(senders) != n
        ):
            raise ValueError(f"arrivals and senders must have as many values as keys, {n}")
        # Sources that share their state are one here.
        if senders is not None and sources > 1 and not np.isin(senders, range(sources)).all():
            raise ValueError(f"senders must be below {sources}, the number of sources")
        times = np.zeros(n) if arrivals is None else np.ascontiguousarray(arrivals, np.float64)
        keys = np.ascontiguousarray(keys, np.uint64)
        chosen = np.empty(n, np.uint16)
        begin = 0
        while begin < n:
            end = n
            if self.probe_every:
                end = min(n, begin + self.probe_every - self.tuples % self.probe_every)
            part = slice(begin, end)
            chosen[part] = self._assign_part(
                keys[part], times[part], None if senders is None else senders[part]
            )
            self.loads += np.bincount(chosen[part], minlength=len(self.loads))
            self.tuples += end - begin
            if self.probe_every and self.tuples % self.probe_every == 0:
                for source in self.sources:
                    source.correct(self.loads)
            begin = end
        return chosen

    def _assign_part(self, keys: U64, times: F64, senders: Array | None) -> U16:
        count = len(self.sources)
        if count == 1:
            return self.sources[0].route(keys, times)
        chosen = np.empty(len(keys), np.uint16)
        for i, source in enumerate(self.sources):
            mine: slice | Array
            if senders is None:
                mine = slice((i - self.tuples) % count, None, count)
            else:
                mine = np.flatnonzero(senders == i)
            own = np.ascontiguousarray(keys[mine])
            chosen[mine] = source.route(own, np.ascontiguousarray(times[mine]))
        return chosen


def make_partitioner(
    scheme: Scheme,
    workers: int,
    sources: int = 1,
    seed: int = 1,
    options: SchemeOptions | None = None,
) -> KeyedPartitioner:
    """Makes a partitioner. All sources hash alike. Raises ValueError for an unknown scheme, for
    Off-Greedy without `known`, more than MOST_WORKERS workers, or fewer than one worker or
    source."""
    options = options or SchemeOptions()
    if scheme not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, not {scheme!r}")
    if workers < 1 or sources < 1:
        raise ValueError("workers and sources must be at least 1")
    if workers > MOST_WORKERS:
        raise ValueError(f"workers must be at most {MOST_WORKERS}, not {workers}")
    shared = options.shared or scheme in GLOBAL
    made = [
        _make_source(scheme, workers, sources, i, seed, options)
        for i in range(1 if shared else sources)
    ]
    return KeyedPartitioner(made, workers, options.probe_every)


def make_ring_source(ring: HashRing, sources: int, seed: int, options: SchemeOptions) -> FishSource:
    """Makes a source of FISH on a ring whose workers are numbered from 0, with or without gaps.
    options.seconds: of all numbers up to the largest that may ever come."""
    seconds = options.seconds
    if seconds is None:
        seconds = np.ones(max(ring.workers) + 1)
    if options.timed:
        waiting = WaitingTimes(seconds, sources)
    else:
        waiting = WaitingTimes(np.ones(len(seconds)))
        waiting.arrays.rate[:] = 0.0  # nothing drains: a backlog is the number of tuples sent
    return FishSource(HotKeyCounters(len(ring.workers), options.counters, seed), ring, waiting)


def _make_source(
    scheme: Scheme, workers: int, sources: int, i: int, seed: int, options: SchemeOptions
) -> KeySource:
    if scheme == "shuffle":
        return ShuffleSource(workers, i * workers // sources)
    if scheme == "hash":
        return GreedySource(workers, seed, 1)
    if scheme == "pkg":
        return GreedySource(workers, seed, options.choices)
    if scheme == "potc":
        return RememberingSource(workers, seed, 2)
    if scheme == "on-greedy":
        return RememberingSource(workers, seed, 0)
    if scheme == "off-greedy":
        if options.known is None:
            raise ValueError("off-greedy must know the stream (`known`)")
        source = RememberingSource(workers, seed, 0)
        source.place(*options.known)
        return source
    if scheme == "fish":
        ring = HashRing(range(workers), seed, options.nodes)
        return make_ring_source(ring, sources, seed, options)
    theta = 1.0 / (5.0 * workers) if options.head.theta is None else options.head.theta
    head = dataclasses.replace(
        options.head, theta=theta, rule="single" if scheme == "d-choices" else "all"
    )
    return HeadSource(workers, seed, head)
