"""The experiments, by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from ps2stream.experiments.plans import ExperimentSettings
from ps2stream.experiments.report import ExperimentReport

# name -> numbers of workers, quick and full
EXPERIMENTS: dict[str, tuple[Sequence[int], Sequence[int]]] = {
    "f6": ((8,), (8,)),
    "f7": ((8,), (8,)),
    "f8": ((8,), (8,)),
    "f9": ((8,), (8,)),
    "f10": ((8,), (8,)),
    "f11": ((2, 8), (2, 4, 8, 16, 32, 64)),
    "f12": ((8,), (8,)),
    "f13": ((8,), (8,)),
    "f14": ((4,), (4,)),
    "f15": ((4,), (4,)),
    "f16": ((8,), (8,)),
    "streams": ((8,), (8, 16)),
    "salb": ((8, 64), (2, 4, 8, 16, 32, 64, 128, 256)),
    "salb-scale": ((8, 64), (2, 4, 8, 16, 32, 64, 128, 256)),
    "salb-spread": ((2, 8, 64), (2, 4, 8, 16, 32, 64, 128, 256)),
    "salb-subscriptions": ((16,), (16,)),
    "salb-drift": ((16,), (16, 64)),
    "shed-accuracy": ((16,), (16, 64)),
    "shed-adapt": ((16,), (16,)),
    "pkg-imbalance": ((5, 50, 100), (5, 10, 50, 100)),
    "pkg-local": ((5, 50), (5, 10, 50, 100)),
    "pkg-zipf": ((5, 50), (5, 10, 50, 100)),
    "fish-time": ((16, 128), (16, 32, 64, 128)),
    "fish-memory": ((16, 128), (16, 32, 64, 128)),
    "fish-alpha-theta": ((128,), (16, 64, 128)),
    "fish-ring": ((16, 64), (16, 32, 64, 128)),
    "hot": ((4,), (4,)),
    "w0": ((1,), (1,)),
    "w1": ((1,), (1,)),
    "w2": ((1,), (1,)),
    "clusters": ((1,), (1,)),
    "updates": ((1,), (1,)),
    "memory": ((1,), (1,)),
    "scale": ((2, 4, 8), (2, 4, 8)),
}


def run(name: str, settings: ExperimentSettings) -> ExperimentReport:
    """Runs one of EXPERIMENTS. Raises InvalidArgument for a bad file of posts."""
    module = importlib.import_module(f"ps2stream.experiments.{name.replace('-', '_')}")
    report = module.run(settings)
    assert isinstance(report, ExperimentReport)
    return report
