"""The experiments by name."""

from __future__ import annotations

from ps2stream.commands.experiment import NAMES
from ps2stream.experiments.suite import EXPERIMENTS


def test_every_experiment_has_a_command() -> None:
    assert tuple(EXPERIMENTS) == NAMES
