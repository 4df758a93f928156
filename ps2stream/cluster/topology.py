"""The numbers of actors of each role, and the construction of their machines.

One place builds machines, so that Ray actors, the in-process runtime and the
tests' scheduler run the same ones. A machine's module is imported where one is made, because an
actor's process starts sooner without those of the other roles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ps2stream.archive.layout import ArchiveLimits
from ps2stream.controller.policy import ControllerPolicy
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.observability.process import count_cpu_us, count_us
from ps2stream.protocol.addresses import CONTROLLER, SEQUENCER, Address
from ps2stream.protocol.ports import Log, Store
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_follower import PlanFollower
from ps2stream.routing.tags import QueryTagger
from ps2stream.security import NO_QUOTAS, QuotaTable
from ps2stream.space.grid import Grid

if TYPE_CHECKING:
    from ps2stream.controller.machine import ControllerMachine
    from ps2stream.dispatcher.machine import DispatcherMachine
    from ps2stream.dispatcher.object_log import ObjectLog
    from ps2stream.dispatcher.reservoir import ObjectReservoir
    from ps2stream.dispatcher.router import RouterMachine
    from ps2stream.merger.machine import MergerMachine
    from ps2stream.multicast.capping import SheddingRank
    from ps2stream.observability.meter import StageMeter
    from ps2stream.sequencer.machine import SequencerMachine
    from ps2stream.workers.index import Index, Parts, SavedIndex
    from ps2stream.workers.indexes import IndexName
    from ps2stream.workers.machine import WorkerMachine


@dataclasses.dataclass(frozen=True)
class Topology:
    """A plan and the number of actors that carry it out."""

    plan: RoutingPlan
    dispatchers: int = 1
    mergers: int = 1
    max_in_flight: int = 64
    session_quota: int = 4 << 20
    retention_bytes: int = 4 << 30
    retention_ms: int = 24 * 3_600_000
    sample_objects: int = 0
    valid_objects_bytes: int = 64 << 20
    archive: ArchiveLimits | None = None
    shed: SheddingRank | None = None
    quotas: QuotaTable = NO_QUOTAS
    policy: ControllerPolicy = dataclasses.field(default_factory=ControllerPolicy)
    index: IndexName = "gi2-radix"

    def __reduce__(self) -> tuple[object, ...]:
        # A plan's maps are read-only views, which do not pickle; its dictionary does.
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return _rebuild_topology, (values | {"plan": self.plan.to_dict()}, self.plan.analysis)

    @property
    def workers(self) -> int:
        """The number of workers, which the plan determines."""
        return self.plan.workers

    def addresses(self) -> list[Address]:
        """Returns the addresses of all actors, receivers before senders."""
        return [
            *(Address("merger", i) for i in range(self.mergers)),
            *(Address("worker", i) for i in range(self.workers)),
            CONTROLLER,
            SEQUENCER,
            *(Address("dispatcher", i) for i in range(self.dispatchers)),
        ]

    def analyzer(self) -> Analyzer:
        """Returns the text analysis that the plan records."""
        return Analyzer(self.plan.analysis)

    def frequencies(self, analyzer: Analyzer) -> Frequencies:
        """Returns the term statistics by which posting terms are chosen."""
        return Frequencies.of(self.plan.frequencies, analyzer)

    def reservoir(self, index: int) -> ObjectReservoir:
        from ps2stream.dispatcher.reservoir import ObjectReservoir

        return ObjectReservoir(self.sample_objects, seed=index)

    def dispatcher(self, index: int, epoch: int, log: Log, meter: StageMeter) -> DispatcherMachine:
        """Returns the machine of a dispatcher, with what its log holds."""
        from ps2stream.cluster.archived_log import ArchivedLog
        from ps2stream.dispatcher.machine import DispatcherMachine
        from ps2stream.dispatcher.object_log import ObjectLog
        from ps2stream.dispatcher.retro import RetroMeans

        objects, analyzer = ObjectLog(log, index), self.analyzer()
        if isinstance(log, ArchivedLog):
            objects.settle = log.settle
        router = self.router(index, analyzer, epoch, objects)
        limit = self.valid_objects_bytes
        retro = RetroMeans(analyzer, self.index_factory(), self.plan.grid, limit)
        return DispatcherMachine(router, objects, self.reservoir(index), meter, retro)

    def router(
        self, index: int, analyzer: Analyzer, epoch: int, objects: ObjectLog
    ) -> RouterMachine:
        from ps2stream.dispatcher.object_log import analyse_again
        from ps2stream.dispatcher.router import RouterMachine

        return RouterMachine(
            index=index,
            dispatchers=self.dispatchers,
            mergers=self.mergers,
            h1=self.plan.compile(analyzer),
            grid=self.plan.grid,
            max_in_flight=self.max_in_flight,
            route=self.plan.route,
            epoch=epoch,
            replay=[analyse_again(record, analyzer) for record in objects.recover()],
            offset=objects.offset,
            strategist=PlanFollower(self.plan, analyzer),
            analyzer=analyzer,
            retro_done=objects.validity.done,
            shed=self.shed,
        )

    def worker(self, index: int, saved: SavedIndex | None = None) -> WorkerMachine:
        from ps2stream.workers.machine import WorkerMachine

        analyzer = self.analyzer()
        tagger = QueryTagger(self.plan.compile(analyzer), self.plan.grid)
        strategist = PlanFollower(self.plan, analyzer)
        return WorkerMachine(
            index=index,
            dispatchers=self.dispatchers,
            mergers=self.mergers,
            tagger=tagger,
            route=self.plan.route,
            store=self.new_index,
            saved=saved,
            strategist=strategist,
            clock_us=self.clock_us,
            cpu_us=self.cpu_us,
        )

    @property
    def clock_us(self) -> Callable[[], int]:
        """The clock by which a worker times its matching: microseconds since whenever."""
        return count_us

    @property
    def cpu_us(self) -> Callable[[], int]:
        """The clock of the processor time of a worker's matching, in microseconds."""
        return count_cpu_us

    def merger(self, index: int, log: Log) -> MergerMachine:
        from ps2stream.merger.machine import MergerMachine

        return MergerMachine(
            index=index,
            dispatchers=self.dispatchers,
            mergers=self.mergers,
            log=log,
            session_quota_bytes=self.session_quota,
            retention_bytes=self.retention_bytes,
            retention_ms=self.retention_ms,
        )

    def controller(self, epoch: int) -> ControllerMachine:
        from ps2stream.controller.machine import ControllerMachine

        return ControllerMachine(self.plan, self.policy, epoch, self.dispatchers)

    def index_factory(self) -> Callable[[Grid], Index]:
        """Returns the maker of empty indexes of a grid; its modules are imported now."""
        from ps2stream.workers.indexes import INDEXES

        return INDEXES[self.index]

    def new_index(self, grid: Grid, parts: Parts | None = None) -> Index:
        """Returns an index for a worker's queries."""
        from ps2stream.workers.indexes import INDEXES

        return INDEXES[self.index](grid, parts)

    @property
    def snapshot_format(self) -> int:
        """The version of what snapshots of a worker's index hold."""
        from ps2stream.workers.indexes import SNAPSHOT_FORMATS

        return SNAPSHOT_FORMATS[self.index]

    def sequencer(self, store: Store, epoch: int, restarts: bool = False) -> SequencerMachine:
        """Returns the sequencer's machine; `restarts`: the whole service is starting."""
        from ps2stream.sequencer.machine import SequencerMachine

        others = ("sequencer", "controller")  # which take no part in the order
        peers = [peer for peer in self.addresses() if peer.role not in others]
        return SequencerMachine(
            peers, store, epoch, quotas=self.quotas, plan=self.plan, restarts=restarts,
            mergers=self.mergers, dispatchers=self.dispatchers,
        )  # fmt: skip


def _rebuild_topology(values: dict[str, Any], analysis: Analysis) -> Topology:
    return Topology(**values | {"plan": RoutingPlan.from_dict(values["plan"], analysis)})
