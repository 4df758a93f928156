"""The settings of experiments that take no time."""

from __future__ import annotations

from ps2stream.experiments.plans import ExperimentSettings
from ps2stream.experiments.worlds import StreamSize

SMALL = ExperimentSettings(StreamSize(400, 300, 300, 2), workers=(3,), repeats=0)
"""A few hundred objects, queries and updates for three workers."""
