"""FISH, figures 12 and 13: the decay alpha and the threshold theta, over the skew of ZF."""

from __future__ import annotations

from collections.abc import Sequence

from ps2stream.experiments.keyed.fish_runs import (
    FISH,
    FishExperiment,
    compare_schemes,
    index_rows,
    zipf_streams,
)
from ps2stream.experiments.keyed.measure import RunClock
from ps2stream.experiments.keyed.streams import KeyStream
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import (
    ClaimVerdict,
    ExperimentReport,
    at_most,
    ordering,
)
from ps2stream.keyed.counters import CounterOptions
from ps2stream.keyed.partitioner import SchemeOptions

EXPONENTS = (1.0, 1.4, 2.0)
ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
THETAS = {"2/n": 2.0, "1/n": 1.0, "1/(2n)": 1 / 2, "1/(4n)": 1 / 4, "1/(8n)": 1 / 8}
USUAL = "1/(4n)"
COLUMNS = ("stream", "tuples", "workers", "scheme", "time", "memory")
MORE_NOTES = (
    "One parameter is changed, the other is the paper's (alpha 0.2, theta 1/(4n)).",
    "paper: alpha 1 up to 12.14x as slow as 0.2; alpha 0 up to 2.65x the memory of 0.2, most at",
    "low skew; of the thetas only 2/n is clearly slower, and 1/(8n) has more memory.",
)


def name_alpha(alpha: float) -> str:
    """Returns the label of a decay."""
    return f"alpha {alpha:g}"


def name_theta(theta: str) -> str:
    """Returns the label of a threshold."""
    return f"theta {theta}"


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Measures FISH over both parameters."""
    experiment = FishExperiment(
        "fish-alpha-theta", "FISH: decay and threshold", COLUMNS, MORE_NOTES, compare_parameters,
        list_verdicts, "time", "time / SG",
    )  # fmt: skip
    return experiment.run(settings, zipf_streams(settings, EXPONENTS))


def compare_parameters(
    stream: KeyStream, workers: int, settings: ExperimentSettings, clock: RunClock
) -> list[Row]:
    """Returns a row for each value of either parameter."""
    options = {name_alpha(a): CounterOptions(alpha=a) for a in ALPHAS}
    options |= {
        name_theta(name): CounterOptions(theta=times / workers)
        for name, times in THETAS.items() if name != USUAL
    }  # fmt: skip
    schemes = {name: (FISH, SchemeOptions(counters=each)) for name, each in options.items()}
    return compare_schemes(stream, workers, dict(schemes), settings, clock)


def list_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns verdicts on the ends of both ranges against the paper's choice."""
    at = index_rows(rows)
    streams = list(dict.fromkeys(row["stream"] for row in rows))
    usual = name_alpha(0.2)
    out = []
    for n in sorted({row["workers"] for row in rows}):

        def compare(name: str, value: str, n: int = n) -> dict[str, float]:
            return {s: at[s, n, name][value] / at[s, n, usual][value] for s in streams}

        slow = compare(name_alpha(1.0), "time")
        worst = max(slow, key=lambda stream: slow[stream])
        claim = f"{n} workers: alpha 1 slower than 0.2, where it is slowest"
        out.append(ordering(claim, {worst: slow[worst]}, "up to 12.14x", 12.14))
        wide = compare(name_alpha(0.0), "memory")
        most = max(wide, key=lambda stream: wide[stream])
        claim = f"{n} workers: alpha 0 takes more memory than 0.2, where it takes most"
        out.append(ordering(claim, {most: wide[most]}, "up to 2.65x", 2.65))
        late = compare(name_theta("2/n"), "time")
        last = max(late, key=lambda stream: late[stream])
        claim = f"{n} workers: theta 2/n slower than 1/(4n), where it is slowest"
        out.append(ordering(claim, {last: late[last]}, "clearly"))
        for name in ("1/n", "1/(2n)", "1/(8n)"):
            claim = f"{n} workers: time with theta {name} over 1/(4n)"
            found = compare(name_theta(name), "time")
            out.append(at_most(claim, found, 1.1, "almost no difference"))
        claim = f"{n} workers: theta 1/(8n) takes more memory than 1/(4n), at z = 1.0"
        found = compare(name_theta("1/(8n)"), "memory")
        out.append(ordering(claim, {streams[0]: found[streams[0]]}, "more"))
    return out
