"""Keyed streams: those of the shared data, and those of the papers that can be generated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ps2stream.experiments.keyed.measure_kernels import draw_aliases, make_aliases
from ps2stream.experiments.plans import ExperimentSettings
from ps2stream.protocol.frame import F64, I64, U64, Array

WORDS, CONTENT, PATHS, ROUTES = "tweet words", "tweet words, no stop words", "git paths", "flights"
WIKIPEDIA, TWITTER = "like WP", "like TW"
FILES = {
    WORDS: "stream_tweet_words.parquet",
    CONTENT: "stream_tweet_words.parquet",
    PATHS: "stream_git_paths.parquet",
    ROUTES: "stream_flights.parquet",
}
LOGNORMAL = {"LN1": (1.789, 2.366), "LN2": (2.245, 1.133)}
LIKE = {WIKIPEDIA: (2_900_000, 0.0932), TWITTER: (31_000_000, 0.0267)}
"""Keys and p1 of the paper's streams that stand-ins have too."""
NEAR = 100_000
"""Ranks that are added one by one."""
FLIPPED = 0.2
"""The last part of a segment of ZF, in which the ranking is reversed."""


@dataclasses.dataclass(frozen=True, eq=False)
class KeyStream:
    """A keyed stream. keys uint64[n], numbers below `size`; first uint64[n]: another key, by which
    the tuples come to skewed sources, or None."""

    name: str
    keys: U64
    size: int
    first: U64 | None = None

    @property
    def top_share(self) -> float:
        """The share of the most frequent key, p1."""
        return float(self.counts().max() / len(self.keys))

    def counts(self) -> I64:
        """Returns the tuples of each key, int64[size]."""
        return np.bincount(self.keys.astype(np.int64), minlength=self.size)

    def known(self) -> tuple[U64, I64]:
        """Returns (keys uint64[k], their tuples int64[k]) of the keys that occur."""
        counts = self.counts()
        keys = np.flatnonzero(counts)
        return keys.astype(np.uint64), counts[keys]


def read_stream(name: str, folder: Path, most: int) -> KeyStream:
    """Reads a stream of the shared data, its first `most` tuples. Raises OSError."""
    import pyarrow.parquet as pq

    columns = ["key", "destination"] if name == ROUTES else ["key"]
    table = pq.read_table(folder / FILES[name], columns=columns)
    column = table.column("key").combine_chunks().dictionary_encode()
    number = column.indices.to_numpy().astype(np.uint64)
    size = len(column.dictionary)
    if name == CONTENT:
        import stopwordsiso

        stop = set(stopwordsiso.stopwords("en"))
        kept = np.array([str(word) not in stop for word in column.dictionary.to_pylist()])
        number = number[kept[number]]
    if name == ROUTES:
        to = table.column("destination").combine_chunks().dictionary_encode()
        end = to.indices.to_numpy().astype(np.uint64)
        return KeyStream(name, end[:most], len(to.dictionary), number[:most])
    return KeyStream(name, number[:most], size)


def zipf_shares(keys: int, z: float) -> F64:
    """Returns the probability of each rank, float64[keys]: rank^-z over their sum."""
    share: F64 = np.arange(1, keys + 1, dtype=np.float64) ** -z
    share /= share.sum()
    return share


def fit_exponent(keys: int, top: float) -> float:
    """Returns the z at which the first of so many ranks has a share of `top`."""
    low, high = 0.0, 4.0
    for _ in range(40):
        z = (low + high) / 2
        low, high = (z, high) if 1.0 / _sum_powers(keys, z) < top else (low, z)
    return low


def _sum_powers(keys: int, z: float) -> float:
    """Returns the sum of rank^-z, the far ranks as an integral (Euler and Maclaurin)."""
    near = min(keys, NEAR)
    total = float((np.arange(1, near + 1, dtype=np.float64) ** -z).sum())
    if keys > near:
        a, b = float(near), float(keys)
        far = np.log(b / a) if abs(z - 1) < 1e-9 else (b ** (1 - z) - a ** (1 - z)) / (1 - z)
        total += float(far) + (b**-z - a**-z) / 2
    return total


def draw_keys(share: F64, n: int, rng: np.random.Generator) -> U64:
    """Draws n numbers by their shares, uint64[n]."""
    table, other = share * len(share), np.empty(len(share), np.int64)
    make_aliases(table, other)
    out = np.empty(n, np.uint64)
    draw_aliases(table, other, rng.random(n), out)
    return out


def draw_zipf(name: str, keys: int, z: float, n: int, seed: int) -> KeyStream:
    """Draws a Zipf stream; key i has rank i."""
    return KeyStream(name, draw_keys(zipf_shares(keys, z), n, np.random.default_rng(seed)), keys)


def draw_lognormal(name: str, n: int, seed: int) -> KeyStream:
    """Draws LN1 or LN2: keys are log-normal numbers, rounded. (So K and p1 are the paper's.)"""
    mean, deviation = LOGNORMAL[name]
    drawn = np.random.default_rng(seed).lognormal(mean, deviation, n)
    found, number = np.unique(np.rint(drawn), return_inverse=True)
    return KeyStream(name, number.astype(np.uint64), len(found))


def draw_like(name: str, n: int, seed: int) -> KeyStream:
    """Draws a Zipf stream with as many keys and the p1 of one of the paper's (LIKE)."""
    keys, top = LIKE[name]
    return draw_zipf(name, keys, fit_exponent(keys, top), n, seed)


def draw_flipping(keys: int, z: float, n: int, segment: int, seed: int) -> KeyStream:
    """Draws ZF: segments of a Zipf stream, each with a seed of its own, in the last fifth of which
    the ranking is reversed."""
    share = zipf_shares(keys, z)
    parts: list[Array] = []
    for i, begin in enumerate(range(0, n, segment)):
        length = min(segment, n - begin)
        late = int(length * FLIPPED)
        part = draw_keys(share, length, np.random.default_rng([seed, i]))
        part[length - late :] = keys - 1 - part[length - late :]
        parts.append(part)
    return KeyStream(f"ZF z={z:g}", np.concatenate(parts), keys)


def real_streams(settings: ExperimentSettings, *names: str) -> Iterator[KeyStream]:
    """Yields the shared streams that there are. They are as long as they are, at most
    settings.tuples."""
    for name in names:
        folder = settings.streams
        if folder is not None and (Path(folder) / FILES[name]).is_file():
            settings.progress(f"{name}: reading the stream")
            yield read_stream(name, Path(folder), settings.tuples)


def generated(settings: ExperimentSettings, name: str, draw: Callable[[], KeyStream]) -> KeyStream:
    """Draws a stream, and says so."""
    settings.progress(f"{name}: drawing the stream")
    return draw()
