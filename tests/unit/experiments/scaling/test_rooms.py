"""Rooms, plans and links as the model measures them, at a tiny size."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments import scale
from ps2stream.experiments.plans import ExperimentSettings
from ps2stream.experiments.scaling.costs import fit_costs
from ps2stream.experiments.scaling.kinds import DISPATCHER, MERGER, SEQUENCER, WORKER
from ps2stream.experiments.scaling.links import measure_links
from ps2stream.experiments.scaling.measuring import MeasuredCosts, MeasureSize, measure_service
from ps2stream.experiments.scaling.rooms import RoomBench
from ps2stream.experiments.scaling.shapes import count_candidates, make_plan, shape_routing
from ps2stream.experiments.worlds import StreamSize, StreamWorld, make_world
from tests.unit.experiments.scaling.model_inputs import COSTS, KEPT

SETTINGS = ExperimentSettings()


@pytest.fixture(scope="module")
def world() -> StreamWorld:
    return make_world("synthetic Q1", "synthetic", "q1", StreamSize(2_000, 4_000, 4_000, 1), 1)


@pytest.fixture(scope="module")
def measured(world: StreamWorld) -> MeasuredCosts:
    return measure_service(world, MeasureSize((2,), (128, 512), 3, (1, 2, 4)), SETTINGS)


def test_rooms_are_charged_for_every_message_and_find_all_matches(world: StreamWorld) -> None:
    plan = make_plan(world, 2, SETTINGS)
    met = count_candidates(world, plan, world.period.live)
    (objects, updates, _), kept = RoomBench(world.load, plan, 256).measure(3, 2, met)
    for key in [
        ("publish", DISPATCHER), ("route", DISPATCHER), ("RoutedObjects", DISPATCHER),
        ("RoutedObjects", WORKER), ("MatchBatch", WORKER), ("MatchBatch", DISPATCHER),
        ("MatchRelease", MERGER), ("StreamDelivery", DISPATCHER),
    ]:  # fmt: skip
        assert objects.cpu_us[key] > 0, key
    assert objects.flows["MatchBatch"].messages == objects.flows["RoutedObjects"].messages <= 2
    assert objects.flows["MatchRelease"].rows == objects.flows["MatchBatch"].rows > 0
    assert updates.cpu_us["UpdateRequest", SEQUENCER] > 0
    assert kept.queries > 1_500
    assert min(kept) > 0


def test_candidates_are_those_of_the_gridt(world: StreamWorld) -> None:
    one, four = (make_plan(world, n, SETTINGS) for n in (1, 4))
    met = [count_candidates(world, plan, world.period.live)[-1] for plan in (one, four)]
    assert met[0] == met[1] > 0


def test_a_shape_has_what_the_gridt_sends(world: StreamWorld) -> None:
    shape = shape_routing(world, make_plan(world, 4, SETTINGS), (512, 2_048))
    assert shape.receivers(2_048) <= 4
    assert shape.receivers(1) == pytest.approx(min(shape.copies, shape.receivers(512)))
    sent = np.sum([share.objects.sum() for share in shape.batches[512]]) / (
        512 * len(shape.batches[512])
    )
    assert sent == pytest.approx(shape.copies)
    assert shape.parts.objects.sum() == pytest.approx(1)
    assert 1 <= shape.holders <= 4


def test_costs_explain_the_samples_that_they_are_fitted_to(world: StreamWorld) -> None:
    plan = make_plan(world, 2, SETTINGS)
    met = count_candidates(world, plan, world.period.live)
    samples = [s for b in (128, 512) for s in RoomBench(world.load, plan, b).measure(3, 2, met)[0]]
    costs = fit_costs(samples, KEPT, COSTS.link, 0.0, 1.0)
    for sample in (s for s in samples if s.objects):
        for kind in ("RoutedObjects", "MatchBatch", "MatchRelease"):
            flow = sample.flows[kind]
            assert costs.size(kind, flow) == pytest.approx(flow.bytes, rel=0.1)
        whole = sum(costs.price(key, sample.flows, sample.candidates) for key in sample.cpu_us)
        assert whole == pytest.approx(sum(sample.cpu_us.values()), rel=0.5)


@pytest.mark.takes_turns(0)
def test_messages_over_tcp_cost_more_by_the_byte() -> None:
    near, far = measure_links(over_tcp=False), measure_links(over_tcp=True)
    assert near.message_us > 0
    assert far.byte_us > near.byte_us


@pytest.mark.takes_turns(1)
def test_a_short_model_says_what_is_full_first(measured: MeasuredCosts) -> None:
    rows = scale.model(measured, (1, 100), SETTINGS, 5_000)
    assert {row["design"] for row in rows} == set(scale.list_designs(100))
    for row in rows:
        assert row["limit"] > 0
        assert row["busy"][row["first"]] == pytest.approx(1, abs=0.05)
    verdicts = scale.judge_targets(measured, rows, SETTINGS, 5_000)
    assert {verdict.verdict for verdict in verdicts} <= {"met", "missed"}
    now, before = (
        next(row for row in rows if (row["nodes"], row["design"]) == (100, name))
        for name in ("now", "before")
    )
    assert now["limit"] > before["limit"]
    panels = scale.make_panels(rows)
    assert panels["objects/s at the limit"]["now"].keys() == {1, 100}
