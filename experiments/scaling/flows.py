"""What flows in a service of many hosts, by second: messages, bytes and CPU by role, and what they
saturate.

The flows of a batch are exact: they follow from the design and from how the plan spreads real
objects. Costs are those measured. A world of more workers than a region has is several such
regions side by side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from ps2stream.experiments.scaling.costs import Flows, ServiceCosts
from ps2stream.experiments.scaling.kinds import (
    DISPATCHER,
    KINDS,
    MERGER,
    ROLES,
    SEQUENCER,
    WORKER,
)
from ps2stream.experiments.scaling.rooms import PUBLISH, ROUTE, UPDATE, Flow
from ps2stream.experiments.scaling.shapes import RoutingShape

PUBLICATION = 1_024
"""Objects of a publication, as in the benchmarks."""
JOINED = 8_192
"""Objects of a batch from which on no publication waits (dispatcher/intake.py)."""
UPDATES_PER_OBJECT, FEW_UPDATES = 0.2, 0.01
"""Inserts and deletes for each object: 10 : 1 : 1, as in the benchmark of the pipeline; and where
queries live long."""
DATA_PATH = "RoutedObjects", "MatchBatch", "MatchRelease", "ReleasesKept"
"""The kinds of messages that a batch of objects takes, whatever the sessions."""
UPDATE_ROWS = 256
"""Updates of a request, as in the benchmark of steps: an assumption."""
GROUPED = 64
"""Most messages that are handled together, before one sync (cluster/shell.py)."""
SHARE = 0.5
"""Of a sequencer's core, what commits take before requests are grouped: an assumption."""
ENDS = {kind.__name__: (of.sender, of.receiver) for kind, of in KINDS.items()}


RIDERS = "StreamDelivery", "UpdateDecision", "LedgerTip"
"""Kinds that travel in one message with another one: with ReleasesKept, or with LedgerBatch."""


class Design(NamedTuple):
    """How a service is built. to_all: as before the rebuild of the data path: workers answer every
    merger, which gets all texts of a batch, and updates go to everybody. local: clients publish
    to a dispatcher of their region, so that a batch concerns the workers of one. shards: of the
    ledger, each with a sequencer. by_region: a dispatcher applies the updates of one shard, not
    of all. postgres: the logs are in one PostgreSQL, not in Kafka. updates: for each object;
    request: updates of a request."""

    to_all: bool = False
    local: bool = False
    shards: int = 1
    by_region: bool = False
    postgres: bool = False
    updates: float = UPDATES_PER_OBJECT
    request: float = UPDATE_ROWS


class Deployment(NamedTuple):
    """The size of a service. shape: of one region; sessions: that are sent matches."""

    dispatchers: int
    workers: int
    mergers: int
    sessions: int
    shape: RoutingShape
    pairs: float
    """Matches of an object."""

    @property
    def regions(self) -> float:
        """How many regions of `shape` the workers make."""
        return self.workers / self.shape.workers


def count_actors(at: Deployment, shards: int = 1) -> dict[str, int]:
    """Returns the actors by role; shards: of the ledger."""
    return {
        DISPATCHER: at.dispatchers, WORKER: at.workers, MERGER: at.mergers, SEQUENCER: shards
    }  # fmt: skip


def expect_hit(places: float, draws: float) -> float:
    """Returns how many of some places are hit by so many draws."""
    return places * (1 - (1 - 1 / places) ** draws) if places > 1 else min(1.0, draws)


def flow_objects(at: Deployment, design: Design, objects: float, releases: float = 1.0) -> Flows:
    """Returns the flows of a batch of so many objects. releases: of which each merger gets so many
    parts, as some workers answer late."""
    shape, pairs = at.shape, at.pairs * objects
    regions = 1.0 if design.local else at.regions
    receivers = regions * shape.receivers(objects / regions)
    copies = shape.copies * objects
    publications = max(objects / PUBLICATION, 1.0)
    hit = expect_hit(at.mergers, min(pairs, at.sessions))
    streams = expect_hit(at.sessions, pairs)
    flows = {
        PUBLISH: Flow(publications, objects, 0),
        ROUTE: Flow(1, objects, 0),
        "RoutedObjects": Flow(receivers, copies, 0),
        "MatchBatch": Flow(receivers, pairs, 0),
        "MatchRelease": Flow(hit * releases, pairs, 0),
        "ReleasesKept": Flow(hit * releases, 0, 0),
        "StreamDelivery": Flow(max(streams / GROUPED, hit), pairs, 0),
        "StreamCredit": Flow(max(streams / GROUPED, hit), 0, 0),
    }
    if design.to_all:
        # Every worker with a share answers every merger, and every merger has all texts, is
        # charged as for a release of as many rows, and tells when it has the batch.
        flows["MatchBatch"] = Flow(0, 0, 0)
        flows["MatchRelease"] = Flow(at.mergers * (receivers + 1), pairs + at.mergers * objects, 0)
        flows["ReleasesKept"] = Flow(at.mergers, 0, 0)
    return flows


def flow_updates(at: Deployment, design: Design, updates: float, commits: float) -> Flows:
    """Returns the flows of so many updates a second, which the sequencers commit in so many
    batches each."""
    shards = design.shards
    requests = updates / design.request
    batches = commits * shards
    rows = updates / max(batches, 1e-9)  # of a batch
    hears = at.dispatchers / shards if design.by_region else at.dispatchers
    workers = (
        float(at.workers) if design.to_all else expect_hit(at.workers, rows * at.shape.holders)
    )
    mergers = float(at.mergers) if design.to_all else expect_hit(at.mergers, rows)
    return {
        UPDATE: Flow(requests, updates, 0),
        "UpdateRequest": Flow(requests, updates, 0),
        "LedgerBatch": Flow(batches * hears, updates * hears, 0),
        "UpdateDecision": Flow(requests, updates, 0),
        "WorkerUpdates": Flow(batches * workers, updates * at.shape.holders, 0),
        "MergerQueries": Flow(batches * mergers, updates, 0),
        "AppliedReport": Flow(batches * hears, 0, 0),
        "LedgerTip": Flow(batches * hears, 0, 0),
    }  # fmt: skip


def choose_commits(costs: ServiceCosts, at: Deployment, design: Design, updates: float) -> float:
    """Returns how many batches of so many updates a second each sequencer commits in a second: one
    for each request, as long as the disk and half of a core allow that. Requests that come
    meanwhile go into the next one, up to GROUPED."""
    requests = max(updates / design.request / design.shards, 1e-9)
    none = price_flows(costs, flow_updates(at, design, updates, 0.0), 0.0)[SEQUENCER]
    one = price_flows(costs, flow_updates(at, design, updates, 1.0), 0.0)[SEQUENCER]
    room = (SHARE * 1e6 * design.shards - none) / max(one - none, 1e-9)
    return max(min(requests, 1e6 / costs.sync_us, room), requests / GROUPED)


def price_flows(costs: ServiceCosts, flows: Flows, candidates: float) -> dict[str, float]:
    """Returns the CPU microseconds by role: of rooms, links and, at dispatchers, of clients."""
    spent = dict.fromkeys(ROLES, 0.0)
    for key in costs.factors:
        spent[key[1]] += costs.price(key, flows, candidates)
    for kind, (sender, receiver) in ENDS.items():
        flow = flows.get(kind)
        if flow is not None and flow.messages:
            carried = 0 if kind in RIDERS else flow.messages
            link = costs.link.price(carried, costs.size(kind, flow))
            spent[sender] += link
            spent[receiver] += link
    clients = sum(flows[k].messages for k in (PUBLISH, UPDATE, "StreamDelivery") if k in flows)
    spent[DISPATCHER] += costs.client_us * clients
    return spent


def price_messages(costs: ServiceCosts, flows: Flows) -> float:
    """Returns the CPU microseconds that messages between actors take whatever their rows, at both
    ends, with their links: a part of coordination."""
    whole = 0.0
    for kind in ENDS:
        if (flow := flows.get(kind)) is not None:
            bare = {kind: Flow(flow.messages, 0, 0)}
            whole += sum(costs.price(key, bare) for key in costs.factors if key[0] == kind)
            if kind not in RIDERS:
                whole += 2 * costs.link.price(flow.messages, 0)
    return whole


@dataclasses.dataclass(frozen=True)
class FlowRates:
    """What flows in a second. cpu: cores by role; coordination: the part of them all that is not
    for objects, candidates and matches: what messages take whatever is in them, the sequencer, and
    idle processes; messages and bytes: between actors; most_bytes: sent and
    received by a dispatcher; log_bytes: into the logs of objects, matches and updates."""

    objects: float
    cpu: Mapping[str, float]
    coordination: float
    messages: float
    batch_messages: float
    bytes: float
    most_bytes: float
    log_bytes: float
    busy: Mapping[str, float]
    """How much of what there is of each resource is used; 1 is all of it."""


NETWORK_BYTES = 10e9 / 8
"""Bytes a second of a host's network, in each direction: 10 Gbit/s, an assumption."""
POSTGRES_BYTES = 140e6
"""Bytes a second that one PostgreSQL's log takes in large records (docs/benchmarks.md, Logs)."""


def rate_flows(
    costs: ServiceCosts, at: Deployment, design: Design, objects: float, batch: float,
    releases: float = 1.0,
) -> FlowRates:  # fmt: skip
    """Returns what flows if so many objects a second come, routed in batches of so many."""
    each = flow_objects(at, design, batch, releases)
    rate = objects / batch
    of_batch = price_flows(costs, each, at.shape.candidates * batch)
    updates = objects * design.updates
    commits = choose_commits(costs, at, design, updates)
    changes = flow_updates(at, design, updates, commits)
    of_updates = price_flows(costs, changes, 0.0)
    turns = rate * at.mergers / GROUPED
    further = expect_hit(at.sessions, at.pairs * batch) - each["MatchRelease"].messages
    streams = min(rate * max(further, 0.0), turns * at.sessions / at.mergers)
    count = count_actors(at, design.shards)
    idle = {role: costs.idle[role] * count[role] for role in ROLES}
    cpu = {role: (of_batch[role] * rate + of_updates[role]) / 1e6 for role in ROLES}
    cpu[MERGER] += streams * costs.session_us / 1e6
    sizes = {kind: costs.size(kind, each[kind]) * rate if kind in each else 0.0 for kind in ENDS}
    for kind in changes:
        if kind in ENDS:
            sizes[kind] += costs.size(kind, changes[kind])
    ends = dict.fromkeys(ROLES, 0.0)
    for kind, size in sizes.items():
        for role in ENDS[kind]:
            ends[role] += size
    messages = sum(each[kind].messages for kind in ENDS if kind in each)
    on_path = sum(each[kind].messages for kind in DATA_PATH)
    of_changes = sum(changes[kind].messages for kind in ENDS if kind in changes)
    alone = (price_messages(costs, each) * rate + price_messages(costs, changes)) / 1e6
    alone += cpu[SEQUENCER] + sum(idle.values())
    logs = objects * (costs.kept.object_log + at.pairs * costs.kept.match_log) + sizes[
        "LedgerBatch"
    ] / max(at.dispatchers, 1)
    busiest = find_busiest(costs, at)
    busy = {f"{role} CPU": cpu[role] / count[role] for role in ROLES}
    busy[f"{WORKER} CPU"] *= busiest
    for role in ROLES:
        cpu[role] += idle[role]
        busy[f"{role} CPU"] += costs.idle[role]
    busy["network of a dispatcher"] = ends[DISPATCHER] / at.dispatchers / 2 / NETWORK_BYTES
    busy["network of the sequencer"] = ends[SEQUENCER] / design.shards / NETWORK_BYTES
    if design.postgres:
        busy["log of PostgreSQL"] = logs / POSTGRES_BYTES
    return FlowRates(
        objects, cpu, alone / sum(cpu.values()), messages * rate + of_changes, on_path,
        sum(sizes.values()), ends[DISPATCHER] / at.dispatchers, logs, busy,
    )  # fmt: skip


def find_busiest(costs: ServiceCosts, at: Deployment) -> float:
    """Returns the load of the busiest worker over the mean, by copies and candidates."""
    factors = costs.factors.get(("RoutedObjects", WORKER), (0.0, 0.0, 0.0))
    parts = at.shape.parts
    load = factors[1] * at.shape.copies * parts.objects
    load = load + factors[2] * at.shape.candidates * parts.candidates
    return float(load.max() / load.mean()) if load.any() else 1.0
