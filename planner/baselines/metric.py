"""metric: SALB of S3-TM (algorithms.md 2.2), which weighs spread against balance.

Splitting hot words (2.5) sends an object to a random version of a word, which one map of
terms to workers cannot say; only the experiment on SALB has it.
"""

from __future__ import annotations

import numpy as np

from ps2stream.planner.baselines.hashing import everywhere
from ps2stream.planner.baselines.words import frequencies, publications
from ps2stream.planner.partition import Partition, PartitionOptions
from ps2stream.planner.salb import divide
from ps2stream.planner.statistics import Statistics


def metric(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Assigns words by descending frequency, each where spread times the coefficient of variation
    of the workers' publications is least."""
    load = frequencies(stats)
    order = np.argsort(-load, kind="stable")
    owner = divide(publications(stats), order, workers, 0.0, 1.0, 0.0)
    return everywhere(stats, workers, owner, load)
