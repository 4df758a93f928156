"""A real run sets the scale, and predictions are held against others."""

from __future__ import annotations

import pytest

from ps2stream.experiments.scaling.flows import Design, rate_flows
from ps2stream.experiments.scaling.kinds import ROLES
from ps2stream.experiments.scaling.runs import RealRun
from ps2stream.experiments.scaling.verifying import (
    REQUEST,
    compare,
    count_window,
    deploy,
    judge_prediction,
    predict_run,
    set_scale,
)
from tests.unit.experiments.scaling.model_inputs import COSTS, make_shape

CPU = {"dispatcher": 8.0, "worker": 4.0, "merger": 3.0, "sequencer": 2.0, "publisher": 0.6,
       "subscriber": 0.6}  # fmt: skip
REAL = RealRun(
    3, CPU, 4_096.0, dict.fromkeys(ROLES, 5.0), 700.0, 10.0, 60_000.0, {"p50": 20.0}, 2.0, 0,
    idle={"dispatcher": 0.1, "worker": 0.15, "merger": 0.05, "sequencer": 0.03},
)  # fmt: skip


def test_the_run_that_sets_the_scale_is_explained_exactly() -> None:
    shape = make_shape(3)
    costs = set_scale(COSTS, shape, [REAL])
    assert costs.idle == pytest.approx({**REAL.idle, "worker": 0.05})
    rate = REAL.tuples_per_second / 1.2
    at, design = deploy(shape, REAL.pairs), Design(request=REQUEST)
    found = rate_flows(costs, at, design, rate, REAL.objects)
    for role in ROLES:
        working = 1e6 * (found.cpu[role] - REAL.idle[role]) / REAL.tuples_per_second
        assert working == pytest.approx(CPU[role], rel=0.02)
    assert costs.clients_us == pytest.approx(1.2 * 1.2)


def test_a_prediction_has_every_quantity_of_a_run() -> None:
    shape = make_shape(3)
    found = predict_run(set_scale(COSTS, shape, [REAL]), shape, REAL, 100_000, 0.5)
    verdicts = compare(found, REAL)
    assert len(verdicts) == 10
    assert found.idle == pytest.approx(REAL.idle)
    assert 0.5 < sum(found.cpu_us.values()) / sum(CPU[role] for role in ROLES) < 2


def test_processes_that_do_nothing_take_their_cores_with_any_number_of_workers() -> None:
    costs = set_scale(COSTS, make_shape(3), [REAL])
    slow = REAL._replace(workers=8, tuples_per_second=REAL.tuples_per_second / 10)
    few, many = (
        predict_run(costs, make_shape(n), run, 100_000, 0.1) for n, run in ((3, REAL), (8, slow))
    )
    assert many.idle["worker"] == pytest.approx(8 * 0.05)
    assert many.idle["dispatcher"] == few.idle["dispatcher"]
    # What a tuple takes does not depend on how many come in a second.
    assert many.cpu_us["dispatcher"] < 1.5 * few.cpu_us["dispatcher"]


def test_a_client_has_as_many_publications_under_way_as_the_service_may_join() -> None:
    assert [count_window(size) for size in (1_000, 110_000, 1 << 20)] == [64, 10, 8]


def test_a_fifth_is_the_limit() -> None:
    assert judge_prediction("a", 119, 100, "us").verdict == "within 20%"
    assert judge_prediction("a", 79, 100, "us").verdict == "off"
    assert judge_prediction("a", 1, 0, "us").verdict == "off"
