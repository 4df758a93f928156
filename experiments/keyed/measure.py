"""What a scheme makes of a keyed stream: imbalance, states, execution time."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from ps2stream.experiments.keyed.measure_kernels import (
    add_imbalance,
    mark_states,
    work_off,
    work_off_bounded,
)
from ps2stream.experiments.keyed.streams import KeyStream
from ps2stream.experiments.plans import ExperimentSettings
from ps2stream.keyed.partitioner import KeyedPartitioner
from ps2stream.protocol.frame import F64, U16, Array

QUEUE = 100
"""Tuples that wait before a worker until it is full."""
EARLY = 0.1
"""The first part of a stream, in which I(t) / t says nothing yet."""


class LoadImbalance(NamedTuple):
    """The imbalance of a stream of m tuples, as shares of m: final I(m) / m, average mean I(t) / m,
    and the worst I(t) / t after the first tenth."""

    final: float
    average: float
    worst: float


class WorkTimes(NamedTuple):
    """When the last worker was done, the mean time from arrival to end, and when the last one was
    done with room for QUEUE tuples before each, so that a full one holds up the stream; seconds."""

    done: float
    mean: float
    bounded: float


def measure_imbalance(chosen: U16, workers: int) -> LoadImbalance:
    """Returns the imbalance of the workers that tuples went to, uint16[n], n > 0."""
    loads = np.zeros(workers, np.int64)
    n = len(chosen)
    total, worst = add_imbalance(chosen, loads, int(n * EARLY) + 1, 0.0)
    return LoadImbalance(float(loads.max() - n / workers) / n, total / n / n, worst)


def count_states(stream: KeyStream, chosen: U16, workers: int) -> int:
    """Returns the number of distinct pairs (key, worker): the paper's memory."""
    bits = np.zeros((stream.size, -(-workers // 64)), np.uint64)
    return int(mark_states(stream.keys, chosen, bits))


def measure_times(chosen: U16, arrivals: F64, seconds: F64) -> WorkTimes:
    """Returns how long workers take that begin a tuple when it has come and the one before is done.
    seconds: of a tuple on each worker, float64[workers]."""
    free = np.zeros(len(seconds))
    total = work_off(chosen, arrivals, seconds, free)
    bounded = np.zeros(len(seconds))
    work_off_bounded(chosen, arrivals, seconds, QUEUE, bounded)
    return WorkTimes(float(free.max()), total / len(chosen), float(bounded.max()))


def steady_arrivals(n: int, seconds: Array, usage: float) -> F64:
    """Returns times of n tuples at equal distances that need this part of all workers' time."""
    return np.arange(n) / (usage * float((1.0 / np.asarray(seconds)).sum()))


class RunClock:
    """Adds up the tuples that schemes have assigned, and the CPU time that they took."""

    def __init__(self) -> None:
        self.tuples, self.seconds, self.slowest = 0, 0.0, 0.0

    def assign(
        self,
        partitioner: KeyedPartitioner,
        stream: KeyStream,
        arrivals: F64 | None = None,
        senders: Array | None = None,
    ) -> U16:
        """Assigns a whole stream."""
        begin = time.process_time()
        chosen = partitioner.assign(stream.keys, arrivals, senders)
        took = time.process_time() - begin
        self.tuples += len(stream.keys)
        self.seconds += took
        self.slowest = max(self.slowest, took / len(stream.keys))
        return chosen

    def note(self) -> str:
        """Returns a note on the speed."""
        return (
            f"{self.tuples:,} tuples assigned in {self.seconds:.1f} s of CPU; the slowest scheme "
            f"takes {self.slowest * 1e7:.1f} s for ten million."
        )


def describe_settings(settings: ExperimentSettings, **more: Any) -> dict[str, Any]:
    """Returns the settings of an experiment on keyed streams as JSON-able data."""
    return {
        "tuples": settings.tuples,
        "workers": list(settings.workers),
        "seed": settings.seed,
        **more,
    }
