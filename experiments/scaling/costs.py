"""The costs of a service, fitted to what its rooms took: of a message, a row, an object and a
candidate of each kind, at the role that has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ps2stream.experiments.scaling.fit import fit_factors
from ps2stream.experiments.scaling.kinds import DISPATCHER, ROLES, WORKER
from ps2stream.experiments.scaling.links import LinkCost
from ps2stream.experiments.scaling.rooms import (
    PUBLISH,
    ROUTE,
    Flow,
    Key,
    RoomSample,
    RoomSizes,
)

MATCHED: Key = ("RoutedObjects", WORKER)
GATHERED: Key = ("MatchBatch", DISPATCHER)
Flows = Mapping[str, Flow]
NONE = Flow(0, 0, 0)


def list_features(key: Key, flows: Flows, candidates: float) -> tuple[float, ...]:
    """Returns what takes time in a batch: messages and rows, and of some steps a third."""
    own = flows.get(key[0], NONE)
    third = {
        (ROUTE, DISPATCHER): flows.get("RoutedObjects", NONE).messages,
        MATCHED: candidates,
        GATHERED: flows.get("MatchRelease", NONE).messages,
    }
    return (own.messages, own.rows, third[key]) if key in third else (own.messages, own.rows)


@dataclasses.dataclass(frozen=True)
class ServiceCosts:
    """What a service costs. factors: CPU microseconds by `list_features`; sizes: bytes of a message
    and of a row by kind; scale: how much more a process of its own takes for the same, by role;
    client_us: of a message of a client, at the dispatcher; session_us: of another session that is
    sent matches, at the merger; sync_us: of a sync, on the clock; clients_us: of the publisher
    and subscriber for a tuple; idle: cores that a process takes whatever flows, by role."""

    factors: Mapping[Key, tuple[float, ...]]
    sizes: Mapping[str, tuple[float, float]]
    kept: RoomSizes
    link: LinkCost
    session_us: float
    sync_us: float
    scale: Mapping[str, float] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(ROLES, 1.0)
    )
    client_us: float = 0.0
    clients_us: float = 0.0
    idle: Mapping[str, float] = dataclasses.field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))

    def price(self, key: Key, flows: Flows, candidates: float = 0.0) -> float:
        """Returns the CPU microseconds of these flows for one kind of message at one role, without
        the link."""
        if key not in self.factors:
            return 0.0
        features = list_features(key, flows, candidates)
        whole = sum(a * b for a, b in zip(self.factors[key], features, strict=True))
        return whole * self.scale[key[1]]

    def size(self, kind: str, flow: Flow) -> float:
        """Returns the bytes of messages of a kind."""
        message, row = self.sizes.get(kind, (0.0, 0.0))
        return message * flow.messages + row * flow.rows


def fit_costs(
    samples: Sequence[RoomSample], kept: RoomSizes, link: LinkCost, session_us: float,
    sync_us: float,
) -> ServiceCosts:  # fmt: skip
    """Returns the costs that explain the samples best. Those of publications and of routing are of
    the batches of objects alone."""
    keys = sorted({key for sample in samples for key in sample.cpu_us})
    kinds = sorted({name for sample in samples for name in sample.flows})
    factors = {}
    for key in keys:
        mine = [s for s in samples if key in s.cpu_us and key[0] in s.flows]
        if key in ((PUBLISH, DISPATCHER), (ROUTE, DISPATCHER), MATCHED, GATHERED):
            mine = [s for s in mine if s.objects]
        if mine:
            factors[key] = fit_factors(
                [list_features(key, s.flows, s.candidates) for s in mine],
                [s.cpu_us[key] for s in mine],
            )
    sizes = {}
    for kind in kinds:
        flows = [s.flows[kind] for s in samples if kind in s.flows and s.flows[kind].bytes]
        if flows:
            found = fit_factors([(f.messages, f.rows) for f in flows], [f.bytes for f in flows])
            sizes[kind] = found[0], found[1]
    return ServiceCosts(factors, sizes, kept, link, session_us, sync_us)
