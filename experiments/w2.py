"""Le Subscribe, figure 3(b): W2, nine predicates of which six are not equalities, beside W1."""

from __future__ import annotations

from ps2stream.experiments.le_subscribe.workloads import W1, W2
from ps2stream.experiments.plans import ExperimentSettings
from ps2stream.experiments.report import ExperimentReport
from ps2stream.experiments.w1 import run_workloads


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs W1 and W2."""
    return run_workloads("w2", {"W1": W1, "W2": W2}, settings)
