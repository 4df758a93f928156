"""The outcome of an experiment: figures, verdicts on the paper's claims, a chart.

A verdict is about an ordering, and about the ratio if the paper's numbers are known. A number
that the available texts have lost is called "lost"; no other takes its place.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

LOST = "lost"
IDLE = "nothing happened"
TIE = 0.03
"""Two figures closer than this are called equal."""


class ClaimVerdict(NamedTuple):
    """A verdict on a claim. paper: its number or LOST, or "our goal" for a goal of our own."""

    claim: str
    measured: str
    paper: str
    verdict: str


class ReportChart(NamedTuple):
    """The data of a chart. panels: title -> series -> label (bars) or number (lines, on
    logarithmic axes; course, on linear ones) -> value."""

    kind: Literal["bars", "lines", "course"]
    unit: str
    panels: Mapping[str, Mapping[str, Mapping[Any, float]]]


@dataclasses.dataclass(frozen=True)
class ExperimentReport:
    """The outcome of an experiment. rows: one figure each, JSON-able; columns: those that are
    shown."""

    name: str
    title: str
    settings: Mapping[str, Any]
    notes: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]
    verdicts: Sequence[ClaimVerdict]
    chart: ReportChart

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as JSON-able data; an infinite balance (an idle worker) is null."""
        return {
            "experiment": self.name,
            "title": self.title,
            "settings": dict(self.settings),
            "notes": list(self.notes),
            "rows": [_replace_infinity(dict(row)) for row in self.rows],
            "verdicts": [verdict._asdict() for verdict in self.verdicts],
        }

    def text(self) -> str:
        """Returns the report as text for people."""
        table = [list(self.columns)]
        table += [[_format_value(row.get(name, "")) for name in self.columns] for row in self.rows]
        width = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [f"{self.name}: {self.title}", ""]
        for row in table:
            cells = (cell.rjust(w) for cell, w in zip(row, width, strict=True))
            lines.append("  ".join(cells).rstrip())
        lines += ["", *self.notes, ""]
        wide = max(9, *(len(v.verdict) for v in self.verdicts), 0)
        for v in self.verdicts:
            lines.append(f"{v.verdict:{wide}} {v.claim}: {v.measured} (paper: {v.paper})")
        return "\n".join(lines)

    def save(self, folder: Path) -> tuple[Path, Path]:
        """Writes NAME.json and NAME.png. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        data, picture = folder / f"{self.name}.json", folder / f"{self.name}.png"
        data.write_text(json.dumps(self.to_dict(), indent=1) + "\n", "utf-8")
        draw(self.chart, f"{self.name}: {self.title}", picture)
        return data, picture


def ordering(
    claim: str, ratios: Mapping[str, float], paper: str = LOST, ratio: float | None = None
) -> ClaimVerdict:
    """Returns the verdict on "A is above B": `ratios` are A over B by each way of measuring.
    holds: all are above 1; reversed: all below; equal; mixed. ratio: the paper's, if it is known.
    """
    signs = {_compare_to_one(value) for value in ratios.values()}
    word = {1: "holds", 0: "equal", -1: "reversed"}[signs.pop()] if len(signs) == 1 else "mixed"
    measured = ", ".join(f"{name} {value:.2f}x" for name, value in ratios.items())
    if ratio is not None:
        paper = f"{paper} = {ratio:.2f}x"
        measured += f", {min(ratios.values()) / ratio:.2f} of the paper's ratio"
    return ClaimVerdict(claim, measured, paper, word)


def at_least(claim: str, ratios: Mapping[str, float], goal: float) -> ClaimVerdict:
    """Returns the verdict on a goal of our own for a ratio."""
    measured = ", ".join(f"{name} {value:.2f}x" for name, value in ratios.items())
    met = [value >= goal for value in ratios.values()]
    word = "met" if all(met) else "partly" if any(met) else "missed"
    return ClaimVerdict(f"{claim} at least {goal:g}x", measured, "our goal", word)


def at_most(claim: str, values: Mapping[str, float], limit: float, paper: str) -> ClaimVerdict:
    """Returns the verdict on an upper limit."""
    measured = ", ".join(f"{name} {value:,.2f}" for name, value in values.items())
    met = [value <= limit for value in values.values()]
    word = "met" if all(met) else "partly" if any(met) else "missed"
    return ClaimVerdict(f"{claim} at most {limit:,g}", measured, paper, word)


def unless_idle(verdict: ClaimVerdict, happened: float) -> ClaimVerdict:
    """Returns the verdict, or that nothing happened: what it is about took place `happened` times,
    and without it there is nothing that could fail."""
    return verdict if happened else verdict._replace(verdict=IDLE)


def draw(chart: ReportChart, title: str, path: Path) -> None:
    """Writes the chart as PNG. Raises OSError."""
    from matplotlib.figure import Figure

    panels = list(chart.panels.items())
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.2 * columns, 3.6 * rows + 0.6), layout="constrained")
    figure.suptitle(title)
    for i, (name, series) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, i + 1)
        axes.set_title(name, fontsize=10)
        axes.set_ylabel(chart.unit)
        if chart.kind != "bars":
            marker = "o" if chart.kind == "lines" else None
            for label, points in series.items():
                axes.plot(list(points), list(points.values()), marker=marker, label=label)
        if chart.kind == "lines":
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
        elif chart.kind == "bars":
            labels = list(next(iter(series.values())))
            share = 0.8 / len(series)
            for k, (label, values) in enumerate(series.items()):
                at = [x + k * share for x in range(len(labels))]
                axes.bar(at, [values[x] for x in labels], share, label=label)
            middle = 0.4 - share / 2
            axes.set_xticks([x + middle for x in range(len(labels))], labels, rotation=30)
        axes.legend(loc="best", fontsize=7)  # named, or a slow machine makes a warning of it
    figure.savefig(path, dpi=110)


def _replace_infinity(value: Any) -> Any:
    """Replaces what JSON cannot hold, infinity and NaN, by None."""
    if isinstance(value, dict):
        return {name: _replace_infinity(of) for name, of in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _compare_to_one(ratio: float) -> int:
    """Returns 1 above 1, -1 below, and 0 for a tie."""
    return 0 if abs(ratio - 1) < TIE else 1 if ratio > 1 else -1


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
