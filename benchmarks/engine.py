"""The engine alone, one core, in process: an index under the mixed stream.

A round is 1,024 objects, 102 inserts and as many deletes. The measured time covers the tags of
the inserts (grid cover times posting terms), insert, delete, purge, sweep and match; the text is
analysed before, and that rate is reported separately.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from ps2stream.benchmarks.figures import summarise_values
from ps2stream.benchmarks.literal_queries import make_twins
from ps2stream.benchmarks.post_batches import (
    BATCH,
    PostBatches,
    analyse_batches,
    find_literals,
    search_posts,
    watch_rows,
)
from ps2stream.benchmarks.predicates import PredicateKind, QueryPredicates
from ps2stream.benchmarks.query_tags import query_rows, tags_of
from ps2stream.benchmarks.tuning import tune_workload, widen_workload
from ps2stream.benchmarks.variants import NO_SHARES, QueryVariants, Shares
from ps2stream.benchmarks.workload import PostColumns, make
from ps2stream.benchmarks.yardstick import describe_runs, measure_speed, open_yardstick
from ps2stream.errors import invalid
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.literals import NO_LITERALS
from ps2stream.protocol.frame import I64, U64
from ps2stream.protocol.rows import QueryRows
from ps2stream.workers.index import ALL_TERMS, Index, MatchColumns
from ps2stream.workers.indexes import INDEXES, IndexFactory, IndexName
from ps2stream.workers.machine import choose_budget
from ps2stream.workers.radix.gi2 import RadixGI2

UPDATES = 102  # inserts, and about as many deletes, with every batch: 5 to 1
ROUNDS = 100
CHECKED = 200  # objects compared with brute force
SMALL = 1, 32  # objects a call
SMALL_CALLS, SMALL_ROUNDS = 500, 20
_CHUNK = 1 << 16


class IndexEngine:
    """An index under the stream of a workload; LSNs are numbered as by the ledger."""

    def __init__(
        self,
        variants: QueryVariants,
        analyzer: Analyzer,
        objects: tuple[I64, U64],
        new_index: IndexFactory,
        predicates: QueryPredicates | None = None,
    ) -> None:
        self.variants, self.predicates = variants, predicates
        self.load = load = variants.load
        self.index = new_index(load.grid)
        self.batches = PostBatches(load.posts, *objects)
        frequencies = Frequencies.of(load.counts, analyzer)
        n = len(load.interests.every)

        def change_rows(first: int, last: int) -> QueryRows:
            rows = query_rows(load, analyzer, frequencies, first, last)
            rows = variants.change_rows(rows, first)
            return rows if predicates is None else predicates.change_rows(rows, first)

        self._rows = [
            change_rows(a, min(a + _CHUNK, load.start)) for a in range(0, load.start, _CHUNK)
        ]
        later = change_rows(load.start, n)
        self.search_seconds = 0.0
        self.literals = watch_rows([*self._rows, later])
        if predicates is not None:
            self.batches, self.search_seconds = search_posts(
                load, predicates, analyzer, self.literals
            )
        elif self.literals is not NO_LITERALS:
            self.batches = find_literals(load.posts, analyzer, self.literals)
        self._later = [
            later.take(np.arange(a, a + UPDATES))
            for a in range(0, n - load.start - UPDATES + 1, UPDATES)
        ]
        self._order = np.argsort(load.interests.death, kind="stable")
        self._death = load.interests.death[self._order]
        self._next_delete = 0
        self.inserted = load.start
        self.lsn = load.start
        self.deleted = np.zeros(n, np.bool_)

    def fill(self) -> float:
        """Inserts the first queries; returns inserts per second."""
        start = time.perf_counter()
        for rows in self._rows:
            tags = tags_of(rows, self.load.grid)
            self.index.insert(*tags)
        self._rows = []
        return self.load.start / (time.perf_counter() - start)

    def update(self) -> int:
        """Makes 102 inserts and the deletes that are due then; returns the number of updates."""
        at = (self.inserted - self.load.start) // UPDATES
        self.index.insert(*tags_of(self._later[at], self.load.grid))
        self.inserted += UPDATES
        due = int(np.searchsorted(self._death, self.inserted - self.load.start, "right"))
        deletes = self._order[self._next_delete : due]
        self._next_delete = due
        self.lsn = self.inserted
        self.index.delete(deletes + 1, np.full(len(deletes), self.lsn, np.int64))
        self.deleted[deletes] = True
        self.index.purge(self.lsn)
        self.index.sweep(choose_budget(self.index.stats()))
        return UPDATES + len(deletes)

    def _match(self, k: int) -> MatchColumns:
        """Matches batch k."""
        return self.index.match(self.lsn, *self.batches[k], ALL_TERMS, *self.batches.values(k))

    def round(self, analyzer: Analyzer | None = None) -> dict[str, float]:
        """Processes all batches once, with their updates; returns rates and matches per object, and
        the processor seconds that an analyzer takes for their texts."""
        analysis = 0.0
        if analyzer is not None:
            analysis = analyse_batches(self.load.posts, analyzer, self.literals)
        matches = updates = 0
        matching, cpu = 0.0, time.process_time()
        start = time.perf_counter()
        for k in range(len(self.batches)):
            updates += self.update()
            before = time.perf_counter()
            matches += len(self._match(k).row)
            matching += time.perf_counter() - before
        whole, cpu = time.perf_counter() - start, time.process_time() - cpu
        objects = len(self.batches) * BATCH
        return {
            "tuples_per_second": (objects + updates) / whole,
            "tuples_per_cpu_second": (objects + updates) / cpu,
            "objects_per_second": objects / matching,
            "matches_per_object": matches / objects,
            "tuples_per_cpu_second_with_texts": (objects + updates) / (cpu + analysis),
            "analysis_us_per_object": 1e6 * analysis / objects,
        }

    def time_small_calls(self, size: int) -> dict[str, float]:
        """Matches objects in batches of `size`; returns microseconds of processor time a call."""
        calls = []
        for first in range(0, BATCH * len(self.batches), size)[:SMALL_CALLS]:
            lon, lat, off, term = self.batches[first // BATCH]
            some = slice(first % BATCH, first % BATCH + size)
            terms = slice(off[some.start], off[some.stop])
            own = off[some.start : some.stop + 1] - off[some.start]
            calls.append((lon[some].copy(), lat[some].copy(), own, term[terms].copy()))
        taken = []
        for _ in range(SMALL_ROUNDS):
            start = time.process_time()
            for objects in calls:
                self.index.match(self.lsn, *objects)
            taken.append(1e6 * (time.process_time() - start) / len(calls))
        return summarise_values(taken)

    def differences(self, analyzer: Analyzer, sample: int, seed: int) -> int:
        """Counts the objects of a seeded sample whose matches differ from brute force."""
        rng = np.random.default_rng(seed)
        batch = int(rng.integers(len(self.batches)))
        lon, lat, _, _ = self.batches[batch]
        found = self._match(batch)
        interests, posts = self.load.interests, self.load.posts
        live = np.flatnonzero(~self.deleted[: self.inserted])
        rect, wrong = interests.rect[live], 0
        wraps = rect[:, 0] > rect[:, 2]
        for row in rng.choice(BATCH, min(sample, BATCH), replace=False).tolist():
            at = batch * BATCH + row
            text = posts.text[posts.text_off[at] : posts.text_off[at + 1]].tobytes()
            words = analyzer.text_words(text.decode())
            east, west = lon[row] >= rect[:, 0], lon[row] <= rect[:, 2]
            beside = np.where(wraps, east | west, east & west)
            near = live[beside & (lat[row] >= rect[:, 1]) & (lat[row] <= rect[:, 3])]
            want = [
                q + 1
                for q in near.tolist()
                if self.load.holds(q, words)
                and self.variants.holds(q, float(lon[row]), float(lat[row]), set(words.terms))
                and (self.predicates is None or self.predicates.holds(q, at))
            ]
            wrong += sorted(found.handle[found.row == row].tolist()) != sorted(want)
        return wrong


def analyse_posts(posts: PostColumns, analyzer: Analyzer) -> tuple[tuple[I64, U64], float]:
    """Returns term columns of the posts, and posts per second (the second of two runs)."""
    for _ in range(2):
        start = time.perf_counter()
        out = analyzer.analyse(posts.text_off, posts.text)
        rate = len(posts.lon) / (time.perf_counter() - start)
    return out, rate


def _compare_rounds(
    rounds: Sequence[dict[str, float]], others: Sequence[dict[str, float]], rate: str
) -> dict[str, float]:
    """Returns a rate of rounds over that of others, each by its turn."""
    return summarise_values(
        [mine[rate] / other[rate] for mine, other in zip(rounds, others, strict=True)]
    )


def _share_bytes(index: Index) -> dict[str, float]:
    """Returns the bytes of a live query in each array, if the index lists them."""
    listed = index.list_bytes() if isinstance(index, RadixGI2) else {}
    live = max(index.stats().live, 1)
    return {name: size / live for name, size in listed.items()}


def run_engine(
    queries: int = 1_000_000,
    group: str = "q1",
    mo: float | None = None,
    workload: str = "synthetic",
    against: str | None = None,
    runs: int = 5,
    seed: int = 1,
    index: IndexName = "gi2-radix",
    shares: Shares = NO_SHARES,
    predicates: PredicateKind | None = None,
    values: int = 1,
    equal_matches: bool = False,
    literals: float = 0.0,
) -> dict[str, Any]:
    """Returns the measured figures of this index with every setting, JSON-able. One more run
    comes first, unmeasured.

    workload: "synthetic", "yardstick" or a file of posts. mo: matches per object to tune to (see
    `tune_workload`). against: a yardstick's engine.py, run before and after; `over_yardstick` is
    our median rate over the median of its two, `ratio` that over the better one. shares: of queries
    with more to check. predicates: two of each query (see `QueryPredicates`), `values` of which
    there are; then the same queries without them are measured in turns, and `over_plain` is the
    median of the tuples per processor second over theirs. equal_matches: the regions of those with
    predicates are larger, so that both have as many matches. literals: the share of queries with a
    phrase, a prefix or NOT (literal_queries.py); then their twins of plain words are measured in
    turns. As the index sees no texts, `over_plain` is that of the index alone, and
    `over_plain_with_texts` has the processor time in it that the analysis of the texts takes, in
    batches as a dispatcher analyses them. Raises InvalidArgument for two of predicates, literals
    and negated words.
    """
    if (predicates is not None) + bool(shares.negated) + bool(literals) > 1:
        raise invalid("negated", "only one of predicates, literals and negated words is measured")
    analyzer = Analyzer(Analysis(salt=seed))
    updates = (runs + 1) * ROUNDS * UPDATES
    load = make(workload, group, queries, updates, ROUNDS * BATCH, seed, analyzer)
    objects, tokenised = analyse_posts(load.posts, analyzer)
    tuning = {"side_factor": 1.0, "keyword_skew": 1.0}
    if mo is not None:
        load, tuning = tune_workload(load, mo, analyzer, objects)
    if literals:
        load, twin = make_twins(load, literals, analyzer, seed)
    variants = QueryVariants(load, shares, analyzer, seed)
    added = predicates and QueryPredicates(predicates, values, load, objects, analyzer, seed)
    widened, plain_variants = 1.0, variants
    if literals:
        plain_variants = QueryVariants(twin, shares, analyzer, seed)
    if added is not None and equal_matches:
        wide, widened = widen_workload(load, added, analyzer, objects)
        variants = QueryVariants(wide, shares, analyzer, seed)
    with contextlib.ExitStack() as stack:
        yardstick = stack.enter_context(open_yardstick(against, queries)) if against else None
        if yardstick is not None:
            yardstick.run()
        engine = IndexEngine(variants, analyzer, objects, INDEXES[index], added)
        inserts = engine.fill()
        plain = None
        if added is not None or literals:
            plain = IndexEngine(plain_variants, analyzer, objects, INDEXES[index])
            plain.fill()
        rounds, others = [], []
        for _ in range(runs + 1):
            rounds.append(engine.round(analyzer if literals else None))
            if plain is not None:
                others.append(plain.round(analyzer if literals else None))
        rounds, others = rounds[1:], others[1:]
        if yardstick is not None:
            yardstick.run()
    small = {} if added else {str(size): engine.time_small_calls(size) for size in SMALL}
    stats = engine.index.stats()
    wrong = engine.differences(analyzer, CHECKED, seed)
    rates = {key: [r[key] for r in rounds] for key in rounds[0]}
    out: dict[str, Any] = {
        "settings": {
            "index": index,
            "queries": queries,
            "group": group,
            "workload": workload,
            "mo": mo,
            **dataclasses.asdict(shares),
            "literals": literals,
            "predicates": predicates,
            "values": values,
            "widened": widened,
            **tuning,
            "runs": runs,
            "seed": seed,
            "batch": BATCH,
            "objects_per_run": ROUNDS * BATCH,
            "grid": load.grid.to_dict(),
        },
        "tuples_per_second": summarise_values(rates["tuples_per_second"]),
        "objects_per_second": summarise_values(rates["objects_per_second"]),
        "matches_per_object": median(rates["matches_per_object"]),
        "us_a_call_by_objects": small,
        "inserts_per_second": inserts,
        "tokenised_objects_per_second": tokenised,
        "live_queries": stats.live,
        "tombstones": stats.tombstones,
        "postings_per_query": stats.postings / max(stats.live, 1),
        "bytes_per_query": stats.bytes / max(stats.live, 1),
        "bytes_per_query_by_array": _share_bytes(engine.index),
        "verified": {"objects": CHECKED, "different": wrong},
    }
    if plain is not None:
        out["plain"] = {
            "tuples_per_second": summarise_values([r["tuples_per_second"] for r in others]),
            "matches_per_object": median(r["matches_per_object"] for r in others),
            "bytes_per_query": plain.index.stats().bytes / max(plain.index.stats().live, 1),
        }
        out["over_plain"] = _compare_rounds(rounds, others, "tuples_per_cpu_second")
        out["attribute_search_us_per_object"] = 1e6 * engine.search_seconds / len(load.posts.lon)
    if literals:
        out["over_plain_with_texts"] = _compare_rounds(
            rounds, others, "tuples_per_cpu_second_with_texts"
        )
        out["watched_literals"] = int(np.count_nonzero(engine.literals.term))
        for figures, made in ((out, rounds), (out["plain"], others)):
            figures["analysis_us_per_object"] = summarise_values(
                [each["analysis_us_per_object"] for each in made]
            )
    if yardstick is not None:
        rate, quiet = median(rates["tuples_per_second"]), yardstick.rates
        out["yardstick"] = describe_runs(yardstick)
        out["ratio"] = rate / max(run["tuples_per_second"] for run in quiet)
        out["over_yardstick"] = rate / measure_speed(yardstick).tuples_per_second
    return out
