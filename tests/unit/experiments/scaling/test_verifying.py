"""A real run sets the scale, and predictions are held against others."""

from __future__ import annotations

import pytest

from ps2stream.experiments.scaling.flows import Design, rate_flows
from ps2stream.experiments.scaling.kinds import ROLES
from ps2stream.experiments.scaling.runs import RealRun
from ps2stream.experiments.scaling.verifying import (
    compare,
    deploy,
    judge_prediction,
    predict_run,
    set_scale,
)
from tests.unit.experiments.scaling.model_inputs import COSTS, make_shape

CPU = {"dispatcher": 8.0, "worker": 4.0, "merger": 3.0, "sequencer": 2.0, "publisher": 0.6,
       "subscriber": 0.6}  # fmt: skip
REAL = RealRun(
    3, CPU, 4_096.0, dict.fromkeys(ROLES, 5.0), 700.0, 10.0, 60_000.0, {"p50": 20.0}, 2.0, 0
)


def test_the_run_that_sets_the_scale_is_explained_exactly() -> None:
    shape = make_shape(3)
    costs = set_scale(COSTS, shape, [REAL])
    rate = REAL.tuples_per_second / 1.2
    found = rate_flows(costs, deploy(shape, REAL.pairs), Design(), rate, REAL.objects)
    for role in ROLES:
        assert 1e6 * found.cpu[role] / REAL.tuples_per_second == pytest.approx(CPU[role], rel=0.02)
    assert costs.clients_us == pytest.approx(1.2 * 1.2)


def test_a_prediction_has_every_quantity_of_a_run() -> None:
    shape = make_shape(3)
    found = predict_run(set_scale(COSTS, shape, [REAL]), shape, REAL.pairs, 0.2, 100_000.0, 0.5)
    verdicts = compare(found, REAL)
    assert len(verdicts) == 9
    assert 0.5 < sum(found.cpu_us.values()) / sum(CPU[role] for role in ROLES) < 2


def test_a_fifth_is_the_limit() -> None:
    assert judge_prediction("a", 119, 100, "us").verdict == "within 20%"
    assert judge_prediction("a", 79, 100, "us").verdict == "off"
    assert judge_prediction("a", 1, 0, "us").verdict == "off"
