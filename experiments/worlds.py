"""A stream cut in two: one part to make a plan from, the other to judge it on.

The stream of `bench.workload`, with 10 objects for each insert and delete, runs up to a moment T
and on. The planner knows what a service would know at T: the objects and updates until then and
the live queries. The plan is judged on what follows T: other objects, and the queries that are
live at T, with their later inserts and deletes. Posting terms follow the frequencies before T.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ps2stream.benchmarks.query_tags import query_rows
from ps2stream.benchmarks.workload import Workload, make
from ps2stream.experiments.evaluate import AnalysedObjects, StreamPeriod, StreamRound
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.planner.sample import PlannerSample, posts, take
from ps2stream.planner.statistics import Statistics
from ps2stream.planner.updates import DELETE, INSERT, LIVE, of_rects
from ps2stream.protocol.frame import Array, column_to_strings
from ps2stream.protocol.rows import UpdateKind

UPDATE_EVERY = 10  # objects
SYNTHETIC = "synthetic"
Change = Callable[[Workload], Workload]


class StreamSize(NamedTuple):
    """The size of an experiment: live queries; objects before and after T; rounds that are
    judged. generated: the factor by which the synthetic stream is longer, because it can be: the
    errors of a small sample about a worker's share are not the plan's fault. drawn: posts that
    are repeated over and over; 0: each occurs once."""

    queries: int
    planned: int
    judged: int
    rounds: int = 4
    generated: int = 1
    drawn: int = 0

    def of(self, source: str) -> StreamSize:
        """Returns the size for the streams of one source."""
        times = self.generated if source == SYNTHETIC else 1
        return self._replace(planned=times * self.planned, judged=times * self.judged)


QUICK = StreamSize(20_000, 10_000, 20_000, 2)
FULL = StreamSize(200_000, 40_000, 100_000, 4, 4)


@dataclasses.dataclass(frozen=True, eq=False)
class StreamWorld:
    """A stream with what is known of it before T: statistics and the frequencies of terms in the
    objects. load: the whole stream."""

    name: str
    analyzer: Analyzer
    statistics: Statistics
    frequencies: dict[str, int]
    period: StreamPeriod
    load: Workload


def as_drawn(load: Workload) -> Workload:
    """Returns the workload without a change."""
    return load


def westward(load: Workload) -> Workload:
    """Returns the same posts in another order, so that the hot spot moves west, like the day. The
    eastern half has three quarters of the first posts and a quarter of the last."""
    lon = load.posts.lon
    east = np.argsort(np.argsort(-lon, kind="stable")) / len(lon)  # 0 is the easternmost
    order = np.argsort(east + 2 * np.random.default_rng([load.seed, 3]).random(len(lon)))
    return dataclasses.replace(load, posts=load.posts.take(order))


def make_world(
    name: str, source: str, group: str, size: StreamSize, seed: int, change: Change = as_drawn,
    timed: bool = False,
) -> StreamWorld:  # fmt: skip
    """Makes a world. source: "synthetic" or a file of posts; group q1, q2, q3; change: of its
    queries; timed: posts of a file by time, not shuffled. Raises InvalidArgument for a bad file."""
    analyzer, size = Analyzer(Analysis(salt=seed)), size.of(source)
    before, after = size.planned // UPDATE_EVERY, size.judged // UPDATE_EVERY
    objects = size.planned + size.judged
    drawn = min(size.drawn or objects, objects)
    load = change(make(source, group, size.queries, before + after, drawn, seed, analyzer, timed))
    if drawn < objects:
        load = dataclasses.replace(load, posts=load.posts.take(np.arange(objects) % drawn))
    known = sample(load, slice(0, size.planned), slice(0, before), analyzer, rows=True)
    frequencies = Frequencies.of(known.frequencies, analyzer)
    rows = query_rows(load, analyzer, frequencies, 0, len(load.interests.every))
    off, term = analyzer.analyse(load.posts.text_off, load.posts.text)

    def stretch(first: int, last: int) -> AnalysedObjects:
        part = off[first : last + 1]
        lon, lat = load.posts.lon[first:last], load.posts.lat[first:last]
        return AnalysedObjects(lon, lat, part - part[0], term[part[0] : part[-1]])

    number, death = np.arange(len(rows)), load.interests.death

    def updates(first: int, last: int) -> tuple[Array, Array]:
        """Returns the numbers of the queries that inserts first + 1..last insert and end."""
        here = (death > first) & (death <= last) & (number < load.start + last)
        return number[load.start + first : load.start + last], np.flatnonzero(here)

    standing = np.flatnonzero((number < load.start + before) & (death > before))
    edges = np.linspace(0, after, size.rounds + 1).astype(int).tolist()
    marks = (size.planned + np.linspace(0, size.judged, size.rounds + 1)).astype(int).tolist()
    rounds = []
    for i in range(size.rounds):
        inserted, deleted = updates(before + edges[i], before + edges[i + 1])
        deletes = rows.take(deleted).replace(
            kind=np.full(len(deleted), UpdateKind.DELETE, np.uint8)
        )
        rounds.append(StreamRound(rows.take(inserted), deletes, stretch(marks[i], marks[i + 1])))
    period = StreamPeriod(rows.take(standing), rounds)
    return StreamWorld(name, analyzer, known.stats, known.frequencies, period, load)


def sample(
    load: Workload, objects: slice, updates: slice, analyzer: Analyzer, rows: bool = False
) -> PlannerSample:
    """Returns what a planner knows of a stretch of the stream: these objects, the queries that
    are live when these updates begin, the inserts of these updates, and the deletes that are due
    among them. rows: whether it is also kept row by row."""
    off = load.posts.text_off[objects.start : objects.stop + 1]
    texts = column_to_strings(off - off[0], load.posts.text[off[0] : off[-1]])
    batch = posts(load.posts.lon[objects], load.posts.lat[objects], texts)
    death = load.interests.death[: load.start + updates.stop]
    inserted = np.maximum(np.arange(len(death)) - load.start + 1, 0)
    known = np.flatnonzero((death > updates.start) | (inserted > updates.start))
    deleted = known[death[known] <= updates.stop]
    row = np.concatenate([known, deleted])
    time = np.concatenate([inserted[known], death[deleted]])
    first = np.where(inserted[known] > updates.start, INSERT, LIVE)
    op = np.concatenate([first, np.full(len(deleted), DELETE)])
    expressions = load.expressions()
    ids, texts = [f"q{i}" for i in row.tolist()], [expressions[i] for i in row.tolist()]
    changes = of_rects(ids, op, time, texts, load.interests.rect[row])
    return take(lambda: [batch], [changes], analyzer.analysis, load.grid, rows=rows)


def all_rare(load: Workload) -> Workload:
    """Returns the same queries with all keywords drawn from outside the 1% most frequent terms."""
    count = np.array([load.counts[w] for w in load.words], np.float64)
    first = max(len(count) // 100, 1)
    mass = np.cumsum(count[first:] / count[first:].sum())
    rng = np.random.default_rng([load.seed, 2])
    old = load.interests.word
    word = first + np.searchsorted(mass, rng.random(old.shape))
    word = np.minimum(word, len(count) - 1).astype(np.int32)
    word[old < 0] = -1
    # A keyword that was drawn twice counts once.
    word[:, 1][word[:, 1] == word[:, 0]] = -1
    word[:, 2][(word[:, 2] == word[:, 0]) | (word[:, 2] == word[:, 1])] = -1
    word = -np.sort(-word, axis=1)
    return dataclasses.replace(load, interests=dataclasses.replace(load.interests, word=word))
