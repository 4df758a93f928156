"""The experiment on SALB: loads of nodes, subscribed words, versions of hot words."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments import salb
from tests.support.word_publications import random_posts


@pytest.mark.parametrize("seed", range(5))
def test_loads_of_nodes_are_counted_as_by_hand(seed: int) -> None:
    rng = np.random.default_rng(seed)
    posts, to = random_posts(rng), rng.integers(0, 4, 12)
    want = [0, 0, 0, 0]
    for i in range(len(posts.off) - 1):
        for node in {int(to[w]) for w in posts.word[posts.off[i] : posts.off[i + 1]]}:
            want[node] += 1
    assert salb.load(posts, to, 4).tolist() == want
