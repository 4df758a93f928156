"""One run of S3-TM: a mapping is learnt, subscriptions are placed, other posts are matched.

Two throughputs are counted: by copies, as if every copy took a node the same time (equation 6), and
by the lookups that copies take in the nodes' tries. The slowest node bounds both.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.s3tm.posts import draw_posts
from ps2stream.experiments.s3tm.trie import MatchedCopies, SubscriptionTries
from ps2stream.experiments.topics import post_subscriptions, topic_subscriptions, topics
from ps2stream.multicast.capping import ChosenWorkers
from ps2stream.multicast.placement import (
    MatchingCost,
    PlacedSubscriptions,
    PlacementRule,
    SubscriptionPlacer,
)
from ps2stream.multicast.word_mapping import WordMapping, find_hot_words, leave_whole
from ps2stream.planner.s3tm.learning import MappingAlgorithm, learn_mapping
from ps2stream.planner.s3tm.measures import MulticastMeasures, measure_multicast
from ps2stream.planner.s3tm.publications import WordPublications
from ps2stream.protocol.frame import I64, U64, row_of

HALVES = (
    "Learnt on one half of the posts, judged on the other; English stems, no stop words; the",
    "placeholders of mentions and addresses in the shared posts are left out.",
)
MEASURES = (
    "Subscriptions are on the nodes; posts go by subscribed words. per_copy: posts while the most",
    "loaded node takes one copy, |P| / max L (equation 6); throughput: posts while it makes one",
    "lookup in its trie. spread R: copies of a post; imbalance B, work_imbalance: the largest node",
    "over the mean, of copies and of lookups. learnt: per_copy on the posts that were learnt from.",
    "Topics are clusters of words that occur together, grown greedily, not LDA's.",
    "Of five hashes the one with the median load counts.",
)
NOTES = (*HALVES, *MEASURES)
HASHES = 5
"""Hashes of which the one with the median load counts."""
KINDS = ("tweet", "topic")


@dataclasses.dataclass(frozen=True, eq=False)
class SubscribedPosts:
    """Posts to learn from and others to judge by, of subscribed words only, and the subscriptions.

    words: numbers of words; frequency int64[words]: posts of the learning part that have each word.
    """

    learn: WordPublications
    held: WordPublications
    subscriptions: WordPublications
    words: int
    frequency: I64


class NodeRun(NamedTuple):
    """The outcome of a run. copies, lookups: measures by either load; learnt: by copies of the
    posts that were learnt from; bits uint64[n, words]: the nodes of each held-out post."""

    placer: SubscriptionPlacer
    placed: PlacedSubscriptions
    bits: U64
    matched: MatchedCopies
    copies: MulticastMeasures
    lookups: MulticastMeasures
    learnt: MulticastMeasures

    def to_row(self) -> Row:
        """Returns the figures as JSON-able data."""
        return {
            "spread": self.copies.spread,
            "imbalance": self.copies.imbalance,
            "per_copy": self.copies.throughput,
            "learnt": self.learnt.throughput,
            "work_imbalance": self.lookups.imbalance,
            "throughput": self.lookups.throughput,
            "matches": int(self.matched.found.sum()),
            "placements": len(self.placed.worker),
        }


def subscribe(
    kind: str, learn: WordPublications, held: WordPublications, words: int, n: int, seed: int
) -> SubscribedPosts | None:
    """Draws n subscriptions, "tweet" or "topic", from the learning part, and leaves only words that
    they have. Returns None if the posts have no topics."""
    drawn = draw_subscriptions(kind, learn, words, n, seed)
    return None if drawn is None else make_subscribed(learn, held, drawn, words)


def draw_subscriptions(
    kind: str, posts: WordPublications, words: int, n: int, seed: int
) -> WordPublications | None:
    """Draws n subscriptions, "tweet" or "topic". Returns None if the posts have no topics."""
    rng = np.random.default_rng([seed, 3])
    if kind == "tweet":
        return WordPublications(*post_subscriptions(posts.off, posts.word, n, rng))
    clusters = _find_topics(posts, words)
    return WordPublications(*topic_subscriptions(clusters, n, rng)) if clusters else None


@functools.lru_cache(maxsize=1)
def _find_topics(posts: WordPublications, words: int) -> list[list[int]]:
    """Finds the topics of posts, and remembers the last ones: this takes longer than a run."""
    return topics(posts.off, posts.word, words)


def make_subscribed(
    learn: WordPublications, held: WordPublications, drawn: WordPublications, words: int
) -> SubscribedPosts:
    """Returns posts and subscriptions without words that no subscription has."""
    wanted = np.zeros(words, np.bool_)
    wanted[drawn.word] = True
    mine = learn.only(wanted)
    return SubscribedPosts(mine, held.only(wanted), drawn, words, mine.count_words(words))


def map_words(
    posts: SubscribedPosts, algorithm: MappingAlgorithm, nodes: int, versions: bool, seed: int
) -> tuple[WordMapping, MulticastMeasures]:
    """Learns a mapping, of versions of hot words if wanted. Returns (it, its measures on the posts
    that it was learnt from)."""
    hot = find_hot_words(posts.frequency, nodes) if versions else leave_whole(posts.words)
    rng = np.random.default_rng([seed, 4])
    word = hot.choose_versions(posts.learn.word, rng)
    learn = WordPublications(posts.learn.off, word)
    seeds = range(seed, seed + HASHES) if algorithm == "hash" else (seed,)
    found = []
    for each in seeds:
        mapping = learn_mapping(algorithm, learn, hot, nodes, each)
        bits = mapping.find_targets(learn.off, learn.word)
        found.append((mapping, measure_multicast(bits, nodes)))
    return sorted(found, key=lambda pair: pair[1].throughput)[len(found) // 2]


def run_nodes(
    posts: SubscribedPosts,
    mapping: WordMapping,
    learnt: MulticastMeasures,
    seed: int,
    rule: PlacementRule = "LASP",
    cost: MatchingCost | None = None,
) -> NodeRun:
    """Places the subscriptions by a rule and matches the held-out posts."""
    placer = SubscriptionPlacer(mapping, posts.frequency, rule, cost, seed)
    placed = placer.place(posts.subscriptions.off, posts.subscriptions.word)
    tries = SubscriptionTries(posts.subscriptions, placed, mapping.workers, posts.words)
    rng = np.random.default_rng([seed, 5])
    version = mapping.hot.choose_versions(posts.held.word, rng)
    bits = mapping.find_targets(posts.held.off, version)
    matched = tries.match(posts.held, bits)
    work = matched.sum_by_node(mapping.workers)
    return NodeRun(
        placer, placed, bits, matched, measure_multicast(bits, mapping.workers),
        measure_multicast(bits, mapping.workers, work), learnt,
    )  # fmt: skip


def route_by_posting_words(posts: SubscribedPosts, run: NodeRun, seed: int) -> U64:
    """Returns the nodes of each held-out post, uint64[n, words], if only the words by which a
    placement is reached count."""
    drawn, hot = posts.subscriptions, run.placer.mapping.hot
    wanted = np.zeros(posts.words, np.bool_)
    wanted[run.placer.find_posting_words(drawn.off, drawn.word, run.placed)] = True
    keep = wanted[posts.held.word]
    size = np.bincount(row_of(posts.held.off)[keep], minlength=len(posts.held))
    version = hot.choose_versions(posts.held.word[keep], np.random.default_rng([seed, 5]))
    return run.placer.mapping.find_targets(np.r_[0, np.cumsum(size)], version)


def choose_workers(run: NodeRun, posts: WordPublications) -> ChosenWorkers:
    """Returns the node of each word of some posts, and the subscriptions there that have it. Words
    have no versions."""
    mapping = run.placer.mapping
    owner = mapping.owner[posts.word]
    chosen = np.zeros((len(owner), (mapping.workers + 63) // 64), np.uint64)
    chosen[np.arange(len(owner)), owner >> 6] = np.uint64(1) << (owner & 63).astype(np.uint64)
    live = run.placer.count[owner, posts.word].astype(np.int64)
    return ChosenWorkers(posts.off, chosen, live, mapping.workers)


def draw_streams(
    settings: ExperimentSettings,
) -> Iterator[tuple[str, WordPublications, WordPublications, int]]:
    """Yields (name, learning part, held-out part, number of words) of each stream."""
    for stream, source in settings.sources.items():
        settings.progress(f"{stream}: drawing the stream")
        size = settings.size
        yield stream, *draw_posts(source, size.planned + size.judged, settings.seed)


def describe_runs(settings: ExperimentSettings, **more: Any) -> dict[str, Any]:
    """Returns the settings of an experiment of S3-TM as JSON-able data."""
    size = settings.size
    return {
        "posts": size.planned + size.judged, "subscriptions": size.queries // 2,
        "nodes": list(settings.workers), "seed": settings.seed,
        "streams": list(settings.sources), **more,
    }  # fmt: skip


def find_row(rows: Sequence[Row], **fixed: object) -> Row:
    """Returns the only row that has the fixed fields."""
    (found,) = [row for row in rows if all(row[name] == of for name, of in fixed.items())]
    return found
