"""A running service that moves parts of cells, by each algorithm from the same state.

The plan is made for the first part of a stream whose hot spot moves west; the last part is
published, over and over, with queries that are inserted and deleted, at a share of what saturates
the service. After some periods `rebalance` begins a move; when it has ended, the service returns
to the first plan and the next algorithm has its turn. The latency of a delivery counts from the
moment its batch was meant to be sent; publisher and subscriber are processes of their own.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np

from ps2stream.benchmarks.pipeline_run import start_clients
from ps2stream.benchmarks.publisher import PublisherJob, PublishInterval
from ps2stream.benchmarks.service_access import ServiceAccess
from ps2stream.benchmarks.subscriber import DeliveryReceipt
from ps2stream.benchmarks.verified import verified
from ps2stream.benchmarks.workload import Workload, make
from ps2stream.client.answers import MigrationInfo
from ps2stream.client.client import Client
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import FailedPrecondition, Ps2StreamError
from ps2stream.experiments.worlds import sample, westward
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.partition import PartitionOptions, to_plan
from ps2stream.protocol.frame import F64
from ps2stream.routing.plan import RoutingPlan

BATCH, EVERY = 256, 211  # objects per batch; those whose offset EVERY divides are checked
PERIOD_S, SATURATED_S, QUIET_S, TAIL_S = 1.0, 4.0, 2.0, 1.0
SHARE, LEAST_S = 0.6, 0.5
POLL_S, WAIT_S = 0.02, 120.0
UPDATES = 200_000
DELAYED_MS, STALLED_MS = 100.0, 1000.0
FOREVER = float("inf")
Runtime = Literal["ray", "local"]


class MigrationScene(NamedTuple):
    """The input of a run: the stream, and the plan that it starts with."""

    load: Workload
    plan: RoutingPlan


class MeasuredMigration(NamedTuple):
    """A migration. info: the service's account of it; proposal: the adjustment that `rebalance`
    announced; ms: the latency of each delivery of what was sent meanwhile, for LEAST_S at least;
    quiet_ms: the same for as long a time before; checked: see verified."""

    algorithm: str
    info: MigrationInfo
    proposal: dict[str, Any]
    ms: F64
    quiet_ms: F64
    checked: dict[str, int]

    @property
    def seconds(self) -> float:
        assert self.info.ended_ms is not None
        assert self.info.began_ms is not None
        return (self.info.ended_ms - self.info.began_ms) / 1000


def make_scene(source: str, queries: int, posts: int, workers: int, seed: int) -> MigrationScene:
    """Returns Q3 queries and a plan by hybrid for the first quarter of the posts, of which the
    last quarter is published."""
    analyzer = Analyzer(Analysis(salt=seed))
    load = westward(make(source, "q3", queries, UPDATES, posts, seed, analyzer))
    known = sample(load, slice(0, posts // 4), slice(0, 0), analyzer)
    made = ALGORITHMS["hybrid"](known.stats, workers, PartitionOptions(seed=seed))
    plan = to_plan(made, known.stats, workers, analyzer.analysis, known.frequencies)
    last = load.posts.take(np.arange(posts - posts // 4, posts))
    return MigrationScene(dataclasses.replace(load, posts=last), plan)


def migrations(
    scene: MigrationScene,
    algorithms: Sequence[str],
    runtime: Runtime,
    progress: Callable[[str], None],
    rate: float | None = None,
) -> tuple[float, list[MeasuredMigration]]:
    """Returns (tuples per second, a move by each algorithm in turn). rate: by default SHARE of
    what saturates the service before the first move. Raises Ps2StreamError if the service does
    not move."""
    with PrivateFolder() as folder:
        settings = Settings(
            port=0, data_dir=folder.path / "data", workers=scene.plan.workers,
            session_quota=1 << 30, load_period_s=PERIOD_S, runtime=runtime, hot="off",
        )  # fmt: skip
        progress("starting the service")
        with (
            start(settings, scene.plan) as service,
            Client(service.targets[0], timeout=90) as client,
            _start_clients(service, scene.load) as (sender, receiver),
        ):
            run = _MigrationRun(service, client, scene.load, sender, receiver)
            if rate is None:
                progress("measuring the rate that saturates it")
                rate = SHARE * run.saturated()
            first = json.loads(client.plan())
            found = []
            for name in algorithms:
                progress(f"a migration by {name} at {rate:,.0f} tuples/s")
                found.append(run.move(name, first, rate))
            return rate, found


@contextmanager
def _start_clients(service: RunningService, load: Workload) -> Iterator[tuple[Any, Any]]:
    """Starts publisher and subscriber; yields the pipes to them once all queries are inserted."""
    job = PublisherJob(
        ServiceAccess(service.targets[0]), load.posts, load.expressions(), load.interests.rect,
        load.interests.death, load.start, BATCH, "durable",
    )  # fmt: skip
    with start_clients(job, EVERY) as (sender, receiver):
        sender.recv()
        yield sender, receiver


@dataclasses.dataclass
class _MigrationRun:
    service: RunningService
    client: Client
    load: Workload
    sender: Any
    receiver: Any

    def saturated(self) -> float:
        """Returns the tuples per second that are published as fast as they are answered."""
        self.sender.send((SATURATED_S, None, BATCH))
        interval: PublishInterval = self.sender.recv()
        return interval.tuples / self._collect_receipt(interval).span(interval.began)

    def move(self, algorithm: str, first: dict[str, Any], rate: float) -> MeasuredMigration:
        """Moves away from the plan `first` while objects are published."""
        self.sender.send((FOREVER, rate, BATCH))
        try:
            self._restore_plan(first)
            self._request_move(algorithm, dry_run=True)
            time.sleep(QUIET_S + PERIOD_S)
            proposal = self._request_move(algorithm)  # the controller may know the plan by now
            info = self._wait_for_end(proposal["plan_version"])
            time.sleep(TAIL_S)
        finally:
            self.sender.send("enough")
            interval: PublishInterval = self.sender.recv()
        receipt = self._collect_receipt(interval)
        assert info.began_ms is not None
        assert info.ended_ms is not None
        clock = time.time() - time.monotonic()
        began = info.began_ms / 1000 - clock
        ended = max(info.ended_ms / 1000 - clock, began + LEAST_S)
        sent, late = receipt.sent(interval), receipt.latency(interval)
        during = (sent >= began) & (sent <= ended)
        before = (sent >= 2 * began - ended) & (sent < began)
        checked = verified(self.load, [interval], [receipt], EVERY)
        return MeasuredMigration(algorithm, info, proposal, late[during], late[before], checked)

    def _restore_plan(self, first: dict[str, Any]) -> None:
        """Returns to the plan that the service had before any move."""
        now = json.loads(self.client.plan())
        if now["version"] != first["version"]:
            again = first | {"base_version": now["version"], "version": now["version"] + 1}
            self._wait_for_end(self.client.apply_plan(json.dumps(again).encode())[1])

    def _request_move(self, algorithm: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Returns what `rebalance` proposes, once an adjustment is possible and something is to
        migrate. Raises Ps2StreamError if nothing is for WAIT_S."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                proposal = self.client.rebalance(algorithm, dry_run=dry_run)
                if dry_run or proposal["plan_version"]:
                    return proposal
                if time.monotonic() > deadline:
                    raise Ps2StreamError(
                        f"{algorithm}: nothing migrates; balance {proposal['balance_before']}, "
                        f"wanted: at most {proposal['sigma']:g}"
                    )
            except FailedPrecondition:
                if time.monotonic() > deadline:
                    raise
            time.sleep(PERIOD_S / 4)

    def _wait_for_end(self, version: int) -> MigrationInfo:
        """Returns the migration to this version once it has ended. Raises Ps2StreamError if it was
        aborted."""
        deadline = time.monotonic() + WAIT_S
        while (found := self.client.migrations()).following_version:
            if time.monotonic() > deadline:
                raise Ps2StreamError(
                    f"the plan change did not end within {WAIT_S:g} s: {found.state}"
                )
            time.sleep(POLL_S)
        last = found.migrations[-1]
        if last.to_version != version or last.outcome != "done":
            raise Ps2StreamError(f"the plan change to version {version}: {last.outcome}")
        return last

    def _collect_receipt(self, interval: PublishInterval) -> DeliveryReceipt:
        """Returns the deliveries of an interval once all are made."""
        deadline = time.monotonic() + WAIT_S
        while self.service.status()["dispatcher-0"]["in_flight"]:
            if time.monotonic() > deadline:
                raise Ps2StreamError(f"batches are still under way after {WAIT_S:g} s")
            time.sleep(POLL_S)
        time.sleep(POLL_S)  # durable matches are still on their way to the subscriber
        self.receiver.send(interval.first_offset)
        receipt: DeliveryReceipt = self.receiver.recv()
        return receipt
