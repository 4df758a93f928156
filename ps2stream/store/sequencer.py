"""The sequencer: the one order of all query updates (contract.md 3).

It decides each row of the dispatchers' requests, commits what is accepted as one group,
and only then answers and sends the applied stream; `Visible` follows once every
dispatcher has acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import compress, islice, repeat
from operator import eq, itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.batch import I64, U8, Frame, strings_to_column, take_ragged
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
from ps2stream.rows import Kind, QueryRows, no_queries
from ps2stream.store.registry import Registry, split

REPLAY_ROWS = 16_384

Key = tuple[bytes, bytes]  # (query id, request id)


class _Verdict(NamedTuple):
    """Decisions about n rows, LSNs final. `rows` are those to commit."""

    status: U8
    lsn: I64
    rows: QueryRows
    sessions: dict[bytes, int]
    requests: dict[Key, int]


class SequencerMachine:
    """Owns the order. `dispatchers` is their number; `store` holds what was committed;
    `recent` bounds the delete requests that are remembered for retries."""

    def __init__(self, dispatchers: int, store: Store, recent: int = 65_536) -> None:
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
        self._name_sessions(store.sessions())
        self._recent: dict[Key, int] = {}
        for batch in store.replay():
            self._live.apply(QueryRows.decode(batch.rows.data))
            self._lsn = batch.lsn_to
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
        raise TypeError(f"the sequencer takes no {type(frame).__name__}")

    def append(self, requests: list[UpdateRequest]) -> list[Send]:
        """One group commit. Answers each request with an UpdateDecision and sends the
        accepted rows to every dispatcher; the first asker owns their routing.

        Earlier rows count for later ones. Insert: a new id is OK; the same id, source and
        session again is OK with the first LSN; else ALREADY_EXISTS. Delete: OK when live
        and of the named session (any, with an empty name) or when it repeats a remembered
        (id, request_id); else NOT_FOUND. When the store fails, every row is UNAVAILABLE.
        """
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
        verdict = self._decide(rows, names, asked)
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
        start = 0
        for request, size in zip(requests, sizes, strict=True):
            mine = slice(start, start + size)
            decision = UpdateDecision(request.seq, status[mine], lsn[mine])
            out.append(Send(self._everyone[request.dispatcher], decision))
            start += size
        return out

    # --- deciding ------------------------------------------------------------------

    def _decide(self, rows: QueryRows, names: list[bytes], asked: list[bytes]) -> _Verdict:
        n, base = len(rows), self._lsn
        ids = split(rows.id_off, rows.id)
        insert = rows.kind == Kind.INSERT
        fresh: dict[bytes, int] = {}
        number = self._numbers(names, insert, fresh)
        named = np.fromiter(map(len, names), np.int64, n) > 0
        code, rounds = _rounds(ids)
        # `state`: the live handle of each id, by the first row that names it. A handle above
        # `base` is provisional: base + 1 + its row, until all rows are decided.
        known = self._live.handles(ids)
        state = known.copy()
        stored = np.flatnonzero(known)
        old = self._live.rows(known[stored])
        pool = QueryRows.concat([old, rows.replace(session=number)])
        where = np.zeros(n, np.int64)
        where[stored] = np.arange(len(stored))

        status = np.zeros(n, np.uint8)
        lsn = np.zeros(n, np.int64)
        source = np.full(n, -1, np.int64)  # row of `pool` to commit; -1: nothing
        handle = np.zeros(n, np.int64)
        done: dict[Key, int] = {}
        for at in rounds:
            mine, now = code[at], state[code[at]]
            own = base + 1 + at
            before = np.where(now > base, len(old) + now - base - 1, where[mine])
            adds, is_live = insert[at], now != 0
            lsn[at] = own

            again = np.flatnonzero(adds & is_live)
            if len(again):
                same = _same(pool, before[again], len(old) + at[again])
                status[at[again]] = np.where(same, Status.OK, Status.ALREADY_EXISTS)
                lsn[at[again]] = np.where(same, now[again], 0)

            drops = ~adds
            if drops.any():
                repeated = self._repeated(at, drops, ids, asked, done)
                lsn[at] = np.where(repeated, repeated, lsn[at])
                drops &= repeated == 0
                foreign = named[at]
                foreign[is_live] &= pool.session[before[is_live]] != number[at[is_live]]
                lost = at[drops & (foreign | ~is_live)]
                status[lost], lsn[lost] = Status.NOT_FOUND, 0
                drops &= is_live & ~foreign
                done.update(_requests(at[drops], own[drops], ids, asked))

            takes = adds & ~is_live
            source[at[takes]] = len(old) + at[takes]
            source[at[drops]] = before[drops]
            handle[at[takes]] = own[takes]
            handle[at[drops]] = now[drops]
            state[mine[takes]] = own[takes]
            state[mine[drops]] = 0

        accepted = np.flatnonzero(source >= 0)
        final = base + np.cumsum(source >= 0)

        def settle(value: I64) -> I64:
            return np.where(value > base, final[np.maximum(value - base - 1, 0)], value)

        out = pool.take(source[accepted])
        out = _without_source(out, insert[accepted]).replace(
            kind=rows.kind[accepted], lsn=final[accepted], handle=settle(handle[accepted])
        )
        used = set(out.session.tolist())
        return _Verdict(
            status,
            settle(lsn),
            out,
            {name: k for name, k in fresh.items() if k in used},
            {
                key: int(final[value - base - 1])
                for key, value in sorted(done.items(), key=itemgetter(1))
            },
        )

    def _numbers(
        self, names: list[bytes], insert: NDArray[np.bool_], fresh: dict[bytes, int]
    ) -> I64:
        """The session number of each row, 0 for one that does not exist; names that an insert
        brings for the first time get the next numbers in `fresh`."""
        for name in dict.fromkeys(compress(names, insert.tolist())):
            if name not in self._sessions:
                fresh[name] = self._top + len(fresh) + 1
        both = self._sessions if not fresh else {**self._sessions, **fresh}
        return np.fromiter(map(both.get, names, repeat(0)), np.int64, len(names))

    def _repeated(
        self,
        at: I64,
        drops: NDArray[np.bool_],
        ids: list[bytes],
        asked: list[bytes],
        done: dict[Key, int],
    ) -> I64:
        """For each row of `at` the LSN of the delete that it repeats, else 0."""
        if not self._recent and not done:
            return np.zeros(len(at), np.int64)
        rows = at.tolist()
        keys = list(zip(map(ids.__getitem__, rows), map(asked.__getitem__, rows), strict=True))
        first = map(self._recent.get, keys, map(done.get, keys, repeat(0)))
        return np.where(drops, np.fromiter(first, np.int64, len(keys)), 0)

    # --- committing ------------------------------------------------------------------

    def _commit(self, applied: Applied, verdict: _Verdict) -> None:
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
        self._remember(verdict.requests)

    def _name_sessions(self, sessions: list[tuple[int, bytes]]) -> None:
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
        if len(ask.id):
            handle = self._live.handles([ask.id.tobytes()])
            rows = self._live.rows(handle[handle > 0])
        else:
            rows, more = self._live.page(ask.after, ask.limit, ask.session)
        names = strings_to_column(map(self._names.__getitem__, rows.session.tolist()))
        reply = LookupReply(ask.seq, int(more), len(self._live), _packed(rows), *names)
        return [Send(self._everyone[ask.dispatcher], reply)]

    def _grant(self, ask: SessionRequest) -> list[Send]:
        """Number 0 says that there is none, or that it could not be made durable."""
        name = ask.name.tobytes()
        number = self._sessions.get(name, 0)
        if not number and ask.make:
            number = self._top + 1
            try:
                self._store.commit([], [(number, name)])
            except Unavailable:
                number = 0
            else:
                self._name_sessions([(number, name)])
        return [Send(self._everyone[ask.dispatcher], SessionGrant(ask.seq, number))]

    def _broadcast(self, frame: Frame) -> list[Send]:
        return [Send(to, frame) for to in self._everyone]


def _packed(rows: QueryRows) -> U8:
    return np.frombuffer(rows.encode(), np.uint8)


def _rounds(ids: list[bytes]) -> tuple[I64, Iterator[I64]]:
    """(the first row with the same id, for each row; groups of rows to decide together:
    the k-th has the k-th row of each id). Nearly always one group."""
    n = len(ids)
    first: dict[bytes, int] = {}
    code = np.fromiter(map(first.setdefault, ids, range(n)), np.int64, n)
    if len(first) == n:
        return code, iter([np.arange(n)])
    order = np.argsort(code, kind="stable")
    group = code[order]
    start = np.searchsorted(group, group)
    turn = np.empty(n, np.int64)
    turn[order] = np.arange(n) - start
    return code, (np.flatnonzero(turn == k) for k in range(int(turn.max()) + 1))


def _same(pool: QueryRows, a: I64, b: I64) -> NDArray[np.bool_]:
    """Whether rows a and b of the pool are the same query of the same session."""
    left = split(*take_ragged(pool.source_off, pool.source, a))
    right = split(*take_ragged(pool.source_off, pool.source, b))
    same = np.fromiter(map(eq, left, right), np.bool_, len(a))
    same &= pool.session[a] == pool.session[b]
    return same


def _without_source(rows: QueryRows, keep: NDArray[np.bool_]) -> QueryRows:
    """The rows, with the source of those not to keep made empty."""
    if keep.all():
        return rows
    size = np.diff(rows.source_off)
    off = np.zeros_like(rows.source_off)
    np.cumsum(np.where(keep, size, 0), out=off[1:])
    return rows.replace(source_off=off, source=rows.source[np.repeat(keep, size)])


def _requests(at: I64, lsn: I64, ids: list[bytes], asked: list[bytes]) -> dict[Key, int]:
    """What to remember of these deletes: those that carry a request id."""
    rows = at.tolist()
    carried = map(asked.__getitem__, rows)
    keys = zip(map(ids.__getitem__, rows), carried, strict=True)
    found = dict(zip(keys, lsn.tolist(), strict=True))
    return {key: value for key, value in found.items() if key[1]}
