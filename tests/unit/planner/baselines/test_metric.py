"""metric: SALB of S3-TM against its formula."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.baselines.metric import metric
from ps2stream.planner.partition import PartitionOptions
from tests.support.baselines_by_hand import frequency_of, rows_of, term_owner
from tests.support.by_hand import some_stats


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_metric_is_salb(seed: int, workers: int) -> None:
    """Algorithm of S3-TM: argmax of -r b, r the spread, b stddev over mean of the loads."""
    stats = some_stats(seed)
    publications, f = rows_of(stats), frequency_of(stats)
    owner = term_owner(metric(stats, workers, PartitionOptions()), stats)
    total = sum(weight for _, weight in publications)
    held: list[set[int]] = [set() for _ in range(workers)]

    def loads(held: list[set[int]]) -> list[float]:
        return [sum(w for p, w in publications if p & words) for words in held]

    for word in sorted(f, key=lambda t: (-f[t], t)):
        if word not in owner:
            continue
        prices = []
        for i in range(workers):
            new = loads([h | {word} if j == i else h for j, h in enumerate(held)])
            prices.append(sum(new) / total * float(np.std(new) / np.mean(new)))
        assert prices[owner[word]] <= min(prices) * (1 + 1e-9) + 1e-12
        held[owner[word]].add(word)
