"""The settings of the controller, and its counters."""

from __future__ import annotations

import dataclasses

from ps2stream.planner.adjust.decide import Rules
from ps2stream.planner.adjust.replicate import ReplicationRules
from ps2stream.planner.adjust.strategy import CoexistenceLimit


@dataclasses.dataclass(frozen=True, slots=True)
class ControllerPolicy:
    """The settings of the controller. period_ticks: the length of a period, of ten ticks a second;
    automatic: whether the controller begins adjustments by itself; idle: the share of a period
    for which the most loaded worker must be busy before it does; hot: whether hot units are
    replicated, or spread, as soon as they are seen."""

    rules: Rules = dataclasses.field(default_factory=Rules)
    period_ticks: int = 100
    automatic: bool = False
    idle: float = 0.02
    hot: bool = False
    replication: ReplicationRules = dataclasses.field(default_factory=ReplicationRules)
    sunset: CoexistenceLimit = dataclasses.field(default_factory=CoexistenceLimit)


@dataclasses.dataclass
class ControllerCounters:
    """The counters of the controller. periods: those with a report of every worker; lost: those
    without; balance: of the last period, by cells and by Definition 1's product, and each
    worker's load; adjustments: begun; declined: refused by the sequencer; sunsets: old plans
    whose end was begun; splits, merges: of parts, in adjustments that came into force; replicated:
    units with several workers; sharded: those of them whose queries are divided; hot_changes: plan
    changes begun because of hot units; hot_balance: most over mean of the workers' loads in the
    last half second, 0 if it is not watched."""

    periods: int = 0
    lost: int = 0
    balance: float = 0.0
    balance_definition1: float = 0.0
    loads_us: list[float] = dataclasses.field(default_factory=list)
    sigma: float = 0.0
    adjustments: int = 0
    declined: int = 0
    sunsets: int = 0
    splits: int = 0
    merges: int = 0
    replicated: int = 0
    sharded: int = 0
    hot_changes: int = 0
    hot_balance: float = 0.0
