"""The simulation: nothing is lost, queues grow where they must, and CPU is what flows cost."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments.scaling.flows import Deployment, Design, rate_flows
from ps2stream.experiments.scaling.kinds import MERGER, WORKER
from ps2stream.experiments.scaling.sizing import find_limit
from ps2stream.experiments.scaling.timeline import Timeline, Timing
from tests.unit.experiments.scaling.model_inputs import COSTS, make_shape

AT = Deployment(2, 8, 2, 4, make_shape(8), 10.0)


def test_the_cpu_of_workers_is_that_of_the_flows() -> None:
    found = Timeline(COSTS, AT, Design(), Timing(100_000.0, 2.0)).run()
    rates = rate_flows(COSTS, AT, Design(), found.objects / found.seconds, found.batch)
    assert found.cpu_s[WORKER] / found.seconds == pytest.approx(rates.cpu[WORKER], rel=0.1)
    assert found.cpu_s[MERGER] / found.seconds == pytest.approx(rates.cpu[MERGER], rel=0.2)
    assert found.releases == pytest.approx(1, abs=0.2)


def test_every_publication_is_delivered_to_every_merger_that_has_matches() -> None:
    timing = Timing(50_000.0, 4.0)
    found = Timeline(COSTS, AT, Design(), timing).run()
    publications = found.objects / timing.publication
    assert len(found.latency_ms) == pytest.approx(2 * publications, rel=0.1)
    assert found.latency_ms.min() > 0.3  # three hops


def test_latency_explodes_beyond_the_limit_only() -> None:
    limit = find_limit(COSTS, AT, Design(), 8_192).objects
    calm, over = (
        np.median(Timeline(COSTS, AT, Design(), Timing(rate, 1.0)).run().latency_ms)
        for rate in (0.6 * limit, 1.6 * limit)
    )
    assert calm < 50
    assert over > 4 * calm


def test_a_client_with_a_window_fills_the_shared_cores() -> None:
    at = Deployment(1, 2, 1, 1, make_shape(2), 10.0)
    timing = Timing(0.0, 1.0, cores=2, window=16, way_us=0.0)
    found = Timeline(COSTS, at, Design(), timing).run()
    spent = sum(found.cpu_s.values())
    assert 0.6 * 2 * found.seconds < spent <= 2.02 * found.seconds
    assert found.batch > timing.publication


def test_dead_workers_delay_what_others_found_by_the_pause_for_late_answers() -> None:
    calm = Timeline(COSTS, AT, Design(), Timing(50_000.0, 1.0)).run()
    timing = Timing(50_000.0, 1.0, dead=frozenset({0}))
    lame = Timeline(COSTS, AT, Design(), timing).run()
    extra = np.median(lame.latency_ms) - np.median(calm.latency_ms)
    assert 2 < extra < 8
    assert lame.objects == pytest.approx(calm.objects, rel=0.2)


def test_the_same_seed_gives_the_same_run() -> None:
    one, two = (Timeline(COSTS, AT, Design(), Timing(50_000.0, 0.3, 7)).run() for _ in range(2))
    assert one.latency_ms.tolist() == two.latency_ms.tolist()
    assert one.messages == two.messages
