"""What flows: counts of messages by design, and what is full."""

from __future__ import annotations

import dataclasses

import pytest

from ps2stream.experiments.scaling.flows import (
    Deployment,
    Design,
    expect_hit,
    flow_objects,
    flow_updates,
    price_flows,
    rate_flows,
)
from tests.unit.experiments.scaling.model_inputs import COSTS, make_shape

AT = Deployment(10, 64, 8, 1_000, make_shape(16), 10.0)
INNER = "RoutedObjects", "MatchBatch", "MatchRelease", "ReleasesKept"


def test_a_batch_takes_two_messages_for_each_worker_and_each_merger() -> None:
    flows = flow_objects(AT, Design(), 8_192)
    assert sum(flows[kind].messages for kind in INNER) == pytest.approx(2 * 64 + 2 * 8, rel=1e-3)
    assert flows["MatchRelease"].rows == 81_920
    assert flows["RoutedObjects"].rows == 8_192


def test_before_the_rebuild_every_worker_answered_every_merger() -> None:
    flows = flow_objects(AT, Design(to_all=True), 8_192)
    assert sum(flows[kind].messages for kind in INNER) == pytest.approx(
        64 + 64 * 8 + 8 + 8, rel=1e-3
    )
    updates = flow_updates(AT, Design(to_all=True), 1.0, 1.0)
    assert updates["WorkerUpdates"].messages == 64
    assert updates["MergerQueries"].messages == 8
    assert flow_updates(AT, Design(), 1.0, 1.0)["MergerQueries"].messages == 1


def test_a_local_batch_concerns_the_workers_of_one_region() -> None:
    flows = flow_objects(AT, Design(local=True), 8_192)
    assert flows["RoutedObjects"].messages == pytest.approx(16)
    assert flows["RoutedObjects"].rows == 8_192


def test_shards_by_region_spare_dispatchers_the_updates_of_others() -> None:
    whole = flow_updates(AT, Design(shards=5), 10_000.0, 20.0)
    own = flow_updates(AT, Design(shards=5, by_region=True), 10_000.0, 20.0)
    assert whole["LedgerBatch"].rows == 10 * 10_000
    assert own["LedgerBatch"].rows == 2 * 10_000


def test_processes_that_do_nothing_take_cores_and_are_coordination() -> None:
    idle = {"dispatcher": 0.02, "worker": 0.01, "merger": 0.03, "sequencer": 0.04}
    bare = rate_flows(COSTS, AT, Design(), 1e5, 8_192)
    found = rate_flows(dataclasses.replace(COSTS, idle=idle), AT, Design(), 1e5, 8_192)
    assert found.cpu["worker"] - bare.cpu["worker"] == pytest.approx(64 * 0.01)
    assert found.cpu["sequencer"] - bare.cpu["sequencer"] == pytest.approx(0.04)
    assert found.busy["merger CPU"] - bare.busy["merger CPU"] == pytest.approx(0.03)
    more = sum(found.cpu.values()) * found.coordination - sum(bare.cpu.values()) * bare.coordination
    assert more == pytest.approx(10 * 0.02 + 64 * 0.01 + 8 * 0.03 + 0.04)


def test_larger_requests_of_updates_are_fewer() -> None:
    few, many = (flow_updates(AT, Design(request=n), 1_024.0, 1.0) for n in (512, 256))
    assert [of["UpdateRequest"].messages for of in (few, many)] == [2, 4]
    assert few["UpdateRequest"].rows == many["UpdateRequest"].rows


def test_a_batch_is_priced_by_its_messages_and_rows() -> None:
    at = Deployment(1, 2, 1, 1, make_shape(2), 10.0)
    spent = price_flows(COSTS, flow_objects(at, Design(), 1_024), 20 * 1_024)
    matching = 2 * 100 + 0.2 * 1_024 + 0.05 * 20 * 1_024
    answers = 2 * 10 + 0.01 * 10_240
    routed, found = 2 * 200 + 120 * 1_024, 2 * 200 + 20 * 10_240
    links = 2 * 20 + 0.001 * routed + 2 * 20 + 0.001 * found
    assert spent["worker"] == pytest.approx(matching + answers + links)


@pytest.mark.parametrize("design", [Design(), Design(to_all=True), Design(shards=4)])
def test_twice_the_objects_keep_actors_twice_as_busy(design: Design) -> None:
    one, two = (rate_flows(COSTS, AT, design, rate, 8_192) for rate in (1e4, 2e4))
    for role in ("worker", "merger"):
        assert two.cpu[role] == pytest.approx(2 * one.cpu[role], rel=0.02)
    assert two.busy["dispatcher CPU"] == pytest.approx(two.cpu["dispatcher"] / 10)
    assert 0 < one.coordination < 1


def test_expected_hits_are_bounded_by_places_and_draws() -> None:
    assert expect_hit(10, 1) == pytest.approx(1)
    assert expect_hit(10, 1e6) == pytest.approx(10)
    assert expect_hit(1, 0.5) == 0.5
