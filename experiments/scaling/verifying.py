"""Whether the model predicts real runs: one run sets the scale, and others are predicted.

The rooms run in one process, with all they touch in its caches. What a process of its own takes
beyond that is measured once, with ANCHOR workers: the cores that it takes while nothing comes, and
a factor for each role; for dispatchers, what the worker's factor does not explain is of the
messages of clients. Runs with other numbers of workers are then predicted. The objects of a batch
and the tuples of a second depend on what else runs on the machine, too. So CPU time, messages and
bytes are predicted for the batches that came, and the size of batches is a prediction of its own.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ps2stream.benchmarks.publisher import EVERY, UPDATED
from ps2stream.client.window import SendWindow
from ps2stream.experiments.report import ClaimVerdict
from ps2stream.experiments.scaling.costs import ServiceCosts
from ps2stream.experiments.scaling.flows import (
    Deployment,
    Design,
    count_actors,
    rate_flows,
)
from ps2stream.experiments.scaling.kinds import DISPATCHER, ROLES, WORKER
from ps2stream.experiments.scaling.runs import RealRun
from ps2stream.experiments.scaling.shapes import RoutingShape
from ps2stream.experiments.scaling.timeline import Timeline, Timing

ANCHOR = 3
"""Workers of the run that sets the scale."""
TOLERANCE = 0.2
SECONDS = 2.0
REQUEST = EVERY * UPDATED / 10
"""Updates of a request of the benchmark's publisher: inserts or deletes."""


class Prediction(NamedTuple):
    """What the model predicts of a run; fields as in RealRun."""

    workers: int
    cpu_us: Mapping[str, float]
    objects: float
    frames: float
    bytes: float
    tuples_per_second: float
    idle: Mapping[str, float]


def deploy(shape: RoutingShape, pairs: float) -> Deployment:
    """Returns the deployment of the real runs: one host, one session."""
    return Deployment(1, shape.workers, 1, 1, shape, pairs)


def set_scale(costs: ServiceCosts, shape: RoutingShape, anchors: Sequence[RealRun]) -> ServiceCosts:
    """Returns the costs of processes of their own, by the mean of some runs with ANCHOR workers."""
    count = len(anchors)
    mean = {role: sum(run.cpu_us[role] for run in anchors) / count for role in anchors[0].cpu_us}
    batch = sum(run.objects for run in anchors) / count
    pairs = sum(run.pairs for run in anchors) / count
    updates = sum(run.updates for run in anchors) / count
    rate = sum(run.tuples_per_second for run in anchors) / count / (1 + updates)
    at = deploy(shape, pairs)

    def predict(costs: ServiceCosts) -> Mapping[str, float]:
        """Returns CPU microseconds of a tuple by role."""
        tuples = rate * (1 + updates)
        design = Design(updates=updates, request=REQUEST)
        cores = rate_flows(costs, at, design, rate, batch).cpu
        return {role: 1e6 * cores[role] / tuples for role in ROLES}

    bare = predict(costs)
    links = predict(dataclasses.replace(costs, scale=dict.fromkeys(ROLES, 0.0)))
    scale = {
        role: max(mean[role] - links[role], 0.0) / (bare[role] - links[role]) for role in ROLES
    }
    scale[DISPATCHER] = min(scale[DISPATCHER], scale[WORKER])
    clients = mean["publisher"] + mean["subscriber"]
    found = dataclasses.replace(
        costs, scale=scale, clients_us=clients * (1 + updates), client_us=1.0
    )
    # What is left, spread over the messages of clients, of each of which 1 us is in the second.
    none = dataclasses.replace(found, client_us=0.0)
    left = mean[DISPATCHER] - predict(none)[DISPATCHER]
    one = predict(found)[DISPATCHER] - predict(none)[DISPATCHER]
    idle = {
        role: sum(run.idle[role] for run in anchors) / count / actors
        for role, actors in count_actors(at).items()
    }
    return dataclasses.replace(found, client_us=max(left / one, 0.0), idle=idle)


def predict_run(
    costs: ServiceCosts, shape: RoutingShape, real: RealRun, request_bytes: int,
    seconds: float = SECONDS,
) -> Prediction:  # fmt: skip
    """Returns what a run on this machine takes, for its rate and batches. How large the batches are
    is simulated, with a client whose publications have so many bytes; all share the cores."""
    cores = os.cpu_count() or 1
    at, design = deploy(shape, real.pairs), Design(updates=real.updates, request=REQUEST)
    timing = Timing(
        0.0, seconds, cores=cores, window=count_window(request_bytes), way_us=0.0, bandwidth=1e9
    )
    found = Timeline(costs, at, design, timing).run()
    working = dataclasses.replace(costs, idle=dict.fromkeys(ROLES, 0.0))
    tuples = real.tuples_per_second
    objects = tuples / (1 + real.updates)
    rates = rate_flows(working, at, design, objects, real.objects, found.releases)
    cpu = {role: 1e6 * rates.cpu[role] / tuples for role in ROLES}
    whole = sum(cpu.values()) + costs.clients_us / (1 + real.updates)
    idle = {role: costs.idle[role] * count for role, count in count_actors(at).items()}
    return Prediction(
        shape.workers, cpu, found.batch, rates.messages * real.objects / objects,
        rates.bytes / tuples, 1e6 * max(cores - sum(idle.values()), 0.0) / whole, idle,
    )  # fmt: skip


def count_window(request_bytes: int) -> int:
    """Returns the publications of so many bytes that a client has under way."""
    window = SendWindow()
    while not window.is_full:
        window.note_sent(request_bytes)
    return len(window)


def compare(predicted: Prediction, real: RealRun) -> list[ClaimVerdict]:
    """Returns verdicts on the quantities of a run."""
    free = (os.cpu_count() or 1) - sum(real.idle.values())
    whole = {
        "CPU of the service": (
            sum(predicted.cpu_us.values()), sum(real.cpu_us[role] for role in ROLES), "us a tuple"
        ),
        **{
            f"CPU of {role}s": (predicted.cpu_us[role], real.cpu_us[role], "us a tuple")
            for role in ROLES
        },
        "frames": (predicted.frames, sum(real.messages.values()), "a batch"),
        "bytes between actors": (predicted.bytes, real.bytes, "a tuple"),
        "rate by CPU time": (
            predicted.tuples_per_second, 1e6 * free / sum(real.cpu_us.values()), "tuples/s"
        ),
        "cores while nothing comes": (
            sum(predicted.idle.values()), sum(real.idle.values()), "cores"
        ),
        "objects of a batch": (predicted.objects, real.objects, "objects"),
    }  # fmt: skip
    return [
        judge_prediction(f"{real.workers} workers: {name}", ours, theirs, unit)
        for name, (ours, theirs, unit) in whole.items()
    ]


def judge_prediction(what: str, predicted: float, measured: float, unit: str) -> ClaimVerdict:
    """Returns the verdict on one prediction: whether it is within a fifth."""
    ratio = predicted / measured if measured else float("inf")
    word = "within 20%" if abs(ratio - 1) <= TOLERANCE else "off"
    text = f"{predicted:,.3g} {unit} predicted, {measured:,.3g} measured, {ratio:.2f}x"
    return ClaimVerdict(what, text, "our goal: within 20%", word)
