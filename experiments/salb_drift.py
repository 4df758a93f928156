"""S3-TM, figures 22 to 25: a mapping that was learnt once, on posts that come later.

The posts are in the order of time, not shuffled, and cut into ten periods of as many posts each.
The mapping is learnt on every second post of the first period. Each period has topics and
subscriptions of its own. The other posts of the first period show what is lost by having learnt a
sample by heart; the same posts in a random order show what is lost with time alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import ClaimVerdict, ExperimentReport, ReportChart, ordering
from ps2stream.experiments.s3tm.posts import draw_posts, read_in_order
from ps2stream.experiments.s3tm.runs import (
    KINDS,
    MEASURES,
    describe_runs,
    draw_subscriptions,
    find_row,
    make_subscribed,
    map_words,
    run_nodes,
)
from ps2stream.planner.s3tm.learning import MappingAlgorithm
from ps2stream.planner.s3tm.publications import WordPublications
from ps2stream.protocol.frame import I64

MAPPED: tuple[MappingAlgorithm, ...] = ("hash", "gFCL", "gNFCL", "SALB")
PERIODS = 10
LEARNT, HELD = "0, learnt", "0, held out"
IN_TIME, SHUFFLED = "time", "chance"
SUBSCRIBED, ALL = "subscribed words", "all words"
COLUMNS = (
    "stream", "order", "kind", "nodes", "learnt_on", "period", "from_day", "algorithm", "spread",
    "imbalance", "per_copy", "work_imbalance", "throughput", "new_words",
)  # fmt: skip
WAYS = {"copies": "per_copy", "lookups": "throughput"}
FALL = 2.0
DAY_MS = 86_400_000
MORE_NOTES = (
    "Periods of as many posts each, in the order of time; the mapping is learnt on one half of the",
    "posts of period 0, of the words that its subscriptions have or of all; others go by hash.",
    "Each period has topics and subscriptions of its own. from_day: days from the first post to",
    "it. new_words: part of the occurrences of subscribed words that the learnt posts do not have.",
    "The synthetic stream has no times: its order is random, and nothing drifts.",
)


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Measures the mappings of the first period on every period."""
    rows: list[Row] = []
    for stream, order, posts, times, words in _order_streams(settings):
        for kind in KINDS:
            settings.progress(f"{stream}, order of {order}: {kind}-based subscriptions")
            case = {"stream": stream, "order": order, "kind": kind}
            found = _follow_periods(posts, times, words, kind, settings)
            rows += [case | row for row in found]
    return ExperimentReport(
        "salb-drift", "S3-TM: a mapping as time passes", describe_runs(settings),
        [*MEASURES, *MORE_NOTES], COLUMNS, rows, list_verdicts(rows),
        ReportChart("course", "throughput / hash", _make_panels(rows)),
    )  # fmt: skip


def _order_streams(
    settings: ExperimentSettings,
) -> Iterator[tuple[str, str, WordPublications, I64, int]]:
    """Yields (stream, order, posts, times in ms, number of words)."""
    n = settings.size.planned + settings.size.judged
    for stream, source in settings.sources.items():
        settings.progress(f"{stream}: reading the stream")
        if source == "synthetic":
            learn, held, words = draw_posts(source, n, settings.seed)
            joined = WordPublications(
                np.r_[learn.off, held.off[1:] + learn.off[-1]], np.r_[learn.word, held.word]
            )
            yield stream, SHUFFLED, joined, np.zeros(len(joined), np.int64), words
            continue
        posts, times, words = read_in_order(source, n, settings.seed)
        yield stream, IN_TIME, posts, times, words
        mixed = np.random.default_rng([settings.seed, 6]).permutation(len(posts))
        yield stream, SHUFFLED, posts.take(mixed), times[mixed], words


def _follow_periods(
    posts: WordPublications, times: I64, words: int, kind: str, settings: ExperimentSettings
) -> list[Row]:
    """Returns a row for each period, number of nodes and mapping."""
    n, size, seed = settings.size.queries // 2, len(posts) // PERIODS, settings.seed
    first = np.arange(size)
    learn = posts.take(first[::2])
    drawn = draw_subscriptions(kind, learn, words, n, seed)
    if drawn is None:
        return []
    mine = make_subscribed(learn, learn, drawn, words)
    whole = dataclasses.replace(mine, learn=learn, frequency=learn.count_words(words))
    maps = {
        (nodes, learnt_on, name): map_words(sample, name, nodes, True, seed)
        for nodes in settings.workers
        for learnt_on, sample in ((SUBSCRIBED, mine), (ALL, whole))
        for name in MAPPED
    }
    known = learn.count_words(words) > 0
    rows: list[Row] = []
    for period in range(-1, PERIODS):
        here = first[::2] if period < 0 else first[1::2] if period == 0 else first + period * size
        held = posts.take(here)
        own = draw_subscriptions(kind, held, words, n, seed) if period > 0 else drawn
        if own is None:
            continue
        mine = make_subscribed(learn, held, own, words)
        label = LEARNT if period < 0 else HELD if period == 0 else f"{period}"
        case = {"period": label, "from_day": float(times[here[0]] - times.min()) / DAY_MS,
                "new_words": float((~known[mine.held.word]).mean())}  # fmt: skip
        for (nodes, learnt_on, name), (mapping, measures) in maps.items():
            found = run_nodes(mine, mapping, measures, seed)
            rows.append({"nodes": nodes, "learnt_on": learnt_on, "algorithm": name, **case,
                         **found.to_row()})  # fmt: skip
    return rows


def list_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns verdicts on the fall after the first period, on the course, and on the order."""
    out: list[ClaimVerdict] = []
    names = ("stream", "order", "kind", "nodes", "learnt_on")
    for at in dict.fromkeys(tuple(r[name] for name in names) for r in rows):
        case = dict(zip(names, at, strict=True))
        mine = [r for r in rows if all(r[name] == of for name, of in case.items())]
        later = [p for p in dict.fromkeys(r["period"] for r in mine) if p not in (LEARNT, HELD)]
        if len(later) < 6 or not any(r["period"] == HELD for r in mine):
            continue
        title = f"{at[0]}, order of {at[1]}, {at[2]}-based, {at[3]} nodes, learnt on {at[4]}"

        def mean(name: str, key: str, periods: Sequence[str], mine: Sequence[Row] = mine) -> float:
            found = [find_row(mine, algorithm=name, period=p)[key] for p in periods]
            return float(np.mean(found))

        fall = {way: mean("SALB", key, [LEARNT]) / mean("SALB", key, later)
                for way, key in WAYS.items()}  # fmt: skip
        claim = f"{title}: throughput of SALB where it learnt above that of later periods"
        out.append(ordering(claim, fall, "halves", FALL))
        by_heart = {way: mean("SALB", key, [LEARNT]) / mean("SALB", key, [HELD])
                    for way, key in WAYS.items()}  # fmt: skip
        claim = f"{title}: the same above that of other posts of period 0"
        out.append(ordering(claim, by_heart, "not told"))
        course = {way: mean("SALB", key, later[-3:]) / mean("SALB", key, later[:3])
                  for way, key in WAYS.items()}  # fmt: skip
        out.append(ordering(f"{title}: last three periods over the first three later ones", course,
                            "flat", 1.0))  # fmt: skip
        for other in MAPPED[:-1]:
            ratios = {way: mean("SALB", key, later) / mean(other, key, later)
                      for way, key in WAYS.items()}  # fmt: skip
            out.append(ordering(f"{title}: later, SALB above {other}", ratios, "order kept"))
    return out


def _make_panels(rows: Sequence[Row]) -> dict[str, dict[str, dict[float, float]]]:
    out: dict[str, dict[str, dict[float, float]]] = {}
    for row in rows:
        if row["learnt_on"] != SUBSCRIBED:
            continue
        case = {name: row[name] for name in ("stream", "order", "kind", "nodes", "period",
                                             "learnt_on")}  # fmt: skip
        base = find_row(rows, **case, algorithm="hash")
        title = f"{row['stream']}, {row['order']}, {row['kind']}, {row['nodes']} nodes"
        period = str(row["period"])
        at = float({LEARNT: "0", HELD: "0.5"}.get(period, period))
        series = out.setdefault(title, {}).setdefault(row["algorithm"], {})
        series[at] = row["per_copy"] / base["per_copy"]
    return out
