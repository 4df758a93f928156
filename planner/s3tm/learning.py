"""Algorithms that learn the owners of words from publications (S3-TM; algorithms.md 2.2, 2.3).

SALB divides words one after the other, by spread and balance of the load; the graph variants let
METIS cut the graph of words that occur together; hash ignores the publications. A version of a hot
word is a word to all of them. Words that no publication has go by hash, as unknown ones do.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ps2stream.errors import invalid
from ps2stream.keyed.key_kernels import hash_all
from ps2stream.multicast.word_mapping import HotWords, WordMapping
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.s3tm.publications import WordPublications, make_statistics
from ps2stream.planner.salb import WordOccurrences, divide, inverted
from ps2stream.protocol.frame import I64
from ps2stream.routing.plan import Space

MappingAlgorithm = Literal["hash", "gC", "gFC", "gFCL", "gNFCL", "SALB"]
GRAPHS: tuple[MappingAlgorithm, ...] = ("gC", "gFC", "gFCL", "gNFCL")
MAPPINGS: tuple[MappingAlgorithm, ...] = ("hash", *GRAPHS, "SALB")


def learn_mapping(
    algorithm: MappingAlgorithm, posts: WordPublications, hot: HotWords, workers: int, seed: int
) -> WordMapping:
    """Returns the owner of each word and version. posts: the sample, with versions in the place
    of hot words; seed: of the hash and of METIS. Raises InvalidArgument for an unknown algorithm,
    and where METIS is not installed or cannot cut the graph."""
    if algorithm not in MAPPINGS:
        raise invalid("algorithm", f"expected one of {', '.join(MAPPINGS)}, got {algorithm!r}")
    owner = hash_words(hot.versions, workers, seed)
    if algorithm == "SALB":
        known, mine = divide_words(posts, hot.versions, workers)
        owner[known] = mine
    elif algorithm != "hash":
        cut_words(algorithm, posts, workers, seed, owner)
    return WordMapping(workers, owner, hot)


def hash_words(words: int, workers: int, seed: int) -> I64:
    """Returns the worker of each word by hash, int64[words]."""
    hashed = np.empty(words, np.uint64)
    hash_all(np.arange(words, dtype=np.uint64), np.uint64(seed), hashed)
    return ((hashed >> np.uint64(32)) * np.uint64(workers) >> np.uint64(32)).astype(np.int64)


def divide_words(posts: WordPublications, words: int, workers: int) -> tuple[I64, I64]:
    """Returns (the words that publications have; the worker of each by SALB, int64[k]): by
    descending frequency, each where spread times the coefficient of variation of the loads is
    least."""
    count = posts.count_words(words)
    known = np.flatnonzero(count)
    number = np.zeros(words, np.int32)
    number[known] = np.arange(len(known))
    off, row = inverted(
        posts.off, number[posts.word], np.arange(len(posts)),
        np.arange(len(known), dtype=np.int32), len(known),
    )  # fmt: skip
    nothing = np.zeros(len(known))
    order = np.argsort(-count[known], kind="stable")
    occurrences = WordOccurrences(off, row, np.ones(len(posts)), nothing, nothing)
    return known, divide(occurrences, order, workers, 0.0, 1.0, 0.0).astype(np.int64)


def cut_words(algorithm: str, posts: WordPublications, workers: int, seed: int, owner: I64) -> None:
    """Writes the worker of each word of publications by an algorithm of the planner into owner,
    int64[words]. Raises InvalidArgument where METIS cannot cut the graph."""
    stats, word = make_statistics(posts)
    partition = ALGORITHMS[algorithm](stats, workers, PartitionOptions(seed=seed))
    leaf = partition.leaves[int(partition.cells[0])]
    if isinstance(leaf, Space):
        owner[:] = leaf.worker
        return
    owner[word] = [
        leaf.terms.get(term, int(owner[w]))
        for term, w in zip(stats.terms, word.tolist(), strict=True)
    ]
