"""A running service that moves parts of cells, by each algorithm from the same state.

The plan is made for the first part of a stream whose hot spot wanders west; what comes is the
last part, over and over, with queries that come and go, at a share of what saturates the service.
After some periods `rebalance` begins a move; when it has ended, the service goes back to the
first plan and the next algorithm has its turn. The latency of a delivery counts from the moment
its batch was meant to be sent; publisher and subscriber are processes of their own.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np

from ps2stream.client.answers import MoveInfo
from ps2stream.protocol.frame import F64
from ps2stream.benchmarks.publisher import Interval, Job, publish
from ps2stream.benchmarks.subscriber import Receipt, subscribe
from ps2stream.benchmarks.verified import verified
from ps2stream.benchmarks.workload import Workload, make
from ps2stream.client.client import Client
from ps2stream.cluster.running import Service
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import FailedPrecondition, Ps2StreamError
from ps2stream.experiments.worlds import sample, westward
from ps2stream.routing.plan import RoutingPlan
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.partition import Options, to_plan
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.language.analyzer import Analysis, Analyzer

SESSION = "bench"
BATCH, EVERY = 256, 211  # objects; of which those with such offsets are checked
PERIOD_S, SATURATED_S, QUIET_S, TAIL_S = 1.0, 4.0, 2.0, 1.0
SHARE, LEAST_S = 0.6, 0.5
POLL_S, WAIT_S = 0.02, 120.0
UPDATES = 200_000
DELAYED_MS, STALLED_MS = 100.0, 1000.0
FOREVER = float("inf")
Runtime = Literal["ray", "local"]


class Scene(NamedTuple):
    """What is run: the stream, and the plan that it starts with."""

    load: Workload
    plan: RoutingPlan


class Move(NamedTuple):
    """One migration: what the service says of it, what `rebalance` foretold; ms: of each
    delivery of what was sent meanwhile, for LEAST_S at least, and in as long a time before;
    checked: see verified."""

    algorithm: str
    info: MoveInfo
    told: dict[str, Any]
    ms: F64
    quiet_ms: F64
    checked: dict[str, int]

    @property
    def seconds(self) -> float:
        assert self.info.ended_ms is not None
        assert self.info.begun_ms is not None
        return (self.info.ended_ms - self.info.begun_ms) / 1000


def scene(source: str, queries: int, posts: int, workers: int, seed: int) -> Scene:
    """Q3; hybrid for the first quarter of the posts, of which the last quarter comes."""
    analyzer = Analyzer(Analysis(salt=seed))
    load = westward(make(source, "q3", queries, UPDATES, posts, seed, analyzer))
    known = sample(load, slice(0, posts // 4), slice(0, 0), analyzer)
    made = ALGORITHMS["hybrid"](known.stats, workers, Options(seed=seed))
    plan = to_plan(made, known.stats, workers, analyzer.analysis, known.frequencies)
    last = load.posts.take(np.arange(posts - posts // 4, posts))
    return Scene(dataclasses.replace(load, posts=last), plan)


def migrations(
    scene: Scene,
    algorithms: Sequence[str],
    runtime: Runtime,
    progress: Callable[[str], None],
    rate: float | None = None,
) -> tuple[float, list[Move]]:
    """(tuples a second, a move by each algorithm in turn). rate: by default SHARE of what
    saturates the service before the first move. Raises Ps2StreamError where the service does
    not move."""
    with PrivateFolder() as folder:
        settings = Settings(
            port=0, data_dir=folder.path / "data", workers=scene.plan.workers,
            session_quota=1 << 30, load_period_s=PERIOD_S, runtime=runtime,
        )  # fmt: skip
        progress("starting the service")
        with (
            start(settings, scene.plan) as service,
            Client(service.targets[0], timeout=90) as client,
            _clients(service, scene.load) as (sender, receiver),
        ):
            run = _Run(service, client, scene.load, sender, receiver)
            if rate is None:
                progress("measuring what saturates it")
                rate = SHARE * run.saturated()
            first = json.loads(client.plan())
            found = []
            for name in algorithms:
                progress(f"a move by {name} at {rate:,.0f} tuples/s")
                found.append(run.move(name, first, rate))
            return rate, found


@contextmanager
def _clients(service: Service, load: Workload) -> Iterator[tuple[Any, Any]]:
    """Publisher and subscriber, once all queries are loaded: the pipes to them."""
    context = multiprocessing.get_context("spawn")
    (sender, theirs), (receiver, said) = context.Pipe(), context.Pipe()
    job = Job(
        service.targets[0], load.posts, load.expressions(), load.interests.rect,
        load.interests.death, load.start, BATCH, "durable",
    )  # fmt: skip
    processes = [
        context.Process(target=subscribe, args=(service.targets[0], SESSION, said, EVERY)),
        context.Process(target=publish, args=(job, theirs)),
    ]
    for process in processes:
        process.start()
    try:
        receiver.recv()
        sender.recv()
        yield sender, receiver
        sender.send(None)
        receiver.send(None)
    finally:
        for process in processes:
            process.join(5)
            process.terminate()


@dataclasses.dataclass
class _Run:
    service: Service
    client: Client
    load: Workload
    sender: Any
    receiver: Any

    def saturated(self) -> float:
        """Tuples a second, as fast as they are answered."""
        self.sender.send((SATURATED_S, None, BATCH))
        interval: Interval = self.sender.recv()
        return interval.tuples / self._receipt(interval).span(interval.began)

    def move(self, algorithm: str, first: dict[str, Any], rate: float) -> Move:
        """From the plan `first`, while the stream flows."""
        self.sender.send((FOREVER, rate, BATCH))
        try:
            self._back(first)
            self._rebalanced(algorithm, dry_run=True)
            time.sleep(QUIET_S + PERIOD_S)
            told = self._rebalanced(algorithm)  # the controller may have learnt of the plan since
            info = self._ended(told["plan_version"])
            time.sleep(TAIL_S)
        finally:
            self.sender.send("enough")
            interval: Interval = self.sender.recv()
        receipt = self._receipt(interval)
        assert info.begun_ms is not None
        assert info.ended_ms is not None
        clock = time.time() - time.monotonic()
        begun = info.begun_ms / 1000 - clock
        ended = max(info.ended_ms / 1000 - clock, begun + LEAST_S)
        sent, late = receipt.sent(interval), receipt.latency(interval)
        during = (sent >= begun) & (sent <= ended)
        before = (sent >= 2 * begun - ended) & (sent < begun)
        checked = verified(self.load, [interval], [receipt], EVERY)
        return Move(algorithm, info, told, late[during], late[before], checked)

    def _back(self, first: dict[str, Any]) -> None:
        """To the plan that there was before any move."""
        now = json.loads(self.client.plan())
        if now["version"] != first["version"]:
            again = first | {"base_version": now["version"], "version": now["version"] + 1}
            self._ended(self.client.apply_plan(json.dumps(again).encode())[1])

    def _rebalanced(self, algorithm: str, *, dry_run: bool = False) -> dict[str, Any]:
        """What `rebalance` foretells, once an adjustment may be made."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return self.client.rebalance(algorithm, dry_run=dry_run)
            except FailedPrecondition:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PERIOD_S / 4)

    def _ended(self, version: int) -> MoveInfo:
        """The move to this version, once it has ended. Raises Ps2StreamError where there was
        nothing to move, or the move was given up."""
        if not version:
            raise Ps2StreamError("the loads are balanced: nothing moves")
        deadline = time.monotonic() + WAIT_S
        while (moves := self.client.moves()).following_version:
            if time.monotonic() > deadline:
                raise Ps2StreamError(f"the move did not end in {WAIT_S:g} s: {moves.state}")
            time.sleep(POLL_S)
        if (move := moves.ended[-1]).to_version != version or move.outcome != "done":
            raise Ps2StreamError(f"the move to plan version {version}: {move.outcome}")
        return move

    def _receipt(self, interval: Interval) -> Receipt:
        """What came of it, once all is delivered."""
        deadline = time.monotonic() + WAIT_S
        while self.service.status()["dispatcher-0"]["in_flight"]:
            if time.monotonic() > deadline:
                raise Ps2StreamError(f"batches are under way after {WAIT_S:g} s")
            time.sleep(POLL_S)
        time.sleep(POLL_S)  # what is durable is still sent to the subscriber
        self.receiver.send(interval.first_offset)
        receipt: Receipt = self.receiver.recv()
        return receipt
