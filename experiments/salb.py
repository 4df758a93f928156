"""S3-TM (algorithms.md 2.7): words to nodes by hash, by cuts of a graph, by SALB.

There is no space: the statistics have one cell, one unit per subscribed word, and every
publication of the learning part that has one as a signature. The algorithms are those of the
planner. They are judged on other publications: spread R, copies of a publication; imbalance B,
the largest node's load over the mean; throughput is proportional to 1 / (R B), that is 1 / max L.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ps2stream.benchmarks.workload import make
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import (
    LOST,
    ClaimVerdict,
    ExperimentReport,
    ReportChart,
    at_least,
    ordering,
)
from ps2stream.experiments.topics import post_subscriptions, topic_subscriptions, topics
from ps2stream.experiments.worlds import SYNTHETIC
from ps2stream.language.analyzer import TOP, Analysis, Analyzer
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.partition import Partition, PartitionOptions
from ps2stream.planner.statistics import Statistics
from ps2stream.protocol.frame import F64, I64, Array, row_of
from ps2stream.routing.plan import Space
from ps2stream.space.grid import Grid

HASH, SALB, SPLIT = "hash", "SALB", "SALB, hot words split"
GRAPHS = ("gC", "gFC", "gFCL", "gNFCL")
PLACEHOLDERS = ("user", "http")  # stand for every @mention and address in the shared posts
SEEDS = 5  # of the hash
COLUMNS = (
    "stream",
    "subscriptions",
    "nodes",
    "algorithm",
    "spread",
    "imbalance",
    "relative",
    "learnt",
)
SWEPT_NODES = 64  # with more, METIS gives up on the graphs of the longer stream
GOALS = (("topic", 8, 1.2), ("topic", 64, 2.0), ("tweet", 256, 1.7))


@dataclasses.dataclass(frozen=True, eq=False)
class WordPublications:
    """Publications as ragged columns of word numbers, distinct per row."""

    off: I64
    word: I64

    def only(self, wanted: Array) -> WordPublications:
        """Returns them without the words where the mask is false, and without rows that then have
        none."""
        keep = wanted[self.word]
        size = np.bincount(row_of(self.off)[keep], minlength=len(self.off) - 1)
        return WordPublications(np.r_[0, np.cumsum(size[size > 0])], self.word[keep])


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Measures spread, imbalance and relative throughput for tweet and topic subscriptions."""
    rows: list[Row] = []
    sources = settings.sources.items()
    streams = [(stream, source, settings.size, settings.workers) for stream, source in sources]
    if settings.sweeps:  # to see whether more posts to learn from turn an order
        longer, label = settings.size.of(SYNTHETIC), f"{SYNTHETIC} x{settings.size.generated}"
        few = tuple(n for n in settings.workers if n <= SWEPT_NODES)
        streams.append((label, SYNTHETIC, longer, few))
    for stream, source, size, numbers in streams:
        settings.progress(f"{stream}: drawing the stream")
        learn, held, words = _draw_posts(source, size.planned + size.judged, settings.seed)
        rng = np.random.default_rng([settings.seed, 3])
        n = settings.size.queries // 2
        kinds = {"tweet": post_subscriptions(learn.off, learn.word, n, rng)}
        if clusters := topics(learn.off, learn.word, words):
            kinds["topic"] = topic_subscriptions(clusters, n, rng)
        for kind, (_, subscribed) in kinds.items():
            wanted = np.zeros(words, np.bool_)
            wanted[subscribed] = True
            count = np.bincount(subscribed, minlength=words)
            for nodes in numbers:
                settings.progress(f"{stream}: {kind}-based subscriptions, {nodes} nodes")
                case = {"stream": stream, "subscriptions": kind, "nodes": nodes}
                found = compare_algorithms(
                    learn.only(wanted), held.only(wanted), count, nodes, settings
                )
                rows += [case | row for row in found]
    return ExperimentReport(
        "salb", "words to nodes, throughput relative to hash", _describe_settings(settings), NOTES,
        COLUMNS, rows, verdicts(rows, settings.workers),
        ReportChart("lines", "throughput / hash", _make_panels(rows)),
    )  # fmt: skip


NOTES = (
    "Learnt on one half of the posts, judged on the other; English stems, no stop words; the",
    "placeholders of mentions and addresses in the shared posts are left out.",
    "relative: throughput over the hash's, the median of five hashes; 1 / max L.",
    "At full size the synthetic stream comes once more with several times as many posts.",
    "learnt: the same on the posts that it was learnt from.",
    "spread R: copies of a publication; imbalance B: the largest node's load over the mean.",
    "Topics are clusters of words that occur together, grown greedily, not LDA's.",
    "Hot words (2.5) are cut into versions; a publication takes one of them at random.",
)


def compare_algorithms(
    learn: WordPublications,
    held: WordPublications,
    queries: I64,
    nodes: int,
    settings: ExperimentSettings,
) -> list[Row]:
    """Returns a row per algorithm. queries: subscriptions that have each word, int64[words]."""
    words = len(queries)
    rng = np.random.default_rng([settings.seed, 4])
    maps: dict[str, I64] = {}
    for name, registered in ((SALB, "metric"), *((g, g) for g in GRAPHS)):
        maps[name] = _place_words(registered, learn, queries, nodes, settings)
    hashes = [rng.integers(0, nodes, words) for _ in range(SEEDS)]
    maps[HASH] = sorted(hashes, key=lambda to: float(load(held, to, nodes).max()))[SEEDS // 2]
    loads = {name: load(held, to, nodes) for name, to in maps.items()}
    learnt = {name: load(learn, to, nodes) for name, to in maps.items()}
    split_learn, split_held, versions = split_hot(learn, held, words, nodes, rng)
    to = _place_words("metric", split_learn, versions, nodes, settings)
    loads[SPLIT], learnt[SPLIT] = load(split_held, to, nodes), load(split_learn, to, nodes)
    published = len(held.off) - 1
    return [
        {
            "algorithm": name,
            "spread": float(loads[name].sum()) / published,
            "imbalance": float(loads[name].max() / loads[name].mean()),
            "relative": float(loads[HASH].max() / loads[name].max()),
            "learnt": float(learnt[HASH].max() / learnt[name].max()),
        }
        for name in (HASH, *GRAPHS, SALB, SPLIT)
    ]


def load(posts: WordPublications, to: I64, nodes: int) -> F64:
    """Returns the publications sent to each node, float64[nodes]; to: the node of each word."""
    pairs = np.unique(row_of(posts.off) * nodes + to[posts.word])
    return np.bincount(pairs % nodes, minlength=nodes).astype(np.float64)


def split_hot(
    learn: WordPublications,
    held: WordPublications,
    words: int,
    nodes: int,
    rng: np.random.Generator,
) -> tuple[WordPublications, WordPublications, I64]:
    """Cuts words above half of a node's mean load into versions, numbered from `words` on (2.5).
    Returns (both parts with a random version in the place of each hot word, a count of 1 per
    word, int64[words and versions])."""
    count = np.bincount(learn.word, minlength=words)
    parts = np.maximum(np.ceil(2.0 * nodes * count / max(count.sum(), 1)), 1).astype(np.int64)
    first = words + np.cumsum(np.where(parts > 1, parts, 0)) - parts

    def versions(posts: WordPublications) -> WordPublications:
        hot = parts[posts.word] > 1
        word = posts.word.copy()
        at = word[hot]
        word[hot] = first[at] + rng.integers(0, parts[at])
        return WordPublications(posts.off, word)

    return versions(learn), versions(held), np.ones(words + parts[parts > 1].sum(), np.int64)


def make_statistics(posts: WordPublications, queries: I64) -> tuple[Statistics, I64]:
    """Returns (one cell, a unit for each word that a publication has; the number of that word)."""
    word, at = np.unique(posts.word, return_inverse=True)
    published, units = len(posts.off) - 1, len(word)
    nothing = np.zeros(units)
    stats = Statistics(
        grid=Grid(0, 0), terms=tuple(f"{w:09d}" for w in word.tolist()),
        cell=np.zeros(1, np.int64), objects=np.array([float(published)]),
        unit_off=np.array([0, units]), term=np.arange(units, dtype=np.int32),
        o=np.bincount(at, minlength=units).astype(np.float64),
        q=queries[word].astype(np.float64), inserts=nothing, deletes=nothing,
        row_off=np.array([0, published]), weight=np.ones(1), row_start=posts.off,
        row_unit=at.astype(np.int32),
    )  # fmt: skip
    return stats, word


def verdicts(rows: Sequence[Row], nodes: Sequence[int]) -> list[ClaimVerdict]:
    """Returns the verdicts on the orderings of 2.7."""
    out: list[ClaimVerdict] = []
    for stream, kind in dict.fromkeys((r["stream"], r["subscriptions"]) for r in rows):
        mine = {r["nodes"] for r in rows if (r["stream"], r["subscriptions"]) == (stream, kind)}
        here = [n for n in nodes if n in mine]
        most = max(here)
        at = {
            n: {r["algorithm"]: r for r in rows
                if (r["stream"], r["subscriptions"], r["nodes"]) == (stream, kind, n)}
            for n in here
        }  # fmt: skip
        case = f"{stream}, {kind}-based"

        def over(a: str, b: str, key: str, n: int, at: Any = at) -> float:
            return float(at[n][a][key] / at[n][b][key])

        for n in here:
            rest = max((HASH, *GRAPHS), key=lambda name: float(at[n][name]["relative"]))
            claim = f"{case}, {n} nodes: SALB above the best other ({rest})"
            found = {
                "held out": over(SALB, rest, "relative", n),
                "where it learnt": over(SALB, rest, "learnt", n),
            }
            out.append(ordering(claim, found))
        claim = f"{case}, {most} nodes: SALB above hash"
        paper = {"topic": ("at 256 nodes, topic", 2.56)}.get(kind) if most == 256 else None
        value = {"1/max L": over(SALB, HASH, "relative", most)}
        out.append(ordering(claim, value, *paper) if paper else ordering(claim, value))
        loose = max(("gC", "gFC"), key=lambda name: float(at[most][name]["relative"]))
        value = {"1/max L": over(SALB, loose, "relative", most)}
        out.append(ordering(f"{case}, {most} nodes: SALB over 10x above gC and gFC", value,
                            "over", 10.0))  # fmt: skip
        for low, high in (("gFC", "gFCL"), ("gFCL", SALB), (SALB, HASH)):
            claim = f"{case}, {most} nodes: spread of {high} above {low}"
            out.append(ordering(claim, {"R": over(high, low, "spread", most)}, LOST))
        out += [
            at_least(f"{case}, {n} nodes: SALB over hash",
                     {"1/max L": over(SALB, HASH, "relative", n)}, goal)
            for of, n, goal in GOALS if of == kind and n in here
        ]  # fmt: skip
    return out


def _draw_posts(source: str, n: int, seed: int) -> tuple[WordPublications, WordPublications, int]:
    """Returns (learning part, held-out part, number of words) of n posts."""
    analyzer = Analyzer(Analysis(salt=seed, stemmer="english", stop_words="en"))
    load = make(source, "q1", 1, 1, n, seed, analyzer)
    blank = np.append(analyzer.hash_terms(PLACEHOLDERS), TOP)
    off, term = analyzer.analyse(load.posts.text_off, load.posts.text)
    keep = ~np.isin(term, blank)
    known, word = np.unique(term[keep], return_inverse=True)
    start = np.r_[0, np.cumsum(np.bincount(row_of(off)[keep], minlength=n))]
    half = n // 2
    cut = start[half]
    learn, held = (
        WordPublications(start[: half + 1], word[:cut]),
        WordPublications(start[half:] - cut, word[cut:]),
    )
    return learn, held, len(known)


def _place_words(
    name: str, learn: WordPublications, queries: I64, nodes: int, settings: ExperimentSettings
) -> I64:
    """Returns the node of each word by an algorithm of the planner; unseen words by hash."""
    stats, word = make_statistics(learn, queries)
    options = PartitionOptions(costs=settings.costs, seed=settings.seed)
    partition: Partition = ALGORITHMS[name](stats, nodes, options)
    leaf = partition.leaves[int(partition.cells[0])]
    rng = np.random.default_rng([settings.seed, 5])
    out: I64 = rng.integers(0, nodes, len(queries))
    if isinstance(leaf, Space):
        out[:] = leaf.worker
    else:
        out[word] = [leaf.terms.get(t, int(out[w])) for t, w in
                     zip(stats.terms, word.tolist(), strict=True)]  # fmt: skip
    return out


def _describe_settings(settings: ExperimentSettings) -> dict[str, Any]:
    size = settings.size
    return {
        "posts": size.planned + size.judged, "subscriptions": size.queries // 2,
        "nodes": list(settings.workers), "seed": settings.seed, "streams": list(settings.sources),
    }  # fmt: skip


def _make_panels(rows: Sequence[Row]) -> dict[str, dict[str, dict[int, float]]]:
    out: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        panel = out.setdefault(f"{row['stream']}, {row['subscriptions']}-based", {})
        panel.setdefault(row["algorithm"], {})[row["nodes"]] = row["relative"]
    return out
