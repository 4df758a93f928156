"""frequency: terms by descending frequency, each to the least loaded worker."""

from __future__ import annotations

import heapq

import numpy as np

from ps2stream.planner.baselines.hashing import everywhere
from ps2stream.planner.baselines.words import frequencies
from ps2stream.planner.partition import Partition, PartitionOptions
from ps2stream.planner.statistics import I32, Statistics
from ps2stream.protocol.frame import F64


def frequency(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Balances occurrences of terms; ignores which terms occur together."""
    load = frequencies(stats)
    return everywhere(stats, workers, lightest_first(load, workers), load)


def lightest_first(load: F64, workers: int) -> I32:
    """Returns the worker of each item, int32[n]: items by descending load go to the worker with
    the least so far; items without load are dealt out in turn."""
    owner = (np.arange(len(load)) % workers).astype(np.int32)
    heap = [(0.0, worker) for worker in range(workers)]
    order = np.argsort(-load, kind="stable")
    for i in order[: np.count_nonzero(load)].tolist():
        owner[i] = heap[0][1]
        heapq.heapreplace(heap, (heap[0][0] + float(load[i]), heap[0][1]))
    return owner
