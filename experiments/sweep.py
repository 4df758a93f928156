"""Sweeps for orderings of the paper that do not hold: the same figures as one thing varies."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps2stream.benchmarks.workload import Workload
from ps2stream.experiments.plans import Row, Settings, judge_plan, worlds
from ps2stream.experiments.worlds import Change, as_drawn
from ps2stream.routing.costs import Costs


class Condition(NamedTuple):
    """A condition to vary. label: names a change of the queries; workers: numbers to try, none:
    the experiment's; seed: added to the experiment's; costs: to plan with, None: the
    experiment's."""

    label: str = ""
    change: Change = as_drawn
    workers: Sequence[int] = ()
    seed: int = 0
    costs: Costs | None = None


def swept(
    settings: Settings, groups: Sequence[str], names: Sequence[str], conditions: Iterable[Condition]
) -> list[Row]:
    """Returns a row for every stream, group, condition, number of workers and algorithm; its
    `condition` names what was varied, its `workers` the number of workers."""
    rows: list[Row] = []
    for label, change, numbers, seed, costs in conditions:
        mine = dataclasses.replace(
            settings, seed=settings.seed + seed, costs=costs or settings.costs
        )
        for world in worlds(mine, groups, label, change):
            for workers in numbers or settings.workers:
                for name in names:
                    row, _ = judge_plan(world, name, workers, mine)
                    row["queries"], _, row["condition"] = row["queries"].partition(" ")
                    rows.append(row)
    return rows


def compared(
    rows: Sequence[Row], above: Sequence[str], below: Sequence[str], values: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yields (what was varied, the worst of `above` over the best of `below` by each of `values`,
    which maps a label to a column), one for each of the conditions in `rows`."""
    fields = ("stream", "queries", "condition", "workers")
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name, "") for name in fields), []).append(row)
    for (stream, queries, condition, workers), members in groups.items():
        case = f"{stream} {queries}{condition and ', ' + condition}, {workers} workers"
        yield (
            case,
            {
                label: min(row[column] for row in members if row["algorithm"] in above)
                / max(row[column] for row in members if row["algorithm"] in below)
                for label, column in values.items()
            },
        )


def joined(every: bool) -> Change:
    """Returns a change that joins all keywords of each query by AND, or by OR."""

    def change(load: Workload) -> Workload:
        held = np.full_like(load.interests.every, every)
        return dataclasses.replace(load, interests=dataclasses.replace(load.interests, every=held))

    return change


def sides(times: float) -> Change:
    """Returns a change to squares with sides `times` as long; the grid's cells grow with them."""
    return lambda load: load.scaled(times)
