"""Publications as sets of words, the sample that a mapping is learnt from."""

from __future__ import annotations

import dataclasses

import numpy as np

from ps2stream.planner.statistics import Statistics
from ps2stream.protocol.frame import I64, Array, row_of, take_ragged
from ps2stream.space.grid import Grid


@dataclasses.dataclass(frozen=True, eq=False)
class WordPublications:
    """Publications as ragged columns of word numbers, distinct per row: off int64[n + 1], word
    int64[occurrences]."""

    off: I64
    word: I64

    def __len__(self) -> int:
        return len(self.off) - 1

    def only(self, wanted: Array) -> WordPublications:
        """Returns them without the words where the mask is false, bool[words], and without rows
        that then have none."""
        keep = wanted[self.word]
        size = np.bincount(row_of(self.off)[keep], minlength=len(self.off) - 1)
        return WordPublications(np.r_[0, np.cumsum(size[size > 0])], self.word[keep])

    def take(self, rows: I64) -> WordPublications:
        """Returns some of them, in this order."""
        return WordPublications(*take_ragged(self.off, self.word, rows))

    def count_words(self, words: int) -> I64:
        """Returns the publications that have each word, int64[words]."""
        return np.bincount(self.word, minlength=words)


def make_statistics(posts: WordPublications) -> tuple[Statistics, I64]:
    """Returns (one cell, a unit for each word that a publication has; the number of that word).
    A term of the statistics is its word's number in digits."""
    word, at = np.unique(posts.word, return_inverse=True)
    published, units = len(posts), len(word)
    nothing = np.zeros(units)
    stats = Statistics(
        grid=Grid(0, 0), terms=tuple(f"{w:09d}" for w in word.tolist()),
        cell=np.zeros(1, np.int64), objects=np.array([float(published)]),
        unit_off=np.array([0, units]), term=np.arange(units, dtype=np.int32),
        o=np.bincount(at, minlength=units).astype(np.float64),
        q=np.ones(units), inserts=nothing, deletes=nothing,
        row_off=np.array([0, published]), weight=np.ones(1), row_start=posts.off,
        row_unit=at.astype(np.int32),
    )  # fmt: skip
    return stats, word
