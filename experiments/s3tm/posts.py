"""Posts as sets of words: English stems without stop words and without placeholders."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ps2stream.benchmarks.workload import make
from ps2stream.language.analyzer import TOP, Analysis, Analyzer
from ps2stream.planner.s3tm.publications import WordPublications
from ps2stream.posts import readers
from ps2stream.protocol.frame import I64, Array, row_of, strings_to_column

PLACEHOLDERS = ("user", "http")
"""Words that stand for every @mention and address in the shared posts."""


def draw_posts(source: str, n: int, seed: int) -> tuple[WordPublications, WordPublications, int]:
    """Returns (learning part, held-out part, number of words) of n posts in a seeded order.
    Raises InvalidArgument for a bad file."""
    analyzer = _make_analyzer(seed)
    load = make(source, "q1", 1, 1, n, seed, analyzer)
    posts, words = _number_words(analyzer, load.posts.text_off, load.posts.text)
    half = n // 2
    return posts.take(np.arange(half)), posts.take(np.arange(half, n)), words


def read_in_order(path: str, most: int, seed: int) -> tuple[WordPublications, I64, int]:
    """Returns (the posts of a file in the order of time, the time of each in ms, int64[n], number
    of words): all, or `most` of them at equal distances. Those without a time come first. Raises
    InvalidArgument for a bad file."""
    rows = pa.Table.from_batches(readers.read_posts(path))
    times: I64 = rows["time"].fill_null(0).to_numpy()
    order = np.argsort(times, kind="stable")
    if len(order) > most:
        order = order[np.arange(most) * len(order) // most]
    texts = rows["text"].to_pylist()
    analyzer = _make_analyzer(seed)
    posts, words = _number_words(analyzer, *strings_to_column([texts[i] for i in order.tolist()]))
    return posts, times[order], words


def _make_analyzer(seed: int) -> Analyzer:
    return Analyzer(Analysis(salt=seed, stemmer="english", stop_words="en"))


def _number_words(analyzer: Analyzer, text_off: I64, text: Array) -> tuple[WordPublications, int]:
    """Returns (texts as sets of word numbers, number of words)."""
    blank = np.append(analyzer.hash_terms(PLACEHOLDERS), TOP)
    off, term = analyzer.analyse(text_off, text)
    keep = ~np.isin(term, blank)
    known, word = np.unique(term[keep], return_inverse=True)
    start = np.r_[0, np.cumsum(np.bincount(row_of(off)[keep], minlength=len(off) - 1))]
    return WordPublications(start, word), len(known)
