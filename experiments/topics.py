"""Subscriptions over words alone, for the experiments of S3-TM (algorithms.md 2.7).

Tweet-based: all words of a random post of the learning part. Topic-based: one topic at random,
one to five of its words, their number by Zipf(0.5). The paper learnt 100 topics of five words by
LDA. Here a topic grows around a seed, greedily: the seeds are the most frequent words that no
topic has yet, and each of the other four is the free word with the highest sum of cosine
similarities, co-occurrences over the root of both frequencies, with the words of the topic so
far. Only words in at least `COMMON` posts are considered. Deterministic.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.frame import F64, I64, Array, row_of

TOPICS, WORDS, CANDIDATES, COMMON = 100, 5, 3000, 20


def topics(off: I64, word: I64, words: int) -> list[list[int]]:
    """Returns at most TOPICS lists of WORDS word numbers. off, word: ragged, distinct per row."""
    counts = np.bincount(word, minlength=words)
    order = np.argsort(-counts, kind="stable")[:CANDIDATES]
    order = order[counts[order] >= COMMON]
    likeness = _compute_cosines(off, word, order, words)
    free = np.ones(len(order), np.bool_)
    out: list[list[int]] = []
    for seed in range(len(order)):
        if len(out) == TOPICS:
            break
        if not free[seed]:
            continue
        chosen = [seed]
        free[seed] = False
        score = likeness[seed].copy()
        while len(chosen) < WORDS and free.any():
            best = int(np.argmax(np.where(free, score, -1.0)))
            chosen.append(best)
            free[best] = False
            score += likeness[best]
        if len(chosen) == WORDS:
            out.append(order[chosen].tolist())
    return out


def topic_subscriptions(
    found: list[list[int]], n: int, rng: np.random.Generator
) -> tuple[I64, I64]:
    """Returns n subscriptions as a ragged column of words."""
    table = np.array(found, np.int64)
    weight = np.arange(1, WORDS + 1) ** -0.5
    size = 1 + rng.choice(WORDS, n, p=weight / weight.sum())
    shuffled = rng.permuted(table[rng.integers(0, len(table), n)], axis=1)
    kept = np.arange(WORDS) < size[:, None]
    return np.r_[0, np.cumsum(size)], shuffled[kept]


def post_subscriptions(off: I64, word: I64, n: int, rng: np.random.Generator) -> tuple[I64, I64]:
    """Returns n posts with words at random, as a ragged column of words."""
    size = np.diff(off)
    row = rng.choice(np.flatnonzero(size), n)
    out = np.r_[0, np.cumsum(size[row])]
    where = np.arange(out[-1]) + np.repeat(off[row] - out[:-1], size[row])
    return out, word[where]


def _compute_cosines(off: I64, word: I64, order: I64, words: int) -> F64:
    """Returns the similarity of the candidate words, float64[c, c], diagonal 0."""
    number = np.full(words, -1)
    number[order] = np.arange(len(order))
    inside = number[word] >= 0
    start = np.r_[0, np.cumsum(np.bincount(row_of(off)[inside], minlength=len(off) - 1))]
    together = np.zeros((len(order), len(order)), np.float32)
    _count_pairs(start, number[word[inside]], together)
    size = np.sqrt(np.maximum(np.diag(together), 1.0))
    likeness = (together / size[:, None] / size[None, :]).astype(np.float64)
    np.fill_diagonal(likeness, 0.0)
    return likeness


@njit(cache=True, nogil=True)
def _count_pairs(off: I64, word: I64, together: Array) -> None:
    """Adds the posts that have both words of each pair to together, float32[c, c]."""
    for i in range(len(off) - 1):
        for j in range(off[i], off[i + 1]):
            for k in range(off[i], off[i + 1]):
                together[word[j], word[k]] += 1.0
