"""The whole way from a plan in force to a target."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.errors import PlanError
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.migrate.job import LocalEngine, MigrationOptions, plan_migration
from ps2stream.planner.migrate.mixing import renumbered
from ps2stream.planner.migrate.parts import SLACK
from ps2stream.planner.migrate.steps import MigrationSteps
from ps2stream.planner.partition import PartitionOptions, to_plan
from ps2stream.routing.plan import RoutingPlan, built_in_plan
from ps2stream.space.grid import Grid
from tests.support.migrating import (
    ANALYSIS,
    GRID,
    batches,
    fetched_naively,
    sampled,
    some_queries,
    written,
)

QUERIES = some_queries(1, 300)
STATS = sampled(1, QUERIES)
ENGINE = LocalEngine(batches(QUERIES))


def target_of(workers: int, algorithm: str = "hybrid") -> RoutingPlan:
    partition = ALGORITHMS[algorithm](STATS, workers, PartitionOptions())
    return to_plan(partition, STATS, workers, ANALYSIS, {"flood": 3})


def migrate(base: RoutingPlan, target: RoutingPlan, **options: object) -> MigrationSteps:
    settings = MigrationOptions(**options)  # type: ignore[arg-type]
    return plan_migration(ENGINE, STATS, base, target, settings)


@pytest.mark.parametrize(("old", "new"), [(3, 3), (2, 4), (4, 2)])
@pytest.mark.parametrize("select", ["all", "gr+"])
def test_steps_are_small_follow_each_other_and_are_measured(
    old: int, new: int, select: str
) -> None:
    base, target = built_in_plan(ANALYSIS, GRID, old), target_of(new)
    found = migrate(base, target, select=select, step_bytes=20_000)
    assert len(found.steps) > 1
    before = base
    for step in found.steps:
        fetched = fetched_naively(QUERIES, before, step.plan)
        assert (step.queries, step.bytes) == tuple(map(sum, zip(*fetched.values(), strict=True)))
        assert step.bytes <= 20_000 or step.cells == 1 or before.workers != step.plan.workers
        assert (step.plan.version, step.plan.base_version) == (before.version + 1, before.version)
        before = step.plan
    assert before.workers == new
    assert dict(before.frequencies) == {"flood": 3}


def test_all_is_the_target_with_other_numbers() -> None:
    base, target = built_in_plan(ANALYSIS, GRID, 3), target_of(3)
    found = migrate(base, target, select="all", step_bytes=20_000)
    worker = np.array(found.made["workers"])
    wanted = renumbered(target, worker)
    assert fetched_naively(QUERIES, found.steps[-1].plan, wanted) == {}
    literal = sum(size for _, size in fetched_naively(QUERIES, base, target).values())
    matched = sum(size for _, size in fetched_naively(QUERIES, base, wanted).values())
    assert found.made["fetched_as_numbered"] == literal
    assert found.made["fetched_as_matched"] == matched < literal


def test_a_selection_moves_less_and_balances_alike() -> None:
    base, target = built_in_plan(ANALYSIS, GRID, 3), target_of(3)
    whole = migrate(base, target, select="all", step_bytes=1 << 30)
    for select in ("gr", "gr+", "dp"):
        found = migrate(base, target, select=select, step_bytes=1 << 30)
        assert found.bytes <= whole.bytes
        most, mean = max(found.made["loads"]["target"]), np.mean(found.made["loads"]["target"])
        assert found.steps[-1].loads.max() <= most + SLACK * mean


def test_a_plan_that_only_numbers_workers_otherwise_moves_nothing() -> None:
    base = dataclasses.replace(target_of(3), frequencies={})
    with pytest.raises(PlanError, match="nothing would move"):
        migrate(base, renumbered(base, np.array([1, 2, 0])))


def test_without_queries_it_is_one_step_that_moves_nothing() -> None:
    base, target = built_in_plan(ANALYSIS, GRID, 3), target_of(3)
    found = plan_migration(LocalEngine([]), STATS, base, target, MigrationOptions())
    [step] = found.steps
    assert (step.queries, step.bytes, step.plan.version) == (0, 0, 2)
    assert fetched_naively(QUERIES, step.plan, renumbered(target, np.arange(3))) == {}


def test_another_grid_is_refused() -> None:
    with pytest.raises(PlanError, match="another grid"):
        migrate(built_in_plan(ANALYSIS, Grid(3, 3), 3), target_of(3))


def test_a_file_leaves_out_the_frequencies_of_the_plan_in_force() -> None:
    base = dataclasses.replace(built_in_plan(ANALYSIS, GRID, 2), frequencies={"dam": 4})
    made = migrate(base, target_of(2), select="all", step_bytes=9_000).to_dict()
    assert made["base_route"] == base.route
    assert made["frequencies"] == {"dam": 4}
    assert ["frequencies" in step["plan"] for step in made["steps"]] == [
        *[False] * (len(made["steps"]) - 1),
        True,
    ]
    bodies = [step["plan"] | {"frequencies": {}} for step in made["steps"]]
    assert all(written(RoutingPlan.from_dict(b, ANALYSIS)) == b for b in bodies[:-1])
