"""The sequencer's part in plan changes: requests, the transfer of queries, records that are due."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.addresses import ROLES, Address, Send, nothing
from ps2stream.protocol.frame import U8
from ps2stream.protocol.messages.plan import (
    PlanAction,
    PlanChangeReply,
    PlanChangeRequest,
    PostingCounts,
    TransferChunk,
    TransferDone,
    TransferRequest,
)
from ps2stream.protocol.messages.updates import AppliedReport
from ps2stream.protocol.ports import Store
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_changes import PlanState, is_equal_plan, step_of
from ps2stream.routing.plan_states import PlanStep
from ps2stream.sequencer.feed import packed
from ps2stream.sequencer.followers import FollowerProgress
from ps2stream.sequencer.migration import PlanMigration
from ps2stream.sequencer.pending_plan import PendingPlan, find_pending
from ps2stream.sequencer.registry import QueryRegistry

TRANSFER_ROWS = 4096
"""Rows of a chunk of a transfer. A worker matches nothing while it stores one, for some ms."""
KEPT_CHUNKS = 4
"""Chunks that are kept for other workers that gain the same, and request it a moment later."""


class PlanChangeDriver:
    """Handles all messages about plan changes. `plan` is the one of the service's start; without
    it, the service does not change its plan. `peers` gains the workers of a plan that is to follow;
    `commit` commits a record for its owner, a dispatcher, and returns what is to be sent; `store`
    holds the plan that waits for the next start."""

    def __init__(
        self,
        plan: RoutingPlan | None,
        peers: list[Address],
        followers: FollowerProgress,
        live: QueryRegistry,
        commit: Callable[[U8, int], list[Send]],
        store: Store,
    ) -> None:
        dispatchers = sum(peer.role == "dispatcher" for peer in peers)
        self._migration = None if plan is None else PlanMigration(plan, dispatchers)
        self._peers = peers
        self._followers = followers
        self._live = live
        self._commit = commit
        self._pending = PendingPlan(store)
        self._chunks: dict[tuple[int | bytes, ...], TransferChunk] = {}

    @property
    def strategy(self) -> PlanState:
        """The plan in force, and the one that is to follow it."""
        if self._migration is None:
            raise TypeError("this sequencer was made without a plan")
        return self._migration.strategy

    @property
    def moves(self) -> list[dict[str, int | str]]:
        """The plan changes that have ended."""
        return [] if self._migration is None else self._migration.moves

    @property
    def counters(self) -> dict[str, Any]:
        """Totals since the start, and the present state."""
        return {} if self._migration is None else self._migration.counters

    def run(self, workers: int) -> int:
        """Takes the number of workers that run now, or will at once; returns how many should run.
        A plan for more workers is refused until they run."""
        if self._migration is None:
            return workers
        self._migration.run(workers)
        return self._migration.wanted

    def count_dispatchers(self, dispatchers: int) -> None:
        """Takes the number of dispatchers that count from now on."""
        if self._migration is not None:
            self._migration.dispatchers = dispatchers

    def replay(self, record: U8, lsn: int) -> None:
        """Applies a record that the ledger had at the start."""
        if self._migration is not None:
            self._migration.apply(record, lsn)

    def start(self, plan: RoutingPlan | None) -> None:
        """Ends the replay. With `plan` the service starts under it, and a plan change that was
        under way is over, and so is the wait of a pending plan: it is this one, or was passed over
        for it."""
        migration = self._migration
        waits = bool(self._pending.version)
        if plan is not None and migration is not None and (migration.changed or waits):
            strategy = migration.strategy
            if waits or strategy.following is not None or not is_equal_plan(strategy.plan, plan):
                self._commit(PlanState(plan).record(), 0)
        self._add_plan_workers()

    def apply(self, record: U8, lsn: int) -> None:
        """Applies a record that was committed."""
        self.replay(record, lsn)
        if find_pending(record) is not None:
            self._pending.forget()
        self._add_plan_workers()

    def make_record(self) -> U8:
        """Returns the record of the plan in force; empty if the ledger has never changed it."""
        migration = self._migration
        if migration is None or not migration.changed:
            return nothing()
        return migration.record()

    def find_serving_plan(self, record: U8, lsn: int) -> str | None:
        """Returns the plan to serve after a restart, as JSON, if this record changes it."""
        steps = (PlanStep.APART, PlanStep.SWITCH, PlanStep.SET)
        if self._migration is None or step_of(record) not in steps:
            return None
        after = self._migration.strategy.after(record, lsn)
        plan = after.following if after.apart else after.serving
        return None if plan is None else json.dumps(plan.to_dict())

    def tick(self, now_ms: int) -> list[Send]:
        """Does periodic work, ten times a second. now_ms: Unix time."""
        if self._migration is not None:
            self._migration.tick(now_ms)
            if self._migration.strategy.following is None:
                self._chunks.clear()
        return self.take_due_step()

    def note_report(self, ack: AppliedReport) -> None:
        """Takes a dispatcher's watermark and its counters."""
        if self._migration is not None:
            counts = (ack.objects, ack.delayed, ack.stalled, ack.collapsed)
            self._migration.hear(ack.dispatcher, ack.lsn, counts)
            self._migration.mark(ack.dispatcher, ack.watermark)

    def note_postings(self, postings: PostingCounts) -> list[Send]:
        """Takes the postings that an actor counted at the end of a migration."""
        if self._migration is not None:
            self._migration.posted(postings)
        return self.take_due_step()

    def note_holding_worker(self, hot: TransferDone) -> list[Send]:
        """Notes that a worker holds all queries that it gains."""
        if self._migration is not None:
            self._migration.hot(hot.worker, hot.begun, hot.queries, hot.bytes)
        return self.take_due_step()

    def take_due_step(self) -> list[Send]:
        """Takes the next step of a plan change if it is due; returns what is to be sent."""
        due = None if self._migration is None else self._migration.due()
        if due is None:
            return []
        try:
            return self._commit(due, self._followers.first)
        except StoreFailed:
            raise
        except Unavailable:
            return []  # it is still due at the next tick

    def answer_transfer(self, request: TransferRequest, lsn: int) -> list[Send]:
        """Answers a worker's request for a chunk of the queries that it gains; lsn: the last of the
        ledger. The workers of a group all request the same, which is read once unless queries
        change meanwhile."""
        after, begun, box, term = request.after, request.begun, request.box, request.term
        state = lsn, self._followers.watermark  # the queries are the same while these are
        key = *state, begun, after, box.tobytes(), term.tobytes()
        if (chunk := self._chunks.get(key)) is None:
            rows, last = self._live.load(after, begun, box, term, TRANSFER_ROWS)
            chunk = TransferChunk(begun, after, last, packed(rows))
            while len(self._chunks) >= KEPT_CHUNKS:
                del self._chunks[next(iter(self._chunks))]
            self._chunks[key] = chunk
        return [Send(Address("worker", request.worker), chunk)]

    def answer_request(self, request: PlanChangeRequest, find_end: Callable[[], int]) -> list[Send]:
        """Changes the plan as requested, if possible, and reports the plan and its changes.
        `find_end` returns the last LSN of the ledger."""
        migration = self._migration
        problem, out, wait = "", [], 0
        if migration is None:
            problem = "this service does not support plan changes"
        elif request.ask != PlanAction.TELL:
            try:
                record, problem = self._take_request(migration, request)
                if record is not None:
                    owns = ROLES[request.role] == "dispatcher"
                    out = self._commit(record, request.index if owns else self._followers.first)
            except StoreFailed:
                raise
            except Unavailable as error:
                problem, wait = str(error), 1
        record, described, old = nothing(), {}, 0
        if migration is not None:
            record = migration.record()
            described = migration.describe() | {"pending_version": self._pending.version}
            old = self._live.count_up_to(migration.strategy.apart)
        why, state = (np.frombuffer(t.encode(), np.uint8) for t in (problem, json.dumps(described)))
        reply = PlanChangeReply(
            request.seq, find_end(), wait, len(self._live), old, why, record, state
        )
        return [*out, Send(Address(ROLES[request.role], request.index), reply)]

    def _take_request(
        self, migration: PlanMigration, request: PlanChangeRequest
    ) -> tuple[U8 | None, str]:
        """Returns (the record that does what is requested, or None; why not). Raises
        Unavailable."""
        if request.ask == PlanAction.REGRID:
            return None, self._pending.request(request.plan, migration.strategy)
        record, problem = _make_requested_record(migration, request)
        ends = request.ask == PlanAction.MOVE and not len(request.plan)
        if ends and record is None and not problem and ROLES[request.role] == "dispatcher":
            self._pending.withdraw()  # nothing is under way that could be meant
        return record, problem

    def _add_plan_workers(self) -> None:
        """Makes the workers of a plan that is to follow peers, too."""
        if self._migration is not None:
            known = sum(peer.role == "worker" for peer in self._peers)
            more = range(known, self._migration.strategy.workers)
            self._peers += [Address("worker", i) for i in more]


def _make_requested_record(
    migration: PlanMigration, request: PlanChangeRequest
) -> tuple[U8 | None, str]:
    """Returns (the record that does what is requested, or None; why not). Raises Unavailable."""
    if request.ask == PlanAction.UNITE:
        return migration.unite()
    if len(request.plan):
        return migration.begin(request.plan, apart=request.ask == PlanAction.COEXIST)
    return migration.abort()
