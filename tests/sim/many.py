"""Many seeds on several processes."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context

from tests.sim.run import Result, run

CHUNK = 20
RENEWED = 50
"""Chunks that a process plays before another takes its place: nights have many."""


def play_all(seeds: range, jobs: int, bug: str = "") -> Generator[Result, None, None]:
    """The results of these seeds, in no order; without their stories."""
    parts = (seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK))
    if jobs <= 1:
        for part in parts:
            yield from _play(part, bug)
        return
    with ProcessPoolExecutor(jobs, get_context("forkserver"), max_tasks_per_child=RENEWED) as pool:
        waiting = deque(pool.submit(_play, part, bug) for part in islice(parts, 4 * jobs))
        while waiting:
            yield from waiting.popleft().result()
            waiting.extend(pool.submit(_play, part, bug) for part in islice(parts, 1))


def _play(seeds: range, bug: str = "") -> list[Result]:
    """Each world is a cycle of references. The collector passes over the modules and kernels, so
    that it costs little to have it take each world once it is over, and not before: in between it
    would look at a world again and again that is still needed."""
    found = []
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for seed in seeds:
            found.append(run(seed, bug)._replace(story=[]))
            gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    return found
