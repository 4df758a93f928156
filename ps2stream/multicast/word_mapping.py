"""Words mapped to workers, the hot ones in several versions (S3-TM; algorithms.md 2.1, 2.5).

A publication is multicast to the workers of its words. The load of a hot word is more than a worker
should have, so it is cut into versions, each with a worker of its own, and a publication takes one
of them at random. Words are numbers from 0 on; versions have numbers from the last word on.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ps2stream.errors import invalid
from ps2stream.multicast.bitset_kernels import mark_workers
from ps2stream.multicast.bitsets import make_sets
from ps2stream.protocol.frame import F64, I64, U64, Array


@dataclasses.dataclass(frozen=True, eq=False)
class HotWords:
    """The versions of words. parts int64[words]: versions of each word, 1 of a regular one; first
    int64[words]: the number of a word's first version, its own number if it is regular."""

    parts: I64
    first: I64

    @property
    def words(self) -> int:
        """The number of words."""
        return len(self.parts)

    @property
    def versions(self) -> int:
        """The number of words and versions of hot words together."""
        return self.words + int(self.parts[self.hot].sum())

    @property
    def hot(self) -> Array:
        """True for each hot word, bool[words]."""
        return self.parts > 1

    def choose_versions(self, word: I64, rng: np.random.Generator) -> I64:
        """Returns the words of publications, int64[n], with a random version in the place of each
        hot word."""
        out = word.copy()
        at = np.flatnonzero(self.parts[word] > 1)
        mine = word[at]
        out[at] = self.first[mine] + rng.integers(0, self.parts[mine])
        return out


def find_hot_words(frequency: I64 | F64, workers: int) -> HotWords:
    """Returns the words above half of a worker's mean share of all occurrences, each with as many
    versions as bring it below. frequency: publications that have each word, [words]."""
    parts = np.ceil(2.0 * workers * frequency / max(float(frequency.sum()), 1.0))
    parts = np.maximum(parts, 1).astype(np.int64)
    if workers == 1:
        parts[:] = 1
    of_hot = np.where(parts > 1, parts, 0)
    first = np.where(parts > 1, len(parts) + np.cumsum(of_hot) - of_hot, np.arange(len(parts)))
    return HotWords(parts, first.astype(np.int64))


def leave_whole(words: int) -> HotWords:
    """Returns so many words without versions."""
    return HotWords(np.ones(words, np.int64), np.arange(words))


@dataclasses.dataclass(frozen=True, eq=False)
class WordMapping:
    """The worker of each word, and of each version of a hot word, int64[hot.versions]. That of a
    hot word itself is not used."""

    workers: int
    owner: I64
    hot: HotWords

    def __post_init__(self) -> None:
        if len(self.owner) != self.hot.versions:
            size = f"{self.hot.versions} words and versions"
            raise invalid("owner", f"expected one worker for each of {size}, got {len(self.owner)}")

    def find_targets(self, off: I64, version: I64) -> U64:
        """Returns the workers of each publication, one however many of its words they own, as sets
        of bits: uint64[n, ceil(workers / 64)]. off int64[n + 1], version: ragged, words, hot
        ones as versions."""
        bits = make_sets(len(off) - 1, self.workers)
        mark_workers(off, version, self.owner, bits)
        return bits
