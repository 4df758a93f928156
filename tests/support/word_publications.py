"""Random posts for the tests of the experiments on SALB."""

from __future__ import annotations

import itertools

import numpy as np

from ps2stream.planner.s3tm.publications import WordPublications


def random_posts(rng: np.random.Generator, rows: int = 60, words: int = 12) -> WordPublications:
    """Posts of up to four words each."""
    sets = [rng.choice(words, rng.integers(0, 5), replace=False) for _ in range(rows)]
    return WordPublications(np.r_[0, np.cumsum([len(s) for s in sets])], np.concatenate(sets))


def list_sets(posts: WordPublications) -> list[set[int]]:
    """The words of each post."""
    return [set(posts.word[a:b].tolist()) for a, b in itertools.pairwise(posts.off)]
