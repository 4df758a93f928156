"""FISH, figures 9, 10, 14 and 16: execution time over shuffle grouping, with what epochs and
waiting times bring."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ps2stream.experiments.keyed.fish_runs import (
    DC,
    FISH,
    PKG,
    WC,
    FishExperiment,
    compare_schemes,
    index_rows,
    list_streams,
    uneven_seconds,
)
from ps2stream.experiments.keyed.measure import RunClock
from ps2stream.experiments.keyed.streams import KeyStream
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import (
    TIE,
    ClaimVerdict,
    ExperimentReport,
    at_most,
    ordering,
)
from ps2stream.keyed.counters import CounterOptions
from ps2stream.keyed.partitioner import SchemeOptions

LIFETIME, TIMED, COUNTED = "FISH, lifetime", "FISH, uneven", "FISH, uneven, by count"
COLUMNS = ("stream", "tuples", "workers", "scheme", "time", "held", "mean_delay", "memory")
SCHEMES = {
    PKG: (PKG, None), DC: (DC, None), WC: (WC, None), FISH: (FISH, None),
    LIFETIME: (FISH, SchemeOptions(counters=CounterOptions(alpha=1.0))),
}  # fmt: skip
UNEVEN = {TIMED: (FISH, None), COUNTED: (FISH, SchemeOptions(timed=False))}
REAL_GOAL, ZIPF_GOAL = 1.07, 1.32
LATENCY = 1 / (1 - 0.8712)
MORE_NOTES = (
    "mean_delay: from arrival to end, a tuple taking 1 s. lifetime: FISH that counts the whole",
    "stream, alpha 1. uneven: every second worker takes half as long; by waiting time or count.",
    "paper: FISH at most 1.07x SG on its real streams, 1.32x on ZF; PKG 1.12 to 8.32x FISH, D-C",
    "and W-C up to 7.44x and 6.95x (real), 13.57x and 12.05x (ZF); epochs up to 11.91x, waiting",
    "times up to 2.61x; on Storm with 128 workers the mean latency is 87.12% below that of W-C.",
    "The values of its charts are not in the text.",
)


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Measures all schemes on real streams and ZF."""
    experiment = FishExperiment(
        "fish-time", "FISH: execution time over SG", COLUMNS, MORE_NOTES, compare_times,
        list_verdicts, "time", "time / SG",
    )  # fmt: skip
    return experiment.run(settings, list_streams(settings))


def compare_times(
    stream: KeyStream, workers: int, settings: ExperimentSettings, clock: RunClock
) -> list[Row]:
    """Returns a row for each scheme on workers that are alike, and for FISH on uneven ones."""
    rows = compare_schemes(stream, workers, dict(SCHEMES), settings, clock)
    uneven = compare_schemes(stream, workers, dict(UNEVEN), settings, clock, uneven_seconds)
    return rows + uneven[1:]


@dataclasses.dataclass(frozen=True)
class TimeClaim:
    """A claim of the paper that one scheme is faster than another, and by how much at most."""

    slow: str
    fast: str
    real: str
    zipf: str


CLAIMS = (
    TimeClaim(PKG, FISH, "1.12 to 8.32x", "worst of four"),
    TimeClaim(DC, FISH, "up to 7.44x", "up to 13.57x"),
    TimeClaim(WC, FISH, "up to 6.95x", "up to 12.05x"),
    TimeClaim(LIFETIME, FISH, "not told", "up to 11.91x"),
    TimeClaim(COUNTED, TIMED, "not told", "up to 2.61x"),
)


def list_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns verdicts on FISH against SG and the others, for real streams and for ZF."""
    at = index_rows(rows)
    out = []
    for stream in dict.fromkeys(row["stream"] for row in rows):
        zipf = stream.startswith("ZF")
        workers = sorted({n for name, n, _ in at if name == stream})
        goal = ZIPF_GOAL if zipf else REAL_GOAL
        found = {f"{n}": float(at[stream, n, FISH]["time"]) for n in workers}
        out.append(at_most(f"{stream}: time of FISH over SG", found, goal, "the worst"))
        found = {f"{n}": float(at[stream, n, FISH]["held"]) for n in workers}
        out.append(at_most(f"{stream}: time of FISH over SG, held", found, goal, "the worst"))
        for claim in CLAIMS:
            ratios = {
                n: at[stream, n, claim.slow]["done"] / at[stream, n, claim.fast]["done"]
                for n in workers
            }
            held = {
                n: at[stream, n, claim.slow]["held_done"] / at[stream, n, claim.fast]["held_done"]
                for n in workers
            }
            paper = claim.zipf if zipf else claim.real
            out.append(_judge_ratios(f"{stream}, time", claim, ratios, paper))
            out.append(_judge_ratios(f"{stream}, held", claim, held, paper))
        for slow in (WC, DC, PKG):
            delays = {
                f"{n}": at[stream, n, slow]["mean_delay"] / at[stream, n, FISH]["mean_delay"]
                for n in workers
            }
            ratio = LATENCY if slow == WC else None
            paper = "87.12% less on Storm, 128 workers" if slow == WC else "less"
            out.append(ordering(f"{stream}: mean delay of {slow} over FISH", delays, paper, ratio))
    return out


def _judge_ratios(
    case: str, claim: TimeClaim, ratios: dict[int, float], paper: str
) -> ClaimVerdict:
    """Returns: holds where the fast one is ahead somewhere and behind nowhere; equal where both are
    alike everywhere; reversed where it is behind somewhere and ahead nowhere; else mixed."""
    ahead = any(ratio > 1 + TIE for ratio in ratios.values())
    behind = any(ratio < 1 - TIE for ratio in ratios.values())
    verdict = "mixed" if ahead and behind else "holds" if ahead else "reversed"
    verdict = verdict if ahead or behind else "equal"
    measured = ", ".join(f"{n} {ratio:.2f}x" for n, ratio in ratios.items())
    text = f"{case}: {claim.slow} over {claim.fast}"
    return ClaimVerdict(text, measured, paper, verdict)
