"""The sequencer: the one order of all query updates (contract.md 3).

It has each row of the dispatchers' requests judged (decide.py), commits what is accepted
as one group, and only then answers and sends the applied stream; `Visible` follows once
every dispatcher has acknowledged.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

import numpy as np

from ps2stream.batch import U8, Frame, strings_to_column
from ps2stream.errors import Unavailable
from ps2stream.messages import (
    Address,
    Applied,
    AppliedAck,
    LookupReply,
    LookupRequest,
    Send,
    SessionGrant,
    SessionRequest,
    Status,
    UpdateDecision,
    UpdateRequest,
    Visible,
)
from ps2stream.ports import DeleteRequests, Store
from ps2stream.rows import QueryRows, no_queries
from ps2stream.security import NO_QUOTAS, Quotas
from ps2stream.store.decide import Key, Verdict, decide
from ps2stream.store.registry import Registry, split
from ps2stream.store.tenants import Tenants
from ps2stream.tokens import TokensReply, TokensRequest, changed, decode, encode

REPLAY_ROWS = 16_384


class SequencerMachine:
    """Owns the order. `dispatchers` is their number; `store` holds what was committed;
    `recent` bounds the delete requests that are remembered for retries."""

    def __init__(
        self, dispatchers: int, store: Store, recent: int = 65_536, quotas: Quotas = NO_QUOTAS
    ) -> None:
        self._store = store
        self._bound = recent
        self._everyone = [Address("dispatcher", i) for i in range(dispatchers)]
        self._acked = [0] * dispatchers
        self._visible = 0
        self._lsn = 0
        self._live = Registry()
        self._sessions: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}
        self._top = 0  # the highest session number
        self._tenants = Tenants(quotas)
        self._name_sessions(store.sessions())
        self._tokens = store.tokens()
        self._recent: dict[Key, int] = {}
        for batch in store.replay():
            self._live.apply(QueryRows.decode(batch.rows.data))
            self._lsn = batch.lsn_to
        for part in self._live.batches(REPLAY_ROWS):
            self._tenants.count(part)
        for seen in store.requests():
            keys = zip(
                split(seen.id_off, seen.id), split(seen.request_off, seen.request), strict=True
            )
            self._remember(dict(zip(keys, seen.lsn.tolist(), strict=True)))

    @property
    def lsn(self) -> int:
        """The last committed LSN."""
        return self._lsn

    @property
    def live(self) -> int:
        """The number of live queries."""
        return len(self._live)

    def start(self) -> list[Send]:
        """The live queries as Applied frames for dispatchers that know nothing: their ranges
        follow each other from 1 to the last LSN, the rows keep LSN and handle, and the
        owners take turns. Visible follows the acknowledgements."""
        out: list[Send] = []
        at = 0
        parts = self._live.batches(REPLAY_ROWS)
        part = next(parts, no_queries())
        turn = 0
        while at < self._lsn:
            after = next(parts, None)
            end = self._lsn if after is None else int(part.lsn[-1])
            owner = turn % len(self._everyone)
            out += self._broadcast(Applied(at + 1, end, owner, _packed(part)))
            at, turn = end, turn + 1
            if after is not None:
                part = after
        return out

    def on(self, frame: Frame) -> list[Send]:
        """Any message to the sequencer."""
        match frame:
            case UpdateRequest():
                return self.append([frame])
            case AppliedAck():
                return self._acknowledge(frame)
            case LookupRequest():
                return self._look_up(frame)
            case SessionRequest():
                return self._grant(frame)
            case TokensRequest():
                return self._keep_tokens(frame)
        raise TypeError(f"the sequencer takes no {type(frame).__name__}")

    def append(self, requests: list[UpdateRequest]) -> list[Send]:
        """One group commit. Answers each request with an UpdateDecision and sends the
        accepted rows to every dispatcher; the first asker owns their routing.
        When the store fails, every row is UNAVAILABLE."""
        sizes: list[int] = []
        parts: list[QueryRows] = []
        names: list[bytes] = []
        asked: list[bytes] = []
        for request in requests:
            part = QueryRows.decode(request.rows.data)
            sizes.append(len(part))
            parts.append(part)
            names += split(request.name_off, request.name)
            asked += split(request.request_off, request.request)
        rows = QueryRows.concat(parts)
        over = self._tenants.over(rows, names, self._live, self._sessions)
        if over is not None:
            fit = np.setdiff1d(np.arange(len(rows)), over.at)
            rows = rows.take(fit)
            names, asked = ([column[i] for i in fit.tolist()] for column in (names, asked))
        verdict = decide(
            rows,
            names,
            asked,
            base=self._lsn,
            live=self._live,
            sessions=self._sessions,
            top=self._top,
            recent=self._recent,
        )
        status, lsn = verdict.status, verdict.lsn
        out: list[Send] = []
        if count := len(verdict.rows):
            applied = Applied(
                self._lsn + 1, self._lsn + count, requests[0].dispatcher, _packed(verdict.rows)
            )
            try:
                self._commit(applied, verdict)
            except Unavailable:
                status = np.full(len(rows), Status.UNAVAILABLE, np.uint8)
                lsn = np.zeros(len(rows), np.int64)
            else:
                out += self._broadcast(applied)
        if over is not None:
            status, lsn = over.among(status, lsn)
        start = 0
        for request, size in zip(requests, sizes, strict=True):
            mine = slice(start, start + size)
            decision = UpdateDecision(request.seq, status[mine], lsn[mine])
            out.append(Send(self._everyone[request.dispatcher], decision))
            start += size
        return out

    # --- committing ------------------------------------------------------------------

    def _commit(self, applied: Applied, verdict: Verdict) -> None:
        requests = None
        if verdict.requests:
            id_off, id_ = strings_to_column(key[0] for key in verdict.requests)
            req_off, req = strings_to_column(key[1] for key in verdict.requests)
            lsn = np.fromiter(verdict.requests.values(), np.int64, len(verdict.requests))
            requests = DeleteRequests(lsn, id_off, id_, req_off, req)
        oldest = next(iter(self._recent.values()), 0)
        sessions = [(number, name) for name, number in verdict.sessions.items()]
        self._store.commit([applied], sessions, requests, oldest)
        self._lsn = applied.lsn_to
        self._live.apply(verdict.rows)
        self._name_sessions(sessions)
        self._tenants.count(verdict.rows)
        self._remember(verdict.requests)

    def _name_sessions(self, sessions: list[tuple[int, bytes]]) -> None:
        self._tenants.name_sessions(sessions)
        for number, name in sessions:
            self._sessions[name] = number
            self._names[number] = name
            self._top = max(self._top, number)

    def _remember(self, requests: dict[Key, int]) -> None:
        self._recent.update(requests)
        excess = len(self._recent) - self._bound
        if excess > 0:
            old = list(islice(self._recent, excess))
            deque(map(self._recent.pop, old), maxlen=0)

    # --- the other messages ------------------------------------------------------------

    def _acknowledge(self, ack: AppliedAck) -> list[Send]:
        self._acked[ack.dispatcher] = max(self._acked[ack.dispatcher], ack.lsn)
        lowest = min(self._acked)
        if lowest <= self._visible:
            return []
        self._visible = lowest
        return self._broadcast(Visible(lowest))

    def _look_up(self, ask: LookupRequest) -> list[Send]:
        more = False
        tenant = ask.tenant.tobytes()
        if len(ask.id):
            handle = self._live.handles([ask.id.tobytes()])
            rows = self._live.rows(handle[handle > 0])
        else:
            sessions = self._tenants.sessions_of(tenant) if tenant else None
            rows, more = self._live.page(ask.after, ask.limit, ask.session, sessions)
        names = strings_to_column(map(self._names.__getitem__, rows.session.tolist()))
        live = self._tenants.live(tenant) if tenant else len(self._live)
        reply = LookupReply(ask.seq, int(more), live, _packed(rows), *names)
        return [Send(self._everyone[ask.dispatcher], reply)]

    def _grant(self, ask: SessionRequest) -> list[Send]:
        """Number 0 says that there is none, or that it could not be made durable; a negative
        one that a quota forbids it."""
        name = ask.name.tobytes()
        number = self._sessions.get(name, 0)
        if not number and ask.make and not (number := -self._tenants.session_limit(name)):
            number = self._top + 1
            try:
                self._store.commit([], [(number, name)])
            except Unavailable:
                number = 0
            else:
                self._name_sessions([(number, name)])
        return [Send(self._everyone[ask.dispatcher], SessionGrant(ask.seq, number))]

    def _keep_tokens(self, ask: TokensRequest) -> list[Send]:
        held = self._tokens
        add = decode(ask.add.tobytes()) if len(ask.add) else []
        status, wanted = changed(held, add, ask.drop.tobytes().decode())
        if wanted is not held:
            try:
                self._store.keep_tokens(wanted)
            except Unavailable:
                status, wanted = Status.UNAVAILABLE, held
        self._tokens = wanted
        packed = np.frombuffer(encode(wanted), np.uint8)
        return [Send(self._everyone[ask.dispatcher], TokensReply(ask.seq, status, packed))]

    def _broadcast(self, frame: Frame) -> list[Send]:
        return [Send(to, frame) for to in self._everyone]


def _packed(rows: QueryRows) -> U8:
    return np.frombuffer(rows.encode(), np.uint8)
