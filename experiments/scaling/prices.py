"""What each thing that an actor handles takes, in microseconds, of the costs that were measured."""

from __future__ import annotations

from ps2stream.experiments.scaling.costs import ServiceCosts
from ps2stream.experiments.scaling.flows import RIDERS, Deployment, expect_hit
from ps2stream.experiments.scaling.kinds import DISPATCHER, MERGER, WORKER
from ps2stream.experiments.scaling.rooms import PUBLISH, ROUTE, Flow

Share = tuple[int, float, float]
"""The worker, copies and candidates of a share of a batch."""


class StepPrices:
    """Prices of the steps of a service, for publications of so many objects. way_us, bandwidth:
    of messages between hosts, in microseconds and bytes a microsecond."""

    def __init__(
        self, costs: ServiceCosts, deployment: Deployment, publication: int, way_us: float,
        bandwidth: float,
    ) -> None:  # fmt: skip
        self.costs, self._deployment, self._publication = costs, deployment, publication
        self._way_us, self._bandwidth = way_us, bandwidth

    def travel(self, kind: str, rows: float) -> float:
        """Returns how long a message is on its way."""
        size = self.costs.size(kind, Flow(1, rows, 0))
        return self._way_us + size / self._bandwidth

    def price_at(self, kind: str, role: str, rows: float) -> float:
        """Returns what a message takes at one end, with the link."""
        flows = {kind: Flow(1, rows, 0)}
        carried = 0 if kind in RIDERS else 1
        link = self.costs.link.price(carried, self.costs.size(kind, flows[kind]))
        return self.costs.price((kind, role), flows) + link

    def price_route(self, objects: int, shares: list[Share]) -> float:
        """Returns what a dispatcher takes to route a batch and to send its shares."""
        copies = sum(share[1] for share in shares)
        flows = {ROUTE: Flow(1, objects, 0), "RoutedObjects": Flow(len(shares), copies, 0)}
        size = self.costs.size("RoutedObjects", flows["RoutedObjects"])
        return (
            self.costs.price((ROUTE, DISPATCHER), flows)
            + self.costs.price(("RoutedObjects", DISPATCHER), flows)
            + self.costs.link.price(len(shares), size)
        )

    def price_match(self, copies: float, candidates: float, pairs: float) -> float:
        """Returns what a worker takes for a share and its answer."""
        flows = {"RoutedObjects": Flow(1, copies, 0)}
        size = self.costs.size("RoutedObjects", flows["RoutedObjects"])
        return (
            self.costs.price(("RoutedObjects", WORKER), flows, candidates)
            + self.costs.link.price(1, size)
            + self.price_at("MatchBatch", WORKER, pairs)
        )

    def price_release(self, messages: int, pairs: float) -> float:
        """Returns what a dispatcher takes to gather answers and send them to mergers."""
        flows = {"MatchRelease": Flow(messages, pairs, 0)}
        gathering = {"MatchBatch": Flow(0, 0, 0), **flows}
        size = self.costs.size("MatchRelease", flows["MatchRelease"])
        return (
            self.costs.price(("MatchBatch", DISPATCHER), gathering)
            + self.costs.price(("MatchRelease", DISPATCHER), flows)
            + self.costs.link.price(messages, size)
        )

    def price_merge(self, pairs: float) -> float:
        """Returns what a merger takes for a release, and to send what follows from it."""
        at = self._deployment
        streams = expect_hit(max(at.sessions / at.mergers, 1), pairs)
        return (
            self.price_at("MatchRelease", MERGER, pairs)
            + self.price_at("ReleasesKept", MERGER, 0)
            + self.price_at("StreamDelivery", MERGER, pairs)
            + self.price_at("StreamCredit", MERGER, 0)
            + max(streams - 1, 0) * self.costs.session_us
        )

    def price_delivery(self, pairs: float) -> float:
        """Returns what a dispatcher takes to relay a delivery and for the credit that follows."""
        return (
            self.price_at("StreamDelivery", DISPATCHER, pairs)
            + self.price_at("StreamCredit", DISPATCHER, 0)
            + self.costs.client_us
        )

    def price_publish(self) -> float:
        """Returns what a dispatcher takes for a publication."""
        flows = {PUBLISH: Flow(1, self._publication, 0)}
        return self.costs.price((PUBLISH, DISPATCHER), flows) + self.costs.client_us
