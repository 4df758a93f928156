"""Bytes between plans, against each posting on its own."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from ps2stream.planner.migrate.measure import (
    PlanTexts,
    measure_kept,
    measure_parts,
    measure_steps,
)
from ps2stream.routing.leaves import Leaf, Moved
from ps2stream.routing.plan import RoutingPlan, Space, Text
from ps2stream.routing.replicas import ReplicatedUnit
from tests.support.migrating import ANALYSIS, GRID, WORDS, batches, fetched_naively, some_queries

QUERIES = some_queries(3)


def random_plan(seed: int, workers: int = 3, version: int = 1) -> RoutingPlan:
    rng = np.random.default_rng(seed)
    listed = {word: int(rng.integers(workers)) for word in WORDS[:4]}
    text = Text(tuple(range(workers)), listed)
    moved = Moved(workers, {0: workers - 1}, {"dam": 0})
    leaves: tuple[Leaf, ...] = (*(Space(w) for w in range(workers)), text, moved)
    cells = rng.integers(0, len(leaves), GRID.rows() * GRID.columns()).astype(np.uint32)
    plan = RoutingPlan(workers, ANALYSIS, GRID, leaves, cells, {"flood": 5, "river": 2})
    return dataclasses.replace(plan, version=version, base_version=version - 1)


def summed(parts: Any, *keys: str) -> dict[tuple[int, ...], list[int]]:
    out: dict[tuple[int, ...], list[int]] = {}
    for row in (row for part in parts for row in part.to_pylist()):
        values = [value for name, value in row.items() if name not in keys]
        key = tuple(row[name] for name in keys)
        out[key] = [a + b for a, b in zip(out.get(key, [0] * len(values)), values, strict=True)]
    return out


@pytest.mark.parametrize("seed", range(3))
def test_each_step_is_what_its_workers_fetch(seed: int) -> None:
    plans = [random_plan(10 * seed + n, version=n + 1) for n in range(3)]
    plans.append(random_plan(99, workers=4, version=4))
    found = summed(measure_steps(PlanTexts.of(*plans), iter(batches(QUERIES))), "step", "target")
    expected = {
        (step, worker): list(fetched)
        for step in range(3)
        for worker, fetched in fetched_naively(QUERIES, plans[step], plans[step + 1]).items()
    }
    assert len(expected) > 6
    assert found == expected


@pytest.mark.parametrize("sharded", [False, True])
def test_replicated_units_count_for_each_worker_that_gains_them(sharded: bool) -> None:
    base = random_plan(1)
    unit = ReplicatedUnit(int(GRID.cells(np.zeros(1), np.zeros(1), 0)[0]), None, (0, 1), sharded)
    spread = dataclasses.replace(random_plan(2, version=2), replicas=(unit,))
    for old, new in ((base, spread), (spread, dataclasses.replace(base, version=3))):
        found = summed(measure_steps(PlanTexts.of(old, new), iter(batches(QUERIES))), "target",
                       "step")  # fmt: skip
        expected = fetched_naively(QUERIES, old, new)
        assert {worker: tuple(v) for (worker, _), v in found.items()} == expected


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_and_what_is_fetched_is_all(seed: int) -> None:
    now, then = random_plan(seed), random_plan(seed + 50, version=2)
    found = summed(measure_kept(PlanTexts.of(now, then), iter(batches(QUERIES))), "worker", "role")
    kept = sum(value for (worker, role), [value] in found.items() if worker == role >= 0)
    fetched = sum(size for _, size in fetched_naively(QUERIES, now, then).values())
    assert found[-1, -1][0] - kept == fetched > 0
    same = summed(measure_kept(PlanTexts.of(now, now), iter(batches(QUERIES))), "worker", "role")
    assert sum(v for (w, r), [v] in same.items() if w == r >= 0) == same[-1, -1][0]


def test_parts_are_what_a_cell_alone_would_have_fetched() -> None:
    now, then = random_plan(7), random_plan(8, version=2)
    found = summed(measure_parts(PlanTexts.of(now, then), iter(batches(QUERIES))), "cell",
                   "source", "target")  # fmt: skip
    leaves = (*now.leaves, *(
        dataclasses.replace(leaf, base=leaf.base + len(now.leaves))
        if isinstance(leaf, Moved) else leaf for leaf in then.leaves
    ))  # fmt: skip
    seen = {cell for cell, *_ in found}
    for cell in (*sorted(seen)[:8], *(c for c in range(20) if c not in seen)):
        cells = now.cells.copy()
        cells[cell] = then.cells[cell] + len(now.leaves)
        alone = dataclasses.replace(then, leaves=leaves, cells=cells)
        by_worker: dict[int, list[int]] = {}
        for at, source, target in found:
            if at == cell:
                by_worker.setdefault(target, []).append(source)
        expected = fetched_naively(QUERIES, now, alone)
        assert expected.keys() == by_worker.keys()
        for target, sources in by_worker.items():
            if len(sources) == 1:
                assert tuple(found[cell, sources[0], target]) == expected[target]
