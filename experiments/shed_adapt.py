"""S3-TM, figure 27: the level of shedding while 16,000 posts a second become 32,000, 2,000 and
16,000 again."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import ClaimVerdict, ExperimentReport, ReportChart, ordering
from ps2stream.experiments.s3tm.buffer import (
    RankedPosts,
    measure_loads,
    simulate_router,
)
from ps2stream.experiments.s3tm.runs import (
    HALVES,
    choose_workers,
    describe_runs,
    draw_streams,
    map_words,
    run_nodes,
    subscribe,
)
from ps2stream.multicast.capping import rank_workers
from ps2stream.multicast.shedding_levels import HIGHEST_LEVEL, BufferSegments, divide_buffer

PHASES = ((0, 16_000), (500, 32_000), (1000, 2_000), (1500, 16_000))
"""Posts a second from each second on."""
SECONDS = 2000
RISES, FALLS, ENDS = 500, 1000, 1500
LARGE, SMALL = 500_000, 50_000
"""Buffers: b, posts up to the end of the stable segment."""
OVERLOAD = 0.5
"""The room of the overload segment, over b."""
CAPACITIES = (17_000, 20_000, 24_000)
"""Posts a second that the nodes take without shedding."""
USUAL = 20_000
DERIVED, LATE = "derived", "0.95 b"
PAPER_LEVEL = 7
SHOWN = 50
COLUMNS = (
    "stream", "nodes", "capacity", "buffer", "ideal_to", "rule", "second", "rate", "waiting",
    "level", "shed", "dropped",
)  # fmt: skip
MORE_NOTES = (
    f"A router, second by second; rows are of {SHOWN} seconds. capacity: posts a second that the",
    "nodes take unshed; buffer: posts that wait up to the end of the stable segment, and half as",
    "many more fit; ideal_to: end of the ideal segment over that, by the derived rule (2.6) from",
    "the loads of levels on the posts that were learnt from, or at 0.95. shed: part of the copies;",
    "dropped: posts that found the buffer full. Subscription shedding, SALB, tweet-based.",
)


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Simulates the router with several capacities, buffers and rules."""
    rows: list[Row] = []
    for stream, learn, held, words in draw_streams(settings):
        posts = subscribe("tweet", learn, held, words, settings.size.queries // 2, settings.seed)
        assert posts is not None
        for nodes in settings.workers:
            settings.progress(f"{stream}: {nodes} nodes")
            mapping, learnt = map_words(posts, "SALB", nodes, False, settings.seed)
            found = run_nodes(posts, mapping, learnt, settings.seed)
            ranked = []
            for part in (posts.learn, posts.held):
                objects = choose_workers(found, part)
                draw = np.random.default_rng([settings.seed, 9]).random(len(part))
                ranked.append(RankedPosts(*rank_workers(objects, "subscription", draw)))
            case = {"stream": stream, "nodes": nodes}
            found_rows = _follow_rates(ranked[0], ranked[1], nodes, settings.seed)
            rows += [case | row for row in found_rows]
    return ExperimentReport(
        "shed-adapt", "S3-TM: the level of shedding over time",
        describe_runs(settings, seconds=SECONDS), [*HALVES, *MORE_NOTES], COLUMNS,
        [row for row in rows if row["second"] % SHOWN == 0], list_verdicts(rows),
        ReportChart("course", "level; thousand posts/s", _make_panels(rows)),
    )  # fmt: skip


def _follow_rates(learn: RankedPosts, held: RankedPosts, nodes: int, seed: int) -> list[Row]:
    """Returns a row for each second of each run."""
    loads = measure_loads(learn, nodes, HIGHEST_LEVEL)
    rates = [max(phase for phase in PHASES if phase[0] <= t)[1] for t in range(SECONDS)]
    rows: list[Row] = []
    cases = [(capacity, LARGE, DERIVED) for capacity in CAPACITIES]
    cases += [(USUAL, SMALL, DERIVED), (USUAL, SMALL, LATE)]
    for capacity, buffer, rule in cases:
        segments = divide_buffer(buffer, loads.tolist())
        if rule == LATE:
            segments = BufferSegments(0.95 * buffer, buffer)
        took = simulate_router(
            held, rates, segments, int((1 + OVERLOAD) * buffer), capacity * float(loads[0]),
            nodes, seed,
        )  # fmt: skip
        case = {"capacity": capacity, "buffer": buffer, "rule": rule,
                "ideal_to": segments.ideal_end / buffer}  # fmt: skip
        shed = took.shed / np.maximum(took.copies + took.shed, 1)
        rows += [
            case | {"second": t, "rate": rates[t], "waiting": waiting, "level": level,
                    "shed": part, "dropped": dropped,
                    "segment": segments.find(waiting)}
            for t, (waiting, level, part, dropped) in enumerate(zip(
                took.waiting.tolist(), took.level.tolist(), shed.tolist(), took.dropped.tolist(),
                strict=True))
        ]  # fmt: skip
    return rows


def list_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns verdicts on how far, how fast and how steadily the level moves. rows: all seconds."""
    out: list[ClaimVerdict] = []
    for at in dict.fromkeys((r["stream"], r["nodes"]) for r in rows):
        mine = [r for r in rows if (r["stream"], r["nodes"]) == at]
        case = f"{at[0]}, {at[1]} nodes"
        runs = {
            (capacity, buffer, rule): [
                r
                for r in mine
                if (r["capacity"], r["buffer"], r["rule"]) == (capacity, buffer, rule)
            ]
            for capacity, buffer, rule in dict.fromkeys(
                (r["capacity"], r["buffer"], r["rule"]) for r in mine
            )
        }
        falls = {}
        for (capacity, buffer, rule), course in runs.items():
            name = f"{case}, {capacity:,}/s, buffer {buffer:,}, {rule}"
            levels = [r["level"] for r in course]
            highest = max(levels[RISES:FALLS])
            first = _find_change(levels, RISES, 1)
            rise = levels.index(highest, RISES) - first + 1
            verdict = "holds" if highest == PAPER_LEVEL else "differs"
            measured = f"{highest}, within {rise} s, from {first - RISES} s on"
            claim = f"{name}: level with 32,000/s rises to"
            out.append(ClaimVerdict(claim, measured, f"{PAPER_LEVEL}", verdict))
            fall = _find_zero(levels, FALLS)
            falls[capacity, buffer, rule] = fall
            measured = f"0 after {fall} s, rose within {rise} s"
            claim = f"{name}: with 2,000/s the level falls more slowly than it rose"
            late = "holds" if fall > rise else "equal" if fall == rise else "reversed"
            out.append(ClaimVerdict(claim, measured, "falls late", late))
            jumps = count_jumps([r["segment"] for r in course])
            changes = sum(a != b for a, b in itertools.pairwise(levels[RISES + 100 : FALLS]))
            measured = f"{jumps} jumps; {changes} changes of level from {RISES + 100} to {FALLS} s"
            claim = f"{name}: never from ideal to overload or back in one step"
            out.append(ClaimVerdict(claim, measured, "ensured", "met" if not jumps else "missed"))
            dropped = sum(r["dropped"] for r in course)
            claim = f"{name}: no post finds the buffer full"
            out.append(ClaimVerdict(claim, f"{dropped:,}", "avoided",
                                    "met" if not dropped else "missed"))  # fmt: skip
        large, small = falls[USUAL, LARGE, DERIVED], falls[USUAL, SMALL, DERIVED]
        claim = f"{case}: the level of the large buffer takes longer to fall to 0 than the small's"
        out.append(
            ordering(claim, {"seconds": large / max(small, 1)}, "shorter with small buffers")
        )
    return out


def count_jumps(segments: Sequence[str]) -> int:
    """Returns the steps from ideal to overload or back."""
    return sum({a, b} == {"ideal", "overload"} for a, b in itertools.pairwise(segments))


def _find_change(levels: Sequence[int], begin: int, sign: int) -> int:
    """Returns the first second from `begin` on at which the level moves that way, or the last."""
    found = (t for t in range(begin, len(levels)) if (levels[t] - levels[t - 1]) * sign > 0)
    return next(found, len(levels))


def _find_zero(levels: Sequence[int], begin: int) -> int:
    """Returns after how many seconds from `begin` on the level is 0."""
    return next((t - begin for t in range(begin, len(levels)) if not levels[t]), len(levels))


def _make_panels(rows: Sequence[Row]) -> dict[str, dict[str, dict[int, float]]]:
    out: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        title = f"{row['stream']}, {row['nodes']} nodes, buffer {row['buffer']:,}, {row['rule']}"
        panel = out.setdefault(title, {})
        panel.setdefault("input, thousand/s", {})[row["second"]] = row["rate"] / 1000
        panel.setdefault(f"level, {row['capacity']:,}/s", {})[row["second"]] = row["level"]
    return out
