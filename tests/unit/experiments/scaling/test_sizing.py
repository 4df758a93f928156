"""The division of actors among roles, and what is full first."""

from __future__ import annotations

import itertools

import pytest

from ps2stream.experiments.scaling.flows import JOINED, Deployment, Design, rate_flows
from ps2stream.experiments.scaling.sizing import (
    choose_shape,
    count_memory,
    divide_actors,
    find_limit,
)
from ps2stream.routing.unit_kernels import FIRST_GROUP
from tests.unit.experiments.scaling.model_inputs import COSTS, KEPT, make_shape

SHAPES = {n: make_shape(n) for n in (1, 2, 16, 64)}
AT = Deployment(4, 16, 2, 20, SHAPES[16], 10.0)


def test_at_the_limit_one_resource_is_full_and_none_is_more_than_full() -> None:
    full = find_limit(COSTS, AT, Design(), JOINED)
    assert max(full.busy.values()) == pytest.approx(1, rel=1e-3)
    more = rate_flows(COSTS, AT, Design(), full.objects * 1.01, JOINED)
    assert max(more.busy.values()) > 1


def test_more_hosts_take_more_until_a_sequencer_is_full() -> None:
    found = [divide_actors(COSTS, SHAPES, n, Design(), 10.0) for n in (1, 10, 100, 1_000)]
    limits = [each.full.objects for each in found]
    assert all(b > 0.9 * a for a, b in itertools.pairwise(limits))
    assert "sequencer" in found[2].first
    sharded = divide_actors(COSTS, SHAPES, 100, Design(shards=5, by_region=True), 10.0)
    assert sharded.full.objects > 1.5 * found[2].full.objects
    assert max(each.at.workers for each in found) < FIRST_GROUP


def test_one_postgresql_is_full_before_the_actors_of_many_hosts() -> None:
    found = divide_actors(COSTS, SHAPES, 100, Design(postgres=True), 10.0)
    assert found.first == "log of PostgreSQL"


def test_regions_use_the_most_workers() -> None:
    assert choose_shape(SHAPES, 100).workers in (1, 2)
    assert choose_shape(SHAPES, 128).workers == 64


def test_memory_grows_with_the_queries_that_an_actor_holds() -> None:
    found = count_memory(COSTS, AT, Design(), 1e6, 2.0)
    assert found["dispatcher"] == pytest.approx(1e6 * 2 * KEPT.dispatcher / 2)
    assert found["sequencer"] == 1e6 * KEPT.sequencer
    assert found["worker"] == 1e6 * KEPT.worker / 16
    sharded = count_memory(COSTS, AT, Design(shards=4, by_region=True), 1e6, 2.0)
    assert sharded["dispatcher"] == found["dispatcher"] / 4
