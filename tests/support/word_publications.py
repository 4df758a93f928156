"""Random posts for the tests of the experiments on SALB."""

from __future__ import annotations

import numpy as np

from ps2stream.experiments import salb


def random_posts(
    rng: np.random.Generator, rows: int = 60, words: int = 12
) -> salb.WordPublications:
    """Posts of up to four words each."""
    sets = [rng.choice(words, rng.integers(0, 5), replace=False) for _ in range(rows)]
    return salb.WordPublications(np.r_[0, np.cumsum([len(s) for s in sets])], np.concatenate(sets))
