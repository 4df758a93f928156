"""The sequencer: the one order of all query updates (contract.md 3).

The machine decides about each row of the dispatchers' requests (decide.py), commits the accepted
rows as one group, and only then answers and sends them to the dispatchers. `LedgerTip.visible`
rises once every live dispatcher has acknowledged them. An actor that lost something requests it
again, and is answered from the state or from the ledger (docs/decisions/0006).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.addresses import ROLES, Address, Role, Send, nothing
from ps2stream.protocol.frame import U8, Frame
from ps2stream.protocol.messages.handover import DispatchersRequest, MergersRequest, SessionsHeld
from ps2stream.protocol.messages.plan import (
    PlanChangeRequest,
    PostingCounts,
    TransferDone,
    TransferRequest,
)
from ps2stream.protocol.messages.publications import DispatcherEmptied, WindowsHeld
from ps2stream.protocol.messages.sessions import SessionRequest
from ps2stream.protocol.messages.updates import (
    AppliedReport,
    LedgerBatch,
    LedgerFetch,
    LookupRequest,
    NamesKept,
    UpdateDecision,
    UpdateRequest,
    UpdateStatus,
)
from ps2stream.protocol.ports import LedgerChange, LogReached, SettledAnswer, Store
from ps2stream.protocol.rows import QueryRows, UpdateKind, no_queries
from ps2stream.protocol.session_map import SessionMaps
from ps2stream.protocol.tokens import TokensRequest
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_changes import PlanState
from ps2stream.security import NO_QUOTAS, QuotaTable
from ps2stream.sequencer.columns import StringColumn
from ps2stream.sequencer.committed import CommittedBatch, CommittedDecision
from ps2stream.sequencer.decide import UpdateVerdict, decide
from ps2stream.sequencer.dispatcher_growth import DispatcherGrowth
from ps2stream.sequencer.feed import FetchAnswers, find_left_out, packed
from ps2stream.sequencer.followers import FollowerProgress
from ps2stream.sequencer.log_compaction import LogCompaction, leave_orphans_out
from ps2stream.sequencer.log_progress import note_log_reached
from ps2stream.sequencer.pending_plan import find_pending
from ps2stream.sequencer.plan_changes import PlanChangeDriver
from ps2stream.sequencer.query_ends import QueryEnds
from ps2stream.sequencer.registry import QueryRegistry, encode
from ps2stream.sequencer.remembered import RememberedAnswers, RememberedUpdates, RequestKey
from ps2stream.sequencer.session_moves import SessionMoves, describe_change
from ps2stream.sequencer.sessions import SessionRegistry
from ps2stream.sequencer.taken_requests import take_requests
from ps2stream.sequencer.tips import TipAnnouncer
from ps2stream.sequencer.token_table import TokenTable
from ps2stream.sequencer.update_totals import UpdateTotals

ENDED_ROWS = 4096
"""The queries that end in one commit, at most; there is one a tick."""


class SequencerMachine:
    """The machine that owns the order, in its incarnation `epoch`. `peers` is everyone but itself;
    `store` holds what was committed; `recent` bounds the updates that are remembered by request id.
    `plan` is the one of the service's start, from which the ledger's plan changes follow;
    `restarts`: the service starts now; `mergers`, `dispatchers`: how many there are at first."""

    def __init__(
        self,
        peers: Sequence[Address],
        store: Store,
        epoch: int = 0,
        recent: int = 65_536,
        quotas: QuotaTable = NO_QUOTAS,
        plan: RoutingPlan | None = None,
        restarts: bool = False,
        mergers: int = 1,
        dispatchers: int | None = None,
    ) -> None:
        self._store = store
        self._peers = list(peers)
        self._followers = FollowerProgress(peers, store.watermark)
        self._sessions = SessionRegistry(store, quotas, streams=epoch << 32)
        self._tokens = TokenTable(store)
        self._remembered = RememberedUpdates(store.requests(), recent, store.identity)
        self._answers = RememberedAnswers(store.answers())
        self._live = QueryRegistry(store.identity)
        self._ends = QueryEnds(self._live.find_live)
        self._now_ms = 0
        self._lsn = horizon = count = 0
        self._plans = PlanChangeDriver(
            plan, self._peers, self._followers, self._live, self._record_plan_change, store
        )
        self._moves = SessionMoves(mergers, self._peers, self._followers, self._record_sessions)
        self._growth = DispatcherGrowth(
            dispatchers, self._peers, self._followers, self._plans, self._moves
        )
        self._dispatchers = self._growth.running
        for batch in store.replay():
            if len(batch.sessions):
                self._moves.apply(batch.sessions)
            if len(batch.strategy):
                self._plans.replay(batch.strategy, batch.lsn_to)
            found = QueryRows.decode(batch.rows.data)
            rows = leave_orphans_out(found, self._live, horizon)
            encoded = batch.rows if rows is found else None
            self._live.apply(rows, encoded, self._sessions.tenants.counts)
            self._ends.note(rows, rows.lsn)
            self._lsn = batch.lsn_to
            self._live.forget(store.watermark)
            horizon = max(horizon, find_left_out(batch, rows))
            count += len(found)
        self._feeds = FetchAnswers(epoch << 32, horizon)
        self._tips = TipAnnouncer(self._peers, self._followers)
        self._totals = UpdateTotals()
        self._compaction = LogCompaction(store, count)
        self._plans.start(plan if restarts else None)

    @property
    def lsn(self) -> int:
        """The last committed LSN."""
        return self._lsn

    @property
    def visible(self) -> int:
        """The LSN that every live dispatcher has applied."""
        return self._followers.visible

    @property
    def tables(self) -> SessionMaps:
        """The tables of sessions and the number of dispatchers, as the ledger has them."""
        return self._moves.maps

    @property
    def strategy(self) -> PlanState:
        """The plan in force, and the one that is to follow it."""
        return self._plans.strategy

    @property
    def moves(self) -> list[dict[str, int | str]]:
        """The plan changes that have ended."""
        return self._plans.moves

    @property
    def live(self) -> int:
        """The number of live queries."""
        return len(self._live)

    @property
    def bytes(self) -> int:
        """The bytes of the live queries and of the table of their ids."""
        return self._live.nbytes

    @property
    def counters(self) -> dict[str, Any]:
        """Totals since the start, and present sizes."""
        sizes = {"lsn": self._lsn, "live": self.live, "sessions": len(self._sessions)}
        moves = self._moves.counters | self._growth.counters
        return sizes | self._totals.counters | self._plans.counters | moves

    def run_actors(self, role: Role, running: int) -> int:
        """Takes how many actors of a role run now, or will at once; returns how many should."""
        others = self._moves if role == "merger" else self._plans
        return self._growth.run(running) if role == "dispatcher" else others.run(running)

    def note_time(self, now_ms: int) -> None:
        """Notes the time, Unix ms, which inserts with a validity are stamped with."""
        self._now_ms = now_ms

    def tick(self, now_ms: int = 0) -> list[Send]:
        """Does periodic work, ten times a second. As messages may have been lost, all peers are
        sent the tip. now_ms: Unix time, by which queries end."""
        self.note_time(now_ms)
        self._feeds.tick()
        self._feeds.note_left_out(self._compaction.tick(self._lsn, self.live))
        out = self._end_queries(now_ms)
        out += self._plans.tick(now_ms) + self._moves.tick() + self._growth.tick()
        return out + self._tips.tick(self._lsn)

    def fence(self, dispatcher: int) -> list[Send]:
        """Stops waiting for a dispatcher, which accepts nothing any more."""
        self._followers.fence(Address("dispatcher", dispatcher))
        return self._tips.announce_visible(self._lsn)

    def joined(self, peer: Address) -> list[Send]:
        """Handles a new incarnation of a peer, which has applied nothing yet."""
        self._feeds.joined(peer)
        self._followers.joined(peer)
        return self._tips.joined(peer, self._lsn)

    def on(self, frame: Frame) -> list[Send]:
        """Handles any message to the sequencer; returns what is to be sent."""
        match frame:
            case UpdateRequest():
                return self.append([frame])
            case AppliedReport():
                return self._take_acknowledgement(frame)
            case NamesKept():
                self._raise_watermark(Address("merger", frame.merger), self._moves.find_kept(frame))
                return []
            case LogReached():
                note_log_reached(self._store, frame)
                return []
            case LedgerFetch():
                return self._answer_fetch(frame)
            case LookupRequest():
                found = self._sessions.look_up(frame, self._live)
                return [Send(Address("dispatcher", frame.dispatcher), found)]
            case SessionRequest():
                return [Send(Address("dispatcher", frame.dispatcher), self._sessions.grant(frame))]
            case TokensRequest():
                return [Send(Address("dispatcher", frame.dispatcher), self._tokens.change(frame))]
            case TransferRequest():
                return self._plans.answer_transfer(frame, self._lsn)
            case TransferDone():
                return self._plans.note_holding_worker(frame)
            case PostingCounts():
                return self._plans.note_postings(frame)
            case SessionsHeld():
                return self._moves.note_held(frame)
            case MergersRequest():
                return self._moves.answer(frame, Address("dispatcher", frame.dispatcher), self._lsn)
            case WindowsHeld() | DispatcherEmptied():
                return self._growth.note(frame)
            case DispatchersRequest():
                return self._growth.answer(frame, self._lsn)
            case PlanChangeRequest():
                return self._plans.answer_request(frame, lambda: self._lsn)
        raise TypeError(f"the sequencer does not accept {type(frame).__name__}")

    def append(self, requests: list[UpdateRequest]) -> list[Send]:
        """Commits requests as one group. Each request is answered with an UpdateDecision: with the
        same one again if it was answered before, and not at all if it is settled. Every dispatcher
        is sent the accepted rows, which the dispatcher of the first request routes. When the store
        is full, every row is UNAVAILABLE. Raises StoreFailed if only a restart shows the result."""
        fresh, decisions = self._answers.sift(requests)
        out = self._decide_requests(fresh, decisions) if fresh else []
        return out + [Send(Address("dispatcher", key[0]), d) for key, d in decisions.items()]

    def _decide_requests(
        self, requests: dict[RequestKey, UpdateRequest], decisions: dict[RequestKey, UpdateDecision]
    ) -> list[Send]:
        """Decides and commits; adds to `decisions`, and returns what every dispatcher is sent."""
        tenants, over = self._sessions.tenants, None
        taken = take_requests(list(requests.values()), self._now_ms, tenants.limited)
        if tenants.limited and (rows := taken.read) is not None:
            names, request_ids = taken.names, taken.request_ids
            over = tenants.find_over_quota(
                rows,
                names,
                self._live,
                self._sessions.numbers,
                lambda hashes: self._remembered.find(rows, hashes, request_ids),
            )
            taken = taken if over is None else taken.without(over.at)
        owner = next(iter(requests))[0]
        verdict = self._decide_rows(taken.rows, taken.names, taken.request_ids, owner)
        status, lsn = verdict.status, verdict.lsn
        if over is not None:
            status, lsn = over.merge_into(status, lsn)
        answers, first = [], 0
        for key, count in zip(requests, taken.counts, strict=True):
            end = first + count
            decision = CommittedDecision.make(key[2], status[first:end], lsn[first:end])
            answers.append(self._answers.make_answer(key, decision))
            first = end
        try:
            applied = self._commit_verdict(owner, verdict, answers)
        except StoreFailed:
            raise
        except Unavailable:
            for key, count in zip(requests, taken.counts, strict=True):
                status = np.full(count, UpdateStatus.UNAVAILABLE, np.uint8)
                decisions[key] = UpdateDecision(key.seq, status, np.zeros(count, np.int64))
                self._totals.note_outcomes(status)
            return []
        if taken.read is not None:  # else none ends
            self._ends.note(taken.read, verdict.lsn, lambda: verdict.is_inserted)
        if verdict.refused or over is not None:
            self._totals.note_outcomes(status)
        for key, answer in zip(requests, answers, strict=True):
            decisions[key] = answer.decision
        return [Send(to, applied) for to in self._dispatchers] if applied else []

    def _decide_rows(
        self, rows: U8, names: StringColumn, request_ids: StringColumn, owner: int
    ) -> UpdateVerdict:
        return decide(
            rows, names, request_ids, base=self._lsn, live=self._live, recent=self._remembered,
            sessions=self._sessions.numbers, top=self._sessions.top, owner=owner,
        )  # fmt: skip

    def _end_queries(self, now_ms: int) -> list[Send]:
        """Deletes the queries whose end has come, as if somebody had requested it; returns what
        every dispatcher is sent. A query that cannot be deleted now is due at the next tick."""
        due = self._ends.take_due(now_ms, ENDED_ROWS)
        if not len(due):
            return []
        rows = self._live.rows(due).replace(kind=np.full(len(due), UpdateKind.DELETE, np.uint8))
        none = np.zeros(len(rows) + 1, np.int64), np.zeros(0, np.uint8)
        try:
            owner = self._followers.first
            verdict = self._decide_rows(encode(rows), none, none, owner)
            applied = self._commit_verdict(owner, verdict, [])
        except StoreFailed:
            raise
        except Unavailable:
            self._ends.put_back(now_ms, due)
            return []
        self._totals.ended += len(due)
        return [Send(to, applied) for to in self._dispatchers] if applied else []

    # --- committing ------------------------------------------------------------------

    def _commit_verdict(
        self, owner: int, verdict: UpdateVerdict, answers: list[SettledAnswer]
    ) -> LedgerBatch | None:
        """Commits the accepted rows and the answers; returns the rows as a message, if any."""
        applied = None
        if count := verdict.committed:
            span = self._lsn + 1, verdict.last
            applied = CommittedBatch.view(verdict.room, verdict.rows, *span, owner)
        sessions = [(number, name) for name, number in verdict.sessions.items()]
        self._store.commit(
            LedgerChange(
                batch=applied,
                sessions=sessions,
                requests=verdict.durable,
                forget=self._remembered.first,
                answers=answers,
                watermark=self._followers.watermark,
            )
        )
        if applied is not None:
            self._lsn = applied.lsn_to
            self._compaction.rows += count
        if sessions:
            self._sessions.add_sessions(sessions)
        inserts = self._live.apply_prepared(verdict.prepared, self._sessions.tenants.counts)
        self._totals.note_committed(inserts, count - inserts)
        if verdict.requests is not None:
            self._remembered.add(verdict.requests, verdict.keys)
        self._answers.keep(answers)
        return applied

    def _record_plan_change(self, record: U8, owner: int) -> list[Send]:
        return self._record_change(record, nothing(), owner)

    def _record_sessions(self, record: U8, owner: int) -> list[Send]:
        return self._record_change(nothing(), record, owner)

    def _record_change(self, plans: U8, sessions: U8, owner: int) -> list[Send]:
        """Commits a change of the plans, or of the tables of sessions. Raises Unavailable."""
        lsn, watermark = self._lsn + 1, self._followers.watermark
        applied = LedgerBatch(lsn, lsn, owner, 0, 0, packed(no_queries()), plans, sessions)
        if len(plans):
            plan, pending = self._plans.find_serving_plan(plans, lsn), find_pending(plans)
            change = LedgerChange(applied, watermark=watermark, plan=plan, pending=pending)
        else:
            change = describe_change(applied, watermark)
        self._store.commit(change)
        self._lsn = lsn
        if len(plans):
            self._plans.apply(plans, lsn)
        else:
            self._moves.apply(sessions)
        return [Send(to, applied) for to in self._dispatchers]

    # --- the other messages ------------------------------------------------------------

    def _take_acknowledgement(self, ack: AppliedReport) -> list[Send]:
        """Takes what a dispatcher has applied, its watermark and its counters."""
        self._followers.apply(ack.dispatcher, ack.lsn)
        self._raise_watermark(Address("dispatcher", ack.dispatcher), ack.watermark)
        self._plans.note_report(ack)
        return self._tips.announce_visible(self._lsn) + self._plans.take_due_step()

    def _raise_watermark(self, peer: Address, lsn: int) -> None:
        """Takes a peer's watermark, and drops the deleted queries that nobody needs then."""
        if self._followers.mark(peer, lsn):
            self._live.forget(self._followers.watermark)

    def _answer_fetch(self, request: LedgerFetch) -> list[Send]:
        """Answers a Fetch if anything follows, and then sends the tip."""
        to = Address(ROLES[request.role], request.index)
        try:
            records = self._plans.make_record, self._moves.make_record
            pieces = self._feeds.answer(request, self._live, self._store, self._lsn, *records)
        except StoreFailed:
            raise
        except Unavailable:
            pieces = []  # it will be requested again
        return [*(Send(to, piece) for piece in pieces), *self._tips.make([to], self._lsn)]
