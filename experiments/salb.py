"""S3-TM (algorithms.md 2.7): words to nodes by hash, by cuts of a graph, by SALB.

There is no space: the statistics have one cell, one unit per subscribed word, and every
publication of the learning part that has one as a signature. The algorithms are those of the
planner. They are judged on other publications: spread R, copies of a publication; imbalance B,
the largest node's load over the mean; throughput is proportional to 1 / (R B), that is 1 / max L.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import (
    LOST,
    ClaimVerdict,
    ExperimentReport,
    ReportChart,
    at_least,
    ordering,
)
from ps2stream.experiments.s3tm.posts import draw_posts
from ps2stream.experiments.topics import post_subscriptions, topic_subscriptions, topics
from ps2stream.experiments.worlds import SYNTHETIC
from ps2stream.multicast.word_mapping import find_hot_words
from ps2stream.planner.s3tm.learning import cut_words, divide_words
from ps2stream.planner.s3tm.publications import WordPublications
from ps2stream.protocol.frame import F64, I64, row_of

HASH, SALB, SPLIT = "hash", "SALB", "SALB, hot words split"
GRAPHS = ("gC", "gFC", "gFCL", "gNFCL")
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
        learn, held, words = draw_posts(source, size.planned + size.judged, settings.seed)
        rng = np.random.default_rng([settings.seed, 3])
        n = settings.size.queries // 2
        kinds = {"tweet": post_subscriptions(learn.off, learn.word, n, rng)}
        if clusters := topics(learn.off, learn.word, words):
            kinds["topic"] = topic_subscriptions(clusters, n, rng)
        for kind, (_, subscribed) in kinds.items():
            wanted = np.zeros(words, np.bool_)
            wanted[subscribed] = True
            for nodes in numbers:
                settings.progress(f"{stream}: {kind}-based subscriptions, {nodes} nodes")
                case = {"stream": stream, "subscriptions": kind, "nodes": nodes}
                found = compare_algorithms(
                    learn.only(wanted), held.only(wanted), words, nodes, settings
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
    words: int,
    nodes: int,
    settings: ExperimentSettings,
) -> list[Row]:
    """Returns a row per algorithm."""
    rng = np.random.default_rng([settings.seed, 4])
    maps: dict[str, I64] = {}
    for name in (SALB, *GRAPHS):
        maps[name] = _place_words(name, learn, words, nodes, settings)
    hashes = [rng.integers(0, nodes, words) for _ in range(SEEDS)]
    maps[HASH] = sorted(hashes, key=lambda to: float(load(held, to, nodes).max()))[SEEDS // 2]
    loads = {name: load(held, to, nodes) for name, to in maps.items()}
    learnt = {name: load(learn, to, nodes) for name, to in maps.items()}
    hot = find_hot_words(learn.count_words(words), nodes)
    split_learn, split_held = (
        WordPublications(posts.off, hot.choose_versions(posts.word, rng)) for posts in (learn, held)
    )
    to = _place_words(SALB, split_learn, hot.versions, nodes, settings)
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


def _place_words(
    name: str, learn: WordPublications, words: int, nodes: int, settings: ExperimentSettings
) -> I64:
    """Returns the node of each word by an algorithm of the planner; unseen words at random."""
    rng = np.random.default_rng([settings.seed, 5])
    out: I64 = rng.integers(0, nodes, words)
    if name == SALB:
        known, mine = divide_words(learn, words, nodes)
        out[known] = mine
    else:
        cut_words(name, learn, nodes, settings.seed, out)
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
