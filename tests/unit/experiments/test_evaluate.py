"""The judge of plans counts what brute force counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ps2stream.experiments.evaluate import PlanJudgement, evaluate
from ps2stream.experiments.worlds import StreamSize, StreamWorld, make_world
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import Leaf, RoutingPlan, Space, Text

WORKERS = 5
COSTS = Costs(c1=0.5, c2=2.0, c3=3.0, c4=0.25)
Unit = tuple[int, int]


@pytest.fixture(scope="module", params=["q1", "q3"])
def world(request: pytest.FixtureRequest) -> StreamWorld:
    return make_world("synthetic", "synthetic", request.param, StreamSize(300, 200, 400, 3), 5)


def random_plan(world: StreamWorld, seed: int) -> RoutingPlan:
    """Text and space leaves, a random one in each cell."""
    rng = np.random.default_rng(seed)
    grid = world.statistics.grid
    words = [w for w in world.statistics.terms if w]
    listed = rng.choice(words, min(50, len(words)), replace=False).tolist()
    everyone = tuple(range(WORKERS))
    leaves: tuple[Leaf, ...] = (
        *(Space(w) for w in everyone),
        Text(everyone, {w: int(rng.integers(WORKERS)) for w in listed}),
        Text((3, 1)),
    )
    cells = rng.integers(0, len(leaves), grid.rows() * grid.columns()).astype(np.uint32)
    return RoutingPlan(WORKERS, world.analyzer.analysis, grid, leaves, cells)


def units_of(world: StreamWorld, rows: QueryRows, i: int) -> list[Unit]:
    """The units of one query, from its boxes and its posting terms."""
    off, cell = world.statistics.grid.cover(
        rows.box_off[i : i + 2] - rows.box_off[i], rows.box[rows.box_off[i] : rows.box_off[i + 1]]
    )
    assert len(off) == 2
    terms = rows.term[rows.term_off[i] : rows.term_off[i + 1]].tolist()
    posted = [t for bit, t in enumerate(terms) if int(rows.post[i]) >> bit & 1]
    return [(c, t) for c in cell.tolist() for t in posted]


def brute(world: StreamWorld, plan: RoutingPlan) -> dict[str, list[float]]:
    """Object by object, query by query."""
    h1 = plan.compile(world.analyzer)
    grid = world.statistics.grid

    def owner(unit: Unit) -> int:
        return int(h1.owners(np.array([unit[0]], np.uint32), np.array([unit[1]], np.uint64))[0])

    live: Counter[Unit] = Counter()
    out = {name: [0.0] * WORKERS for name in ("objects", "candidates", "inserts", "deletes")}
    for i in range(len(world.period.live)):
        live.update(units_of(world, world.period.live, i))
    for part in world.period.rounds:
        for rows, name, sign in ((part.inserts, "inserts", 1), (part.deletes, "deletes", -1)):
            for i in range(len(rows)):
                for unit in units_of(world, rows, i):
                    live[unit] += sign
                    out[name][owner(unit)] += 1
        lon, lat, off, term = part.objects
        for i in range(len(lon)):
            cells = [
                int(grid.cells(lon[i : i + 1], lat[i : i + 1], level)[0])
                for level in range(grid.levels)
            ]
            met: Counter[int] = Counter()
            for t in term[off[i] : off[i + 1]].tolist():
                for c in cells:
                    if live[c, t]:
                        met[owner((c, t))] += live[c, t]
            for w, n in met.items():
                out["candidates"][w] += n
                out["objects"][w] += 1
    return out


def counted(judged: PlanJudgement) -> dict[str, list[float]]:
    names = ("objects", "candidates", "inserts", "deletes")
    return {name: getattr(judged, name).tolist() for name in names}


@pytest.mark.parametrize("seed", range(3))
def test_a_judgement_is_what_brute_force_counts(world: StreamWorld, seed: int) -> None:
    plan = random_plan(world, seed)
    judged = evaluate(plan, world.analyzer, world.period, COSTS, repeats=0)
    want = brute(world, plan)
    assert counted(judged) == want
    o, c, i, d = (np.array(want[n]) for n in ("objects", "candidates", "inserts", "deletes"))
    assert judged.load == pytest.approx(0.5 * c + 2 * o + 3 * i + 0.25 * d)
    assert judged.bound <= judged.load.mean() + 1e-9


def test_every_plan_finds_the_same_matches(world: StreamWorld) -> None:
    found = {
        evaluate(random_plan(world, s), world.analyzer, world.period, COSTS, 1).matches
        for s in range(3)
    }
    alone = RoutingPlan(
        1, world.analyzer.analysis, world.statistics.grid, (Space(0),),
        np.zeros(world.statistics.grid.rows() * world.statistics.grid.columns(), np.uint32),
    )  # fmt: skip
    one = evaluate(alone, world.analyzer, world.period, COSTS, 1)
    assert found == {one.matches}
    assert one.matches > 0
    assert one.load[0] == pytest.approx(one.bound)
