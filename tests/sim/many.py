"""Many seeds on several processes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.sim.run import Result, run

CHUNK = 20


def play_all(seeds: range, jobs: int, bug: str = "") -> Iterator[Result]:
    """The results of these seeds, in no order; without their stories."""
    if jobs <= 1:
        yield from _play(seeds, bug)
        return
    parts = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(jobs, get_context("forkserver")) as pool:
        for found in pool.map(_play, parts, [bug] * len(parts)):
            yield from found


def _play(seeds: range, bug: str = "") -> list[Result]:
    return [run(seed, bug)._replace(story=[]) for seed in seeds]
