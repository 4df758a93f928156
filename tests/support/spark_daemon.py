"""Spark's daemon of Python workers, with what our tasks import already imported.

Workers are forks of it, and a worker ends with the error of its task: without this each bad file
would cost the imports and the loading of compiled kernels anew. Spark's own archive is left aside
for the same reason: a worker would read its directory many times, and the package is installed.
"""

# ruff: noqa: E402
import sys

sys.path[:] = [path for path in sys.path if not path.endswith(".zip")]

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # noqa: F401
from pyspark.daemon import manager

import ps2stream.planner.executors  # noqa: F401
from ps2stream.language.analyzer import Analysis
from ps2stream.planner.sample import posts, take
from ps2stream.planner.updates import LIVE, of_rects


def load_kernels() -> None:
    """Takes a sample of two objects and two queries by the NumPy twin, whose kernels are those of
    the tasks."""
    place = np.array([8.0, 9.0])
    objects = posts(place, place, ["flood storm", "stürmische Flut"])
    kind, time = np.full(2, LIVE), np.zeros(2, np.int64)
    rects = np.array([[7.0, 7.0, 9.0, 9.0], [8.0, 8.0, 10.0, 10.0]])
    queries = of_rects(["a", "b"], kind, time, ["flood", "storm AND flood"], rects)
    take(lambda: [objects], [queries], Analysis(0))


if __name__ == "__main__":
    load_kernels()
    manager()
