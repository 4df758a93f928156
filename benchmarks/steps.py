"""`ps2stream bench steps`: where the CPU time of a batch goes, from its bytes to its deliveries.

The machines are those of the service, wired by hand (machine_chain.py), with requests as the
client encodes them. What gRPC, sockets, threads and timers cost is not in the steps.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable
from statistics import mean, median
from typing import Any, cast

import numpy as np
import pyarrow as pa

from ps2stream.benchmarks.kept import open_fresh_place
from ps2stream.benchmarks.machine_chain import MachineChain
from ps2stream.benchmarks.publisher import (
    LOAD_ROWS,
    NEVER,
    SESSION,
    PublisherJob,
    PublishInterval,
    make_insert_request,
    make_publish_request,
)
from ps2stream.benchmarks.service_access import ServiceAccess
from ps2stream.benchmarks.step_clock import StepClock, StepCost, StepWatch, watch_all
from ps2stream.benchmarks.subscriber import CREDIT_BATCHES, CREDIT_BYTES, DeliveryReceipt
from ps2stream.benchmarks.verified import verified
from ps2stream.benchmarks.workload import Workload, make
from ps2stream.cluster.dispatcher_edge import DispatcherEdge
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm import warm
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.router import RouterMachine
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.limits import REQUEST_BYTES
from ps2stream.merger.dedup import DedupWindow
from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.sessions import MergerSession
from ps2stream.protocol.frame import I64, column_to_strings
from ps2stream.routing.plan import built_in_plan
from ps2stream.security import PortSecurity, TenantQuota
from ps2stream.service import query_columns
from ps2stream.service.admission import PublishRates
from ps2stream.service.calls import ID_ROWS, QUERY_ROWS, HeldBack, complete, parse, parse_batch
from ps2stream.service.gate import PublishGate
from ps2stream.service.inbox import StreamInboxes
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.publishing import TenantPublications
from ps2stream.service.tenant_gateway import TenantGateway
from ps2stream.v1 import delivery_pb2, pubsub_pb2
from ps2stream.workers.load import LoadCounter

UPDATES = 512  # of a batch: as many deletes as inserts
COUNTED = 5  # batches of which the calls are counted
SAMPLED = 100  # objects that are compared with brute force
WARM_OBJECTS = 1 << 16  # from there on a worker counts its load by samples, as when it is busy
OBJECTS_PER_UPDATE = 5  # of `cpu_us_per_tuple`, as in the pipeline's benchmark
WATCHED: list[StepWatch] = [
    (Analyzer, "analyse", "analyse"),
    (DispatcherEdge, "publish", "intake"),
    (DispatcherEdge, "update", "intake"),
    (ObjectLog, "append", "append_to_object_log"),
    (RouterMachine, "publish", "route"),
    (LoadCounter, "objects", "count_load"),
    (DedupWindow, "find_new", "dedupe"),
    (MatchJournal, "append", "append_to_match_log"),
    (MergerSession, "send", "encode_deliveries"),
]


def _await_settled(answer: Awaitable[bytes]) -> bytes:
    """Returns an answer for which nothing has to be waited any more."""
    try:
        next(answer.__await__())
    except StopIteration as ended:
        data: bytes = ended.value
        return data
    raise RuntimeError("the publication is not routed and synced yet")


class IdleContext:
    """The context of a call whose client waits without a deadline."""

    def time_remaining(self) -> float | None:
        return None

    def peer(self) -> str:
        return "steps"

    def is_active(self) -> bool:
        return True


class StepwiseService:
    """A service of hand-wired machines with one subscriber, under the objects and updates of a
    workload. What its client does belongs to no step."""

    def __init__(self, load: Workload, chain: MachineChain, clock: StepClock, batch: int) -> None:
        self._chain, self._clock = chain, clock
        self._gateway = TenantGateway(chain.edge, "")
        self._publications = TenantPublications(
            self._gateway,
            PublishGate(PortSecurity().intake_bytes),
            PublishRates(TenantQuota(), lambda: 1, chain.edge.clock_ms()),
        )
        self._context = cast(OpenCall, IdleContext())
        interests = load.interests
        self._job = PublisherJob(
            ServiceAccess(""), load.posts, load.expressions(), interests.rect, interests.death,
            load.start, batch, "durable",
        )  # fmt: skip
        self._requests = self._encode_posts()
        self._by_death = np.argsort(interests.death, kind="stable")
        n = len(interests.death)
        self._born, self._died = np.zeros(n, np.int64), np.full(n, NEVER)
        self._inserted = 0
        self._answers: list[tuple[int, int, int]] = []  # first offset, LSN and first post
        self._received: list[tuple[I64, I64, I64]] = []  # deliveries: offsets, pairs as columns
        self._inbox = StreamInboxes().open()
        attaching = chain.edge.attach(SESSION, 0, CREDIT_BATCHES, CREDIT_BYTES, self._put_delivery)
        chain.run()
        self._stream = attaching.result()
        while self._inserted < load.start:
            self._insert_queries(min(LOAD_ROWS, load.start - self._inserted))

    @property
    def matches(self) -> int:
        """The pairs that were delivered."""
        return sum(len(handles) for _, _, handles in self._received)

    def publish(self) -> None:
        """Publishes the next batch, and takes its deliveries."""
        number = len(self._answers) % len(self._requests)
        with self._clock.step("read_and_check"):
            begun = self._publications.begin(self._requests[number], self._context)
        assert not isinstance(begun, HeldBack)
        self._chain.run()
        with self._clock.step("answer"):
            data = _await_settled(complete(begun))
        answer = pubsub_pb2.PublishStreamResponse.FromString(data)
        assert answer.accepted == self._job.batch
        self._answers.append((answer.first_offset, answer.lsn, number * self._job.batch))
        self._take_deliveries()

    def update(self) -> None:
        """Inserts queries, and deletes as many of those that are due first."""
        self._insert_queries(UPDATES // 2)
        live = (self._born > 0) & (self._died == NEVER)
        rows = self._by_death[live[self._by_death]][: UPDATES // 2]
        ids = [f"q{i}" for i in rows.tolist()]
        data = pubsub_pb2.DeleteQueriesRequest(ids=ids).SerializeToString()
        with self._clock.step("read_and_compile"):
            request = parse_batch(pubsub_pb2.DeleteQueriesRequest, data, ID_ROWS)
            deletes = query_columns.deletes(request.ids)
            deciding = self._gateway.update(deletes, [""] * len(ids), [""] * len(ids))
        self._chain.run()
        with self._clock.step("answer"):
            lsns = deciding.result().lsn.tolist()
            pubsub_pb2.DeleteQueriesResponse(lsns=lsns).SerializeToString()
        self._died[rows] = lsns

    def tick(self) -> None:
        """Does what the machines do ten times a second."""
        self._chain.tick()

    def verify(self, load: Workload) -> dict[str, int]:
        """Compares the deliveries of a sample of all objects with brute force."""
        size = self._job.batch
        published = len(self._answers) * size
        chosen = np.random.default_rng(load.seed).choice(
            published, min(SAMPLED, published), replace=False
        )
        of, place = np.sort(chosen) // size, np.sort(chosen) % size
        first, lsn, row = np.array(self._answers, np.int64).reshape(-1, 3)[of].T
        interval = PublishInterval(
            0.0, size=1, offsets=first + place, lsns=lsn, rows=row + place, born=self._born,
            died=self._died,
        )  # fmt: skip
        receipt = DeliveryReceipt()
        for of_objects, pair_objects, handles in self._received:
            offset = of_objects[pair_objects]
            for i in np.flatnonzero(np.isin(offset, interval.offsets)).tolist():
                receipt.sample.setdefault(int(offset[i]), []).append(int(handles[i]))
        return verified(load, [interval], [receipt], 1)

    def _encode_posts(self) -> list[bytes]:
        """Returns the requests of all posts, which are published over and over."""
        posts, size = self._job.posts, self._job.batch
        texts = pa.array(column_to_strings(posts.text_off, posts.text))
        return [
            make_publish_request(self._job, texts, first, size).SerializeToString()
            for first in range(0, len(posts.lon) - size + 1, size)
        ]

    def _insert_queries(self, count: int) -> None:
        rows = range(self._inserted, self._inserted + count)
        data = make_insert_request(self._job, rows).SerializeToString()
        with self._clock.step("read_and_compile"):
            request = parse_batch(pubsub_pb2.InsertQueriesRequest, data, QUERY_ROWS)
            found = query_columns.read_queries(request.batch, self._gateway)
            deciding = self._gateway.update(found.rows, found.sessions, [""] * count)
        self._chain.run()
        with self._clock.step("answer"):
            lsns = deciding.result().lsn.tolist()
            pubsub_pb2.InsertQueriesResponse(lsns=lsns).SerializeToString()
        self._born[rows.start : rows.stop] = lsns
        self._inserted = rows.stop

    def _put_delivery(self, data: bytes | Exception) -> bool:
        if isinstance(data, Exception):
            raise data
        return self._inbox.put(data)

    def _take_deliveries(self) -> None:
        """Takes what waits for the stream, and grants credits for it."""
        while True:
            with self._clock.step("relay"):
                data = self._inbox.take()
            if data is None:
                return
            assert isinstance(data, bytes)
            batch = delivery_pb2.DeliverResponse.FromString(data).batch
            columns = batch.object_offsets, batch.pair_objects, batch.pair_handles
            self._received.append(cast(Any, tuple(np.array(c, np.int64) for c in columns)))
            credit = delivery_pb2.Credit(batches=1, bytes=len(data), ack=batch.session_seq)
            granted = delivery_pb2.DeliverRequest(credit=credit).SerializeToString()
            with self._clock.step("credit"):
                request = parse(
                    delivery_pb2.DeliverRequest, granted, REQUEST_BYTES, "request_bytes"
                )
                self._stream.credit(1, request.credit.bytes, request.credit.ack)
            self._chain.run()


def run_steps(
    queries: int = 1_000_000,
    group: str = "q1",
    workload: str = "synthetic",
    mo: float | None = None,
    seed: int = 1,
    batch: int = 1024,
    batches: int = 50,
    directory: str | None = None,
    warm_objects: int = WARM_OBJECTS,
) -> dict[str, Any]:
    """Returns the CPU time and the calls of each step, JSON-able: medians of `batches` batches, of
    objects and of updates in turn. `directory` holds ledger and logs; `warm_objects` are published
    before."""
    analysis = Analysis(salt=seed)
    analyzer = Analyzer(analysis)
    warming = -(-warm_objects // batch)
    updates = (warming + batches + COUNTED) * UPDATES // 2
    load = make(workload, group, queries, updates, batch * 64, seed, analyzer)
    if mo is not None:
        from ps2stream.benchmarks.tuning import tune_workload

        terms = analyzer.analyse(load.posts.text_off, load.posts.text)
        load, _ = tune_workload(load, mo, analyzer, terms)
    places = load.posts.lon, load.posts.lat
    topology = Topology(built_in_plan(analysis, load.grid, 1, places, load.counts))
    warm(topology)
    clock = StepClock()
    with open_fresh_place(directory, None) as place:
        chain = MachineChain(topology, place, clock)
        watches = [*WATCHED, (type(chain.store), "commit", "commit_to_ledger")]
        with watch_all(clock, watches):
            service = StepwiseService(load, chain, clock, batch)
            _run_batches(service, clock, warming)
            before = service.matches
            timed = _run_batches(service, clock, batches)
            matches = service.matches - before
            with clock.count_calls():
                counted = _run_batches(service, clock, COUNTED)
        checked = service.verify(load)
        chain.close()
    objects, changes = (
        _summarise_steps(size, unit, *(found[i] for found in (timed, counted)))
        for i, (size, unit) in enumerate(((batch, "object"), (UPDATES, "update")))
    )
    each = objects["cpu_us_per_object"], changes["cpu_us_per_update"]
    return {
        "benchmark": "steps",
        "settings": {
            "queries": queries,
            "group": group,
            "workload": workload,
            "mo": mo,
            "seed": seed,
            "batch": batch,
            "batches": batches,
            "cores": os.cpu_count(),
        },
        "matches_per_object": matches / (batches * batch),
        "objects": objects,
        "updates": changes,
        "cpu_us_per_tuple": (OBJECTS_PER_UPDATE * each[0] + each[1]) / (OBJECTS_PER_UPDATE + 1),
        "verified": checked,
    }


Costs = list[dict[str, StepCost]]


def _run_batches(service: StepwiseService, clock: StepClock, count: int) -> tuple[Costs, Costs]:
    """Handles batches of objects and of updates in turn; returns the costs of each."""
    objects, updates = Costs(), Costs()
    for _ in range(count):
        clock.take()
        service.publish()
        objects.append(clock.take())
        service.update()
        updates.append(clock.take())
        service.tick()
    return objects, updates


def _summarise_steps(size: int, unit: str, timed: Costs, counted: Costs) -> dict[str, Any]:
    """Returns the medians of the steps of batches of `size`, in the order of the steps."""
    names = dict.fromkeys(name for costs in timed for name in costs)
    nothing = StepCost(0, 0)
    spent = {name: [costs.get(name, nothing).cpu_ns for costs in timed] for name in names}
    calls = {name: [costs.get(name, nothing).calls for costs in counted] for name in names}
    per_row = f"cpu_us_per_{unit}"
    steps = {
        name: {per_row: _convert_to_us(median(spent[name]), size), "calls": median(calls[name])}
        for name in names
    }
    whole = [sum(cost.cpu_ns for cost in costs.values()) for costs in timed]
    return {
        "steps": steps,
        per_row: sum(step[per_row] for step in steps.values()),
        f"mean_{per_row}": _convert_to_us(mean(whole), size),
        "calls": sum(step["calls"] for step in steps.values()),
    }


def _convert_to_us(cpu_ns: float, rows: int) -> float:
    return cpu_ns / 1e3 / rows
