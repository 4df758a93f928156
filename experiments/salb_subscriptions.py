"""S3-TM, figures 14 to 21: throughput, spread and imbalance by the number of subscriptions, and
where subscriptions are placed."""

from __future__ import annotations

from collections.abc import Sequence

from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import ClaimVerdict, ExperimentReport, ReportChart, ordering
from ps2stream.experiments.s3tm.runs import (
    KINDS,
    NOTES,
    SubscribedPosts,
    describe_runs,
    draw_streams,
    find_row,
    map_words,
    run_nodes,
    subscribe,
)
from ps2stream.experiments.s3tm.trie import fit_cost
from ps2stream.multicast.placement import RULES, MatchingCost, PlacementRule
from ps2stream.planner.s3tm.learning import MappingAlgorithm

SALB, HASH, LASP, FITTED = "SALB", "hash", "LASP", "LASP, fitted line"
QUICK = (100, 1_000, 10_000, 100_000)
FULL = (*QUICK, 1_000_000)
MAPPED: tuple[MappingAlgorithm, ...] = ("hash", "gFCL", "gNFCL", "SALB")
COLUMNS = (
    "stream", "kind", "subscriptions", "nodes", "algorithm", "placement", "words", "spread",
    "imbalance", "per_copy", "work_imbalance", "lookups", "throughput",
)  # fmt: skip
WAYS = {"copies": "per_copy", "lookups": "throughput"}
MEAN = {("tweet", "gNFCL"): (1.15, 10_000), ("tweet", "gFCL"): (1.10, 100_000),
        ("topic", "gNFCL"): (1.22, 10_000_000), ("topic", "gFCL"): (1.18, 10_000_000),
        ("topic", "hash"): (1.42, 10_000_000)}  # fmt: skip
"""The paper's throughput of SALB over another's, and up to how many subscriptions."""
MOST = {"tweet": 4.2, "topic": 1.42}
BALANCE = {"tweet": 3.3, "topic": 1.7}
"""The paper's largest throughput over the hash's, and smallest imbalance under it."""
MORE_NOTES = (
    "words: words that subscriptions have. lookups: of all nodes, by post. Subscriptions beyond",
    "the number of learnt posts repeat them. LASP's line is proportional to the words of a node;",
    f"with '{FITTED}' it is fitted to the lookups of tries (figure 3). Hot words have versions.",
)


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Measures the mappings by LASP, and SALB's by every placement."""
    rows: list[Row] = []
    lines = []
    for stream, learn, held, words in draw_streams(settings):
        for kind in KINDS:
            for n in FULL if settings.sweeps else QUICK:
                settings.progress(f"{stream}: {n:,} {kind}-based subscriptions")
                posts = subscribe(kind, learn, held, words, n, settings.seed)
                if posts is None:
                    continue
                cost, points = fit_cost(posts.learn, posts.subscriptions, words)
                if n == max(QUICK):
                    ends = f"{points[0][1]:.3g} lookups at {points[0][0]:,} words, "
                    ends += f"{points[-1][1]:.3g} at {points[-1][0]:,}"
                    line = f"{cost.base:.3g} + {cost.per_word:.3g} n"
                    lines.append(f"{stream}, {kind}-based: {ends}; the fitted line is {line}.")
                case = {"stream": stream, "kind": kind, "subscriptions": n,
                        "words": int((posts.frequency > 0).sum())}  # fmt: skip
                for nodes in settings.workers:
                    found = _compare(posts, nodes, cost, settings.seed)
                    rows += [case | {"nodes": nodes} | row for row in found]
    return ExperimentReport(
        "salb-subscriptions", "S3-TM: throughput by the number of subscriptions",
        describe_runs(settings), [*NOTES, *MORE_NOTES, *lines], COLUMNS, rows, list_verdicts(rows),
        ReportChart("lines", "throughput / hash", _make_panels(rows)),
    )  # fmt: skip


def _compare(posts: SubscribedPosts, nodes: int, cost: MatchingCost, seed: int) -> list[Row]:
    """Returns a row for each mapping by LASP, and for each other placement on SALB's."""
    rows = []
    for algorithm in MAPPED:
        mapping, learnt = map_words(posts, algorithm, nodes, True, seed)
        cases: list[tuple[str, PlacementRule, MatchingCost | None]] = [(LASP, "LASP", None)]
        if algorithm == SALB:
            cases += [(rule, rule, None) for rule in RULES if rule != "LASP"]
            cases.append((FITTED, "LASP", cost))
        for name, rule, line in cases:
            found = run_nodes(posts, mapping, learnt, seed, rule, line)
            each = float(found.matched.probes.sum()) / len(posts.held)
            rows.append({"algorithm": algorithm, "placement": name, "lookups": each,
                         **found.to_row()})  # fmt: skip
    return rows


def list_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns verdicts on the mappings, on the course over subscriptions, and on placements."""
    out: list[ClaimVerdict] = []
    for stream, kind, nodes in dict.fromkeys((r["stream"], r["kind"], r["nodes"]) for r in rows):
        mine = [r for r in rows if (r["stream"], r["kind"], r["nodes"]) == (stream, kind, nodes)]
        case = f"{stream}, {kind}-based, {nodes} nodes"
        sizes = list(dict.fromkeys(r["subscriptions"] for r in mine))
        for (of, other), (factor, most) in MEAN.items():
            if of == kind:
                within = [n for n in sizes if n <= most]
                ratios = {
                    way: sum(_divide(mine, n, SALB, other, key) for n in within) / len(within)
                    for way, key in WAYS.items()
                }
                claim = f"{case}: SALB above {other}, mean up to {max(within):,}"
                out.append(ordering(claim, ratios, "up to " + f"{most:,}", factor))
        best = {way: max(_divide(mine, n, SALB, HASH, key) for n in sizes)
                for way, key in WAYS.items()}  # fmt: skip
        out.append(ordering(f"{case}: SALB over hash, at most", best, "up to", MOST[kind]))
        balance = max(_divide(mine, n, HASH, SALB, "imbalance") for n in sizes)
        claim = f"{case}: imbalance of hash above SALB's, at most"
        out.append(ordering(claim, {"B": balance}, "up to", BALANCE[kind]))
        out += _judge_course(mine, case, kind, sizes)
        for n in sizes[-2:]:
            for other in (*RULES[1:], FITTED):
                rest = _read(mine, n, SALB, "throughput", other)
                all_of = _read(mine, n, SALB, "lookups", other)
                ratios = {
                    "slowest node": _read(mine, n, SALB, "throughput") / rest,
                    "all lookups": all_of / _read(mine, n, SALB, "lookups"),
                }
                claim = f"{case}, {n:,}: LASP above {other}"
                out.append(ordering(claim, ratios, "not told"))
    return out


def _judge_course(
    mine: Sequence[Row], case: str, kind: str, sizes: Sequence[int]
) -> list[ClaimVerdict]:
    """Returns verdicts on what more subscriptions cost."""
    few, many = sizes[0], sizes[-1]
    out = []
    if kind == "tweet":
        drop = _read(mine, few, SALB, "throughput") / _read(mine, many, SALB, "throughput")
        claim = f"{case}: throughput falls from {few:,} to {many:,} subscriptions"
        out.append(ordering(claim, {"lookups": drop}, "almost linearly to 1M"))
    elif 10_000 in sizes and many > 10_000:
        course = {way: _read(mine, 10_000, SALB, key) / _read(mine, many, SALB, key)
                for way, key in WAYS.items()}  # fmt: skip
        claim = f"{case}: throughput with 10,000 over that with {many:,}"
        out.append(ordering(claim, course, "flat after 10K", 1.0))
    return out


def _read(rows: Sequence[Row], n: int, algorithm: str, key: str, placement: str = LASP) -> float:
    row = find_row(rows, subscriptions=n, algorithm=algorithm, placement=placement)
    return float(row[key])


def _divide(rows: Sequence[Row], n: int, a: str, b: str, key: str) -> float:
    return _read(rows, n, a, key) / _read(rows, n, b, key)


def _make_panels(rows: Sequence[Row]) -> dict[str, dict[str, dict[int, float]]]:
    out: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        case = {name: row[name] for name in ("stream", "kind", "subscriptions", "nodes")}
        base = find_row(rows, **case, algorithm=HASH, placement=LASP)
        panel = out.setdefault(f"{row['stream']}, {row['kind']}-based, {row['nodes']} nodes", {})
        label = row["algorithm"] if row["placement"] == LASP else f"SALB, {row['placement']}"
        panel.setdefault(label, {})[row["subscriptions"]] = row["throughput"] / base["throughput"]
    return out
