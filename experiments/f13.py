"""Figure 13: the same as Figure 12, with more queries."""

from __future__ import annotations

from ps2stream.experiments.f12 import run_selections
from ps2stream.experiments.plans import ExperimentSettings
from ps2stream.experiments.report import ExperimentReport

TIMES = (2.0, 4.0)


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs F13: up to four times as many queries as `settings.size` has."""
    return run_selections("f13", settings, TIMES)
