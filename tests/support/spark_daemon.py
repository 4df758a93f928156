"""Spark's daemon of Python workers, with what our tasks import already imported.

Workers are forks of it, and a worker ends with the error of its task: without this each bad file
would cost the imports anew. Spark's own archive is left aside for the same reason: a worker would
read its directory many times, and the package is installed.
"""

# ruff: noqa: E402
import sys

sys.path[:] = [path for path in sys.path if not path.endswith(".zip")]

import pandas as pd  # type: ignore[import-untyped]  # noqa: F401
from pyspark.daemon import manager

import ps2stream.planner.executors  # noqa: F401

if __name__ == "__main__":
    manager()
