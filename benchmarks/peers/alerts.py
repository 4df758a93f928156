"""Saved searches: all of one to three words, in a rectangle. The index alone, without a service.

It is what Lucene Monitor and FAST can do both. Coordinates of objects are multiples of 0.001
degrees, and borders of rectangles lie between them, so that no rounding decides a match.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.benchmarks.workload import PostColumns, make
from ps2stream.inprocess.matcher import Matcher
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.frame import F64, I64, U64, column_to_strings
from ps2stream.space.regions import RECT_FIELDS

_STEP = 0.001
_SAMPLE = 1024
"""Objects by which the rarest words of queries are chosen."""
_GOLDEN = 0x9E3779B97F4A7C15


class PeerFigures(NamedTuple):
    """What a pass over the objects took: processor seconds, pairs, and a sum over hashes of the
    pairs that is the same for the same set."""

    objects: int
    cpu_s: float
    matches: int
    digest: int

    @property
    def rate(self) -> float:
        """Objects per processor second."""
        return self.objects / self.cpu_s


class SavedSearches(NamedTuple):
    """Queries and objects. words: of a query, all of which must be there; rect float64[n, 4]: west,
    south, east, north in degrees. texts: words of an object, ascending, each once; lon, lat:
    float64[m] degrees."""

    words: list[list[str]]
    rect: F64
    texts: list[str]
    lon: F64
    lat: F64

    def write_queries(self, path: Path) -> None:
        """Writes a line for each query: its borders and its words, divided by tabs."""
        with path.open("w") as file:
            for words, (west, south, east, north) in zip(
                self.words, self.rect.tolist(), strict=True
            ):
                place = f"{west:.4f}\t{south:.4f}\t{east:.4f}\t{north:.4f}"
                file.write(f"{place}\t{' '.join(words)}\n")

    def write_objects(self, path: Path) -> None:
        """Writes a line for each object: its position and its words, divided by tabs."""
        with path.open("w") as file:
            for text, lon, lat in zip(
                self.texts, self.lon.tolist(), self.lat.tolist(), strict=True
            ):
                file.write(f"{lon:.3f}\t{lat:.3f}\t{text}\n")


def make_searches(queries: int, objects: int, seed: int = 1) -> SavedSearches:
    """Returns saved searches over the synthetic workload, its group Q1 with AND alone."""
    load = make("synthetic", "q1", queries, 0, objects, seed, Analyzer(Analysis(salt=seed)))
    words = [
        sorted({load.words[w] for w in row if w >= 0})
        for row in load.interests.word[:queries].tolist()
    ]
    posts: PostColumns = load.posts
    texts = column_to_strings(posts.text_off[: objects + 1], posts.text)
    return SavedSearches(
        words,
        (np.floor(load.interests.rect[:queries] / _STEP) + 0.5) * _STEP,
        [" ".join(sorted(set(text.split()))) for text in texts],
        np.round(posts.lon[:objects], 3),
        np.round(posts.lat[:objects], 3),
    )


class OwnIndex:
    """The index of a worker and its analysis of texts, as `ps2stream.match` and
    `ps2stream.Matcher` use them."""

    def __init__(self, searches: SavedSearches) -> None:
        columns = {"lon": searches.lon, "lat": searches.lat, "text": searches.texts}
        self._searches, self._objects = searches, pa.table(columns).combine_chunks()
        queries = {
            "id": [f"q{i}" for i in range(len(searches.words))],
            "expression": [" AND ".join(words) for words in searches.words],
            **dict(zip(RECT_FIELDS, searches.rect.T, strict=True)),
        }
        self._matcher = Matcher(pa.table(queries), sample=self._objects.slice(0, _SAMPLE))

    def run(self, size: int) -> PeerFigures:
        """Analyses and matches all objects, `size` a call."""
        if size == 1:
            return self._run_singly()
        spent, first, matches, digest = 0.0, 0, 0, 0
        for batch in self._objects.to_batches(size):
            before = time.process_time()
            pairs = self._matcher.index.match(batch, first)
            spent += time.process_time() - before
            matches += len(pairs.query)
            digest += sum_hashes(pairs.query, pairs.list_objects() + first)
            first += len(batch)
        return PeerFigures(first, spent, matches, digest % (1 << 64))

    def _run_singly(self) -> PeerFigures:
        columns = self._searches.lon.tolist(), self._searches.lat.tolist(), self._searches.texts
        match_rows, found = self._matcher.match_rows, list[I64]()
        before = time.process_time()
        for lon, lat, text in zip(*columns, strict=True):
            found.append(match_rows(lon, lat, text))
        spent = time.process_time() - before
        query = np.concatenate(found)
        digest = sum_hashes(query, np.repeat(np.arange(len(found)), list(map(len, found))))
        return PeerFigures(len(found), spent, len(query), digest)


def sum_hashes(query: np.ndarray, post: np.ndarray) -> int:
    """Returns the sum of a hash of each pair, modulo 2**64, as PeerRun.java forms it."""
    x: U64 = (query.astype(np.uint64) << np.uint64(32)) | post.astype(np.uint64)
    x += np.uint64(_GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((x ^ (x >> np.uint64(31))).sum(dtype=np.uint64))
