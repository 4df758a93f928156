"""S3-TM, figures 5 to 12: throughput and imbalance of the whole system with 2 to 256 nodes, with
and without versions of hot words."""

from __future__ import annotations

from collections.abc import Sequence

from ps2stream.experiments.plans import ExperimentSettings, Row
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
    SubscribedPosts,
    describe_runs,
    draw_streams,
    find_row,
    map_words,
    run_nodes,
    subscribe,
)
from ps2stream.planner.s3tm.learning import MAPPINGS

HASH, SALB = "hash", "SALB"
BALANCED = ("hash", "gFCL", "gNFCL", "SALB")
"""Those that balance, which are run with versions of hot words too."""
LOOSE = ("gC", "gFC")
COLUMNS = (
    "stream", "subscriptions", "nodes", "algorithm", "versions", "spread", "imbalance", "per_copy",
    "work_imbalance", "throughput", "learnt",
)  # fmt: skip
WAYS = {"copies": "per_copy", "lookups": "throughput"}
AT_256 = {("topic", "hash"): 2.56, ("topic", "gFCL"): 2.2, ("topic", "gNFCL"): 2.2}
AT_8 = {"gNFCL": 6.0, "gFCL": 4.0}
"""The paper's imbalance over SALB's with 8 nodes, tweet-based."""
BEST = {"tweet": 2.3, "topic": 2.5}
"""The paper's best throughput of SALB over that of hash."""
FLAT = 1.1


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Measures every mapping with every number of nodes."""
    rows: list[Row] = []
    wrong = []
    for stream, learn, held, words in draw_streams(settings):
        for kind in KINDS:
            n = settings.size.queries // 2
            posts = subscribe(kind, learn, held, words, n, settings.seed)
            if posts is None:
                continue
            found: list[Row] = []
            for nodes in settings.workers:
                settings.progress(f"{stream}: {kind}-based subscriptions, {nodes} nodes")
                found += _compare_mappings(posts, nodes, settings.seed)
            if len({row["matches"] for row in found if not row["versions"]}) > 1:
                wrong.append(f"WRONG: mappings find different matches, {stream}, {kind}-based")
            rows += [{"stream": stream, "subscriptions": kind} | row for row in found]
    return ExperimentReport(
        "salb-scale", "S3-TM: throughput by the number of nodes", describe_runs(settings),
        [*NOTES, *wrong], COLUMNS, rows, list_verdicts(rows),
        ReportChart("lines", "throughput / hash", _make_panels(rows)),
    )  # fmt: skip


def _compare_mappings(posts: SubscribedPosts, nodes: int, seed: int) -> list[Row]:
    """Returns a row for each mapping, and one more of those that balance, with versions."""
    rows = []
    for versions, names in ((False, MAPPINGS), (True, BALANCED)):
        for algorithm in MAPPINGS:
            if algorithm in names:
                mapping, learnt = map_words(posts, algorithm, nodes, versions, seed)
                found = run_nodes(posts, mapping, learnt, seed)
                hot = int(mapping.hot.hot.sum())
                rows.append({"nodes": nodes, "algorithm": algorithm, "versions": versions,
                             "hot": hot, **found.to_row()})  # fmt: skip
    return rows


def list_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns verdicts on the orderings, on scaling and on imbalance."""
    out: list[ClaimVerdict] = []
    for stream, kind in dict.fromkeys((r["stream"], r["subscriptions"]) for r in rows):
        mine = [r for r in rows if (r["stream"], r["subscriptions"]) == (stream, kind)]
        case = f"{stream}, {kind}-based"
        nodes = list(dict.fromkeys(r["nodes"] for r in mine))
        for n in nodes:
            rest = max(("gFCL", "gNFCL", HASH), key=lambda name: _read(mine, n, name, "per_copy"))
            claim = f"{case}, {n} nodes: SALB above the best other ({rest})"
            out.append(ordering(claim, _compare(mine, n, SALB, rest), "best of all"))
        best = {
            way: max(_read(mine, n, SALB, key) / _read(mine, n, HASH, key) for n in nodes)
            for way, key in WAYS.items()
        }
        out.append(ordering(f"{case}: SALB over hash, at most", best, "up to", BEST[kind]))
        most = max(nodes)
        for other in ("hash", "gFCL", "gNFCL"):
            known = AT_256.get((kind, other)) if most == 256 else None
            claim = f"{case}, {most} nodes: SALB over {other}"
            ratios = _compare(mine, most, SALB, other)
            out.append(ordering(claim, ratios, "256 nodes" if known else LOST, known))
        loose = max(LOOSE, key=lambda name: _read(mine, most, name, "per_copy", False))
        ratios = {way: _read(mine, most, SALB, key) / _read(mine, most, loose, key, False)
                  for way, key in WAYS.items()}  # fmt: skip
        out.append(ordering(f"{case}, {most} nodes: SALB over gC and gFC", ratios, "over", 10.0))
        out += _judge_scaling(mine, case, nodes)
        if 8 in nodes:
            for other, factor in AT_8.items():
                ratio = _read(mine, 8, other, "imbalance") / _read(mine, 8, SALB, "imbalance")
                claim = f"{case}, 8 nodes: imbalance of {other} above SALB's"
                out.append(ordering(claim, {"B": ratio}, "tweet-based", factor))
    return out


def _judge_scaling(mine: Sequence[Row], case: str, nodes: Sequence[int]) -> list[ClaimVerdict]:
    """Returns verdicts on how throughput grows with the nodes."""
    out = []
    most = max(nodes)
    if 128 in nodes and most == 256:
        ratios = {way: _read(mine, 256, SALB, key, False) / _read(mine, 128, SALB, key, False)
                  for way, key in WAYS.items()}  # fmt: skip
        claim = f"{case}: without versions, 256 nodes over 128"
        out.append(at_most(claim, ratios, FLAT, "flat after 128"))
    if 64 in nodes and 2 in nodes:
        scale = [_read(mine, n, SALB, "per_copy", False) for n in (2, 64)]
        balance = [_read(mine, n, SALB, "imbalance", False) for n in (2, 64)]
        ratios = {"throughput": scale[1] / scale[0] / 32, "times spread": balance[0] / balance[1]}
        claim = f"{case}: without versions, 64 nodes over 32 times 2 nodes"
        out.append(ordering(claim, ratios, "linear to 64", 1.0))
    ratios = {way: _read(mine, most, SALB, key) / _read(mine, most, SALB, key, False)
              for way, key in WAYS.items()}  # fmt: skip
    out.append(ordering(f"{case}, {most} nodes: SALB with versions above without", ratios,
                        "near-linear with them"))  # fmt: skip
    return out


def _read(
    rows: Sequence[Row], nodes: int, algorithm: str, key: str, versions: bool = True
) -> float:
    row = find_row(rows, nodes=nodes, algorithm=algorithm, versions=versions)
    return float(row[key])


def _compare(rows: Sequence[Row], nodes: int, a: str, b: str) -> dict[str, float]:
    """Returns the throughput of a over that of b by both ways of counting."""
    return {way: _read(rows, nodes, a, key) / _read(rows, nodes, b, key)
            for way, key in WAYS.items()}  # fmt: skip


def _make_panels(rows: Sequence[Row]) -> dict[str, dict[str, dict[int, float]]]:
    out: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        case = {"stream": row["stream"], "subscriptions": row["subscriptions"]}
        base = find_row(rows, **case, nodes=row["nodes"], algorithm=HASH, versions=False)
        panel = out.setdefault(f"{row['stream']}, {row['subscriptions']}-based", {})
        label = f"{row['algorithm']}{', versions' if row['versions'] else ''}"
        panel.setdefault(label, {})[row["nodes"]] = row["per_copy"] / base["per_copy"]
    return out
