"""S3-TM, figures 7 and 11: copies of a post, by mapping and number of nodes, and what remains of
them if posts go by the posting words alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ps2stream.experiments.plans import JUDGED_AT, ExperimentSettings, Row
from ps2stream.experiments.report import (
    LOST,
    ClaimVerdict,
    ExperimentReport,
    ReportChart,
    at_most,
    ordering,
)
from ps2stream.experiments.s3tm.runs import (
    KINDS,
    NOTES,
    NodeRun,
    SubscribedPosts,
    describe_runs,
    draw_streams,
    find_row,
    map_words,
    route_by_posting_words,
    run_nodes,
    subscribe,
)
from ps2stream.multicast.bitsets import count_copies
from ps2stream.multicast.placement import RULES
from ps2stream.planner.s3tm.learning import MAPPINGS
from ps2stream.planner.s3tm.measures import measure_multicast
from ps2stream.protocol.frame import F64

SUBSCRIBED, POSTING = "subscribed words", "posting words"
COLUMNS = (
    "stream", "subscriptions", "nodes", "routed_by", "algorithm", "placement", "spread",
    "imbalance", "per_copy", "words", "checks", "modelled",
)  # fmt: skip
MORE_NOTES = (
    "words: subscribed words of a post, which bound the spread. posting words: a post goes only by",
    "words by which a subscription is reached, the least frequent that its node owns, as in the",
    "gridt; then the placement decides the spread as well (SALB's mapping). checks: candidates of",
    "a post; modelled: posts/us of the slowest node at 0.6 us for a copy and 0.02 for a candidate.",
)


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Measures the spread of every mapping, and of every placement by posting words."""
    rows: list[Row] = []
    for stream, learn, held, words in draw_streams(settings):
        for kind in KINDS:
            n = settings.size.queries // 2
            posts = subscribe(kind, learn, held, words, n, settings.seed)
            if posts is None:
                continue
            for nodes in settings.workers:
                settings.progress(f"{stream}: {kind}-based subscriptions, {nodes} nodes")
                case = {"stream": stream, "subscriptions": kind, "nodes": nodes,
                        "words": len(posts.held.word) / len(posts.held)}  # fmt: skip
                rows += [case | row for row in _measure(posts, nodes, settings.seed)]
    return ExperimentReport(
        "salb-spread", "S3-TM: copies of a post", describe_runs(settings), [*NOTES, *MORE_NOTES],
        COLUMNS, rows, list_verdicts(rows), ReportChart("lines", "spread", _make_panels(rows)),
    )  # fmt: skip


def _measure(posts: SubscribedPosts, nodes: int, seed: int) -> list[Row]:
    """Returns a row for each mapping, and for each placement on SALB's mapping."""
    rows: list[Row] = []
    for algorithm in MAPPINGS:
        mapping, learnt = map_words(posts, algorithm, nodes, False, seed)
        bits = mapping.find_targets(posts.held.off, posts.held.word)
        found = measure_multicast(bits, nodes)
        rows.append({"routed_by": SUBSCRIBED, "algorithm": algorithm, "placement": "any",
                     "spread": found.spread, "imbalance": found.imbalance,
                     "per_copy": found.throughput, "checks": 0.0,
                     "modelled": 0.0})  # fmt: skip
        if algorithm != "SALB":
            continue
        for rule in RULES:
            placed = run_nodes(posts, mapping, learnt, seed, rule)
            few = measure_multicast(route_by_posting_words(posts, placed, seed), nodes)
            work, checks = count_work(posts, placed, seed)
            rows.append({"routed_by": POSTING, "algorithm": algorithm, "placement": rule,
                         "spread": few.spread, "imbalance": few.imbalance,
                         "per_copy": few.throughput, "checks": checks,
                         "modelled": len(posts.held) / float(work.max())})  # fmt: skip
    return rows


def count_work(posts: SubscribedPosts, run: NodeRun, seed: int) -> tuple[F64, float]:
    """Returns (what held-out posts cost each node as they would a worker, us, float64[nodes]; the
    candidates of a post on all nodes): it checks all that is posted under each of its words."""
    nodes = run.placer.mapping.workers
    drawn = posts.subscriptions
    word = run.placer.find_posting_words(drawn.off, drawn.word, run.placed)
    posted = np.bincount(word, minlength=posts.words)
    owner = run.placer.mapping.owner[posts.held.word]
    checks = np.bincount(owner, posted[posts.held.word], nodes)
    copies = count_copies(route_by_posting_words(posts, run, seed), nodes)
    return JUDGED_AT.c2 * copies + JUDGED_AT.c1 * checks, float(checks.sum()) / len(posts.held)


def list_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns verdicts on the order of spreads, their bound and their growth."""
    out: list[ClaimVerdict] = []
    for stream, kind in dict.fromkeys((r["stream"], r["subscriptions"]) for r in rows):
        mine = [r for r in rows if (r["stream"], r["subscriptions"]) == (stream, kind)]
        case = f"{stream}, {kind}-based"
        nodes = list(dict.fromkeys(r["nodes"] for r in mine))

        def read(n: int, name: str, mine: Sequence[Row] = mine) -> float:
            row = find_row(mine, nodes=n, algorithm=name, routed_by=SUBSCRIBED)
            return float(row["spread"])

        for high, low in (("gFCL", "gC"), ("gFCL", "gFC"), ("SALB", "gFCL"), ("SALB", "gNFCL"),
                          ("hash", "SALB")):  # fmt: skip
            ratios = {f"{n}": read(n, high) / read(n, low) for n in nodes}
            out.append(ordering(f"{case}: spread of {high} above {low}, by nodes", ratios, LOST))
        if kind == "topic":
            found = {name: read(max(nodes), name) for name in ("SALB", "hash")}
            out.append(at_most(f"{case}, {max(nodes)} nodes: spread", found, 2.0, "below 2"))
        if len(nodes) > 2:
            growth = [(read(b, "SALB") - read(a, "SALB")) / (b / a - 1)
                      for a, b in itertools.pairwise(nodes)]  # fmt: skip
            ratio = growth[0] / max(growth[-1], 1e-9)
            claim = f"{case}: spread of SALB rises, {nodes[1]} nodes more than {nodes[-1]}"
            out.append(ordering(claim, {"a doubling": ratio}, "rises and flattens"))
        for n in nodes:
            few = {r["placement"]: r for r in mine if r["nodes"] == n and r["routed_by"] == POSTING}
            ratios = {"R": few["LASP"]["spread"] / few["least frequent"]["spread"]}
            claim = f"{case}, {n} nodes, by posting words: spread of LASP above least frequent"
            out.append(ordering(claim, ratios, "not in the paper"))
            for rule in ("LASP", "least cost"):
                ratios = {"modelled": few[rule]["modelled"] / few["least frequent"]["modelled"]}
                claim = f"{case}, {n} nodes, by posting words: {rule} above least frequent"
                out.append(ordering(claim, ratios, "not in the paper"))
    return out


def _make_panels(rows: Sequence[Row]) -> dict[str, dict[str, dict[int, float]]]:
    out: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        panel = out.setdefault(f"{row['stream']}, {row['subscriptions']}-based", {})
        posted = row["routed_by"] == POSTING
        label = f"posting words, {row['placement']}" if posted else row["algorithm"]
        panel.setdefault(label, {})[row["nodes"]] = row["spread"]
    return out
