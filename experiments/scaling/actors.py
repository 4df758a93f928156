"""The actors of a simulated service: what each handles, one thing after the other, and what follows
from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ps2stream.dispatcher.intake import EAGER, ROWS
from ps2stream.dispatcher.open_batches import LATE_S
from ps2stream.experiments.scaling.flows import GROUPED, expect_hit
from ps2stream.experiments.scaling.kinds import DISPATCHER, MERGER
from ps2stream.experiments.scaling.prices import Share

if TYPE_CHECKING:
    from ps2stream.experiments.scaling.timeline import Timeline

IN_FLIGHT = 16
"""Open batches of a dispatcher, as the benchmarks set max_in_flight."""
Action = Callable[[], None]


class BusyActor:
    """Handles one thing after the other, on a core when one is free."""

    def __init__(self, line: Timeline, role: str, group: int = 1) -> None:
        self.line, self.role, self._group = line, role, group
        self._inbox: deque[tuple[float, Action]] = deque()
        self._is_busy = False

    def add(self, cost_us: float, action: Action) -> None:
        """Adds something to do that takes so long, and what follows from it."""
        self._inbox.append((cost_us, action))
        if not self._is_busy:
            self._is_busy = True
            self.line.want_core(self)

    def run(self) -> None:
        """Does what is next, on a core."""
        cost = 0.0
        actions: list[Action] = []
        for _ in range(min(self._group, len(self._inbox))):
            took, action = self._inbox.popleft()
            cost += took
            actions.append(action)
        self.line.cpu_us[self.role] += cost
        self.line.at(self.line.now + cost, self._finish, actions)

    def _finish(self, actions: list[Action]) -> None:
        for action in actions:
            action()
        self.line.free_core()
        if self._inbox:
            self.line.want_core(self)
        else:
            self._is_busy = False


class BatchUnderWay:
    """A batch under way."""

    def __init__(self, publications: list[float], objects: int, waits: int, dead: int) -> None:
        self.publications, self.objects = publications, objects
        self.answers, self.dead = waits, dead
        self.gathered = 0.0  # pairs that wait for the next release
        self.first_answer: float | None = None
        self.unkept = 0  # releases
        self.is_closed = False


class MergerModel:
    """A merger with its log: what it would send waits for a sync."""

    def __init__(self, line: Timeline) -> None:
        self.line = line
        self.actor = BusyActor(line, MERGER, GROUPED)
        self._unsynced: list[Action] = []
        self._is_syncing = False

    def keep(self, then: Action) -> None:
        """Has `then` done once all so far is synced."""
        self._unsynced.append(then)
        self._begin()

    def _begin(self) -> None:
        if not self._is_syncing and self._unsynced:
            self._is_syncing = True
            waiting, self._unsynced = self._unsynced, []
            self.line.at(self.line.now + self.line.prices.costs.sync_us, self._end, waiting)

    def _end(self, waiting: list[Action]) -> None:
        for then in waiting:
            then()
        self._is_syncing = False
        self._begin()


class DispatcherModel:
    """A dispatcher: its intake, its open batches, and their answers."""

    def __init__(self, line: Timeline, home: int) -> None:
        self.line, self.home = line, home
        self.actor = BusyActor(line, DISPATCHER)
        self._waiting: deque[float] = deque()
        self._open = 0

    def publish(self) -> None:
        """Takes a publication, which came now."""
        came = self.line.now
        self.actor.add(self.line.publish_us, lambda: self._admit(came))

    def _admit(self, came: float) -> None:
        self._waiting.append(came)
        self._route()

    def _answer(self, batch: BatchUnderWay) -> None:
        """Answers the publications of a batch, after which their client sends as many again."""
        self.line.accepted += batch.objects
        for _ in batch.publications:
            self.line.at(self.line.now + self.line.timing.way_us, self.line.arrive, self)

    def _route(self) -> None:
        size = self.line.timing.publication
        while self._waiting and self._open < IN_FLIGHT:
            if self._open >= EAGER and len(self._waiting) * size < ROWS:
                return
            count = min(len(self._waiting), -(-ROWS // size))
            publications = [self._waiting.popleft() for _ in range(count)]
            shares = self.line.draw_shares(count * size, self.home)
            dead = sum(share[0] in self.line.timing.dead for share in shares)
            batch = BatchUnderWay(publications, count * size, len(shares), dead)
            self._open += 1
            self.line.batches += 1
            cost = self.line.prices.price_route(batch.objects, shares)
            self.actor.add(cost, partial(self._send, batch, shares))

    def _send(self, batch: BatchUnderWay, shares: list[Share]) -> None:
        line = self.line
        if not line.timing.objects:  # once the log is synced
            line.at(line.now + line.prices.costs.sync_us, self._answer, batch)
        for worker, copies, candidates in shares:
            pairs = line.pairs_per_candidate * candidates
            line.post("RoutedObjects", copies)
            if worker in line.timing.dead:
                continue
            line.at(
                line.now + line.prices.travel("RoutedObjects", copies),
                line.workers[worker].add,
                line.prices.price_match(copies, candidates, pairs),
                partial(self._receive, batch, pairs),
            )
        if len(shares) == batch.dead:
            self._close(batch)

    def _receive(self, batch: BatchUnderWay, pairs: float) -> None:
        line = self.line
        line.post("MatchBatch", pairs)
        cost = line.prices.price_at("MatchBatch", DISPATCHER, pairs)
        line.at(line.now + line.prices.travel("MatchBatch", pairs), self.actor.add, cost,
                lambda: self._gather(batch, pairs))  # fmt: skip

    def _gather(self, batch: BatchUnderWay, pairs: float) -> None:
        batch.answers -= 1
        batch.gathered += pairs
        if not batch.answers:
            self._release(batch)
        elif batch.first_answer is None and pairs:
            batch.first_answer = self.line.now
            self.line.at(self.line.now + LATE_S * 1e6, self._release_late, batch)

    def _release_late(self, batch: BatchUnderWay) -> None:
        batch.first_answer = None
        if batch.answers and batch.gathered:
            self._release(batch)

    def _release(self, batch: BatchUnderWay) -> None:
        line, pairs = self.line, batch.gathered
        batch.gathered = 0.0
        at = line.deployment
        hit = max(round(expect_hit(at.mergers, min(pairs, at.sessions))), 1) if pairs else 0
        batch.unkept += hit
        line.releases += hit
        line.hits += hit if not batch.answers else 0
        cost = line.prices.price_release(hit, pairs)
        mergers = line.random.sample(range(at.mergers), min(hit, at.mergers))
        self.actor.add(cost, lambda: self._send_releases(batch, mergers, pairs))

    def _send_releases(self, batch: BatchUnderWay, mergers: list[int], pairs: float) -> None:
        line = self.line
        if not mergers:
            self._close(batch)
            return
        share = pairs / len(mergers)
        for merger in mergers:
            line.post("MatchRelease", share)
            at = line.mergers[merger]
            line.at(
                line.now + line.prices.travel("MatchRelease", share), at.actor.add,
                line.prices.price_merge(share), partial(at.keep, partial(self._kept, batch, share)),
            )  # fmt: skip

    def _kept(self, batch: BatchUnderWay, pairs: float) -> None:
        line = self.line
        line.post("ReleasesKept", 0)
        line.post("StreamDelivery", pairs)
        kept = line.prices.price_at("ReleasesKept", DISPATCHER, 0)
        line.at(line.now + line.prices.travel("ReleasesKept", 0), self.actor.add, kept,
                lambda: self._note_kept(batch))  # fmt: skip
        line.at(line.now + line.prices.travel("StreamDelivery", pairs), self.actor.add,
                line.prices.price_delivery(pairs), lambda: self._deliver(batch))  # fmt: skip

    def _note_kept(self, batch: BatchUnderWay) -> None:
        batch.unkept -= 1
        self._close(batch)

    def _close(self, batch: BatchUnderWay) -> None:
        """Ends a batch; one that only dead workers keep open does not count (silence.py)."""
        if batch.answers == batch.dead and not batch.unkept and not batch.is_closed:
            batch.is_closed = True
            self._open -= 1
            self._route()

    def _deliver(self, batch: BatchUnderWay) -> None:
        now = self.line.now
        self.line.latency += [(now - came) / 1e3 for came in batch.publications]
