"""S3-TM, figure 26: matches that are still found, and load that is shed, by the most nodes that a
post is sent to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import (
    ClaimVerdict,
    ExperimentReport,
    ReportChart,
    at_least,
    ordering,
)
from ps2stream.experiments.s3tm.runs import (
    KINDS,
    NOTES,
    NodeRun,
    SubscribedPosts,
    choose_workers,
    describe_runs,
    draw_streams,
    map_words,
    run_nodes,
    subscribe,
)
from ps2stream.multicast.bitsets import count_targets
from ps2stream.multicast.capping import RANKS, cap_multicast
from ps2stream.multicast.shedding_levels import HIGHEST_LEVEL, targets_at
from ps2stream.multicast.shedding_losses import find_lost
from ps2stream.protocol.frame import I64

AT, KEPT = 0.25, 0.9
"""The paper's part of the load that is shed, and of the matches that are still found."""
POSTED = "subscription, posting words"
ENOUGH = 1_000
"""Matches below which their parts say nothing."""
COLUMNS = (
    "stream", "subscriptions", "nodes", "rank", "level", "targets", "shed", "shed_lookups",
    "accuracy", "matches",
)  # fmt: skip
MORE_NOTES = (
    "targets: the most nodes of a post, at the levels of the product, 7 at level 1 and 1 at level",
    "8; a fraction is the probability of one more. shed, shed_lookups: part of the copies and of",
    "the lookups that are saved; accuracy: part of the matches that are still found. SALB, LASP.",
    "Posts that are dropped at random lose as large a part of the matches as of the load.",
    f"{POSTED}: a subscription counts only for the word by which it is reached, as in the",
    "gridt's H2, and not for each word that it has.",
)


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Measures both ranks at every level."""
    rows: list[Row] = []
    for stream, learn, held, words in draw_streams(settings):
        for kind in KINDS:
            n = settings.size.queries // 2
            posts = subscribe(kind, learn, held, words, n, settings.seed)
            if posts is None:
                continue
            for nodes in settings.workers:
                settings.progress(f"{stream}: {kind}-based subscriptions, {nodes} nodes")
                case = {"stream": stream, "subscriptions": kind, "nodes": nodes}
                rows += [case | row for row in _shed(posts, nodes, settings.seed)]
    return ExperimentReport(
        "shed-accuracy", "S3-TM: matches found while load is shed", describe_runs(settings),
        [*NOTES, *MORE_NOTES], COLUMNS, rows, list_verdicts(rows),
        ReportChart("course", "accuracy, by part shed", _make_panels(rows)),
    )  # fmt: skip


def _shed(posts: SubscribedPosts, nodes: int, seed: int) -> list[Row]:
    """Returns a row for each rank and level."""
    found = run_nodes(posts, *map_words(posts, "SALB", nodes, False, seed), seed)
    objects, matched = choose_workers(found, posts.held), found.matched
    posted = objects._replace(live=count_posted(posts, found)[posts.held.word])
    rng = np.random.default_rng([seed, 8])
    everything = np.ones(len(posts.held), np.bool_)
    copies, rows = int(count_targets(found.bits).sum()), []
    total = int(matched.found.sum())
    for name, rank, of in (
        *((rank, rank, objects) for rank in RANKS), (POSTED, "subscription", posted)
    ):  # fmt: skip
        for level in range(HIGHEST_LEVEL + 1):
            targets = targets_at(level)
            draw = rng.random(len(posts.held))
            capped = cap_multicast(of, targets, rank, everything, draw)
            lost = find_lost(capped.bits, matched.row, matched.node)
            rows.append({
                "rank": name, "level": level, "targets": targets if level else 0.0,
                "shed": 1.0 - float(count_targets(capped.bits).sum()) / copies,
                "shed_lookups": float(matched.probes[lost].sum() / max(matched.probes.sum(), 1)),
                "accuracy": 1.0 - float(matched.found[lost].sum()) / max(total, 1),
                "matches": total,
            })  # fmt: skip
    return rows


def count_posted(posts: SubscribedPosts, run: NodeRun) -> I64:
    """Returns the placements that each word reaches, int64[words]: H2's count."""
    drawn = posts.subscriptions
    word = run.placer.find_posting_words(drawn.off, drawn.word, run.placed)
    return np.bincount(word, minlength=posts.words)


def list_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns verdicts on what is found while a quarter is shed, and on the better rank."""
    out: list[ClaimVerdict] = []
    for at in dict.fromkeys((r["stream"], r["subscriptions"], r["nodes"]) for r in rows):
        mine = [r for r in rows if (r["stream"], r["subscriptions"], r["nodes"]) == at]
        case = f"{at[0]}, {at[1]}-based, {at[2]} nodes"
        if mine[0]["matches"] < ENOUGH:
            claim = f"{case}: there are matches to lose"
            out.append(ClaimVerdict(claim, f"{mine[0]['matches']:,}", "not told", "missed"))
            continue
        names = list(dict.fromkeys(r["rank"] for r in mine))
        found = {rank: find_accuracy(mine, rank, AT) for rank in names}
        for rank in names:
            claim = f"{case}: part of the matches found with {AT:.0%} shed by {rank}"
            goal = at_least(claim, {rank: found[rank]}, KEPT)
            out.append(goal._replace(
                claim=f"{claim} at least {KEPT:g}", measured=f"{found[rank]:.3f}",
                paper="90% at close to 25%",
            ))  # fmt: skip
        ratio = {"matches lost": (1 - found["consensus"]) / max(1 - found["subscription"], 1e-9)}
        claim = f"{case}: consensus loses more than subscription with {AT:.0%} shed"
        out.append(ordering(claim, ratio, "subscription is better"))
        if POSTED in found:
            ratio = {"matches lost": (1 - found["subscription"]) / max(1 - found[POSTED], 1e-9)}
            claim = f"{case}: subscription loses more than {POSTED}, with {AT:.0%} shed"
            out.append(ordering(claim, ratio, "not in the paper"))
        worst = min(r["accuracy"] - (1 - r["shed"]) for r in mine)
        better = "met" if worst >= -1e-9 else "missed"
        claim = f"{case}: at no level is less found than without as many posts drawn at random"
        out.append(ClaimVerdict(claim, f"{worst:+.3f} at least", "friendly to shedding", better))
    return out


def find_accuracy(rows: Sequence[Row], rank: str, shed: float) -> float:
    """Returns the accuracy where so much is shed, between the two nearest levels."""
    mine = sorted((r["shed"], r["accuracy"]) for r in rows if r["rank"] == rank)
    return float(np.interp(shed, [x for x, _ in mine], [y for _, y in mine]))


def _make_panels(rows: Sequence[Row]) -> dict[str, dict[str, dict[float, float]]]:
    out: dict[str, dict[str, dict[float, float]]] = {}
    for row in rows:
        title = f"{row['stream']}, {row['subscriptions']}-based, {row['nodes']} nodes"
        out.setdefault(title, {}).setdefault(row["rank"], {})[row["shed"]] = row["accuracy"]
    return out
