"""Sessions by name and number, and look-ups of the queries in them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.sessions import SessionGrant, SessionRequest
from ps2stream.protocol.messages.updates import LookupReply, LookupRequest
from ps2stream.protocol.ports import LedgerChange, Store
from ps2stream.security import QuotaTable
from ps2stream.sequencer.feed import packed
from ps2stream.sequencer.registry import QueryRegistry
from ps2stream.sequencer.tenants import TenantCounts


class SessionRegistry:
    """The sessions of `store`. `streams` is the last stream epoch that was granted."""

    def __init__(self, store: Store, quotas: QuotaTable, streams: int) -> None:
        self.numbers: dict[bytes, int] = {}
        self.top = 0  # the highest number
        self.tenants = TenantCounts(quotas)
        self._store = store
        self._names: dict[int, bytes] = {}
        self._streams = streams
        self.add_sessions(store.sessions())

    def __len__(self) -> int:
        return len(self.numbers)

    def add_sessions(self, sessions: Iterable[tuple[int, bytes]]) -> None:
        """Adds new sessions, which are durable: (number, name)."""
        sessions = list(sessions)
        self.tenants.name_sessions(sessions)
        for number, name in sessions:
            self.numbers[name] = number
            self._names[number] = name
            self.top = max(self.top, number)

    def grant(self, request: SessionRequest) -> SessionGrant:
        """Returns the number of a session, a new one if the request allows it. Number 0 means that
        there is none, or that it could not be made durable; a negative one, that a quota forbids
        it. Raises StoreFailed."""
        name = request.name.tobytes()
        number = self.numbers.get(name, 0)
        if not number and request.make and not (number := -self.tenants.session_limit(name)):
            number = self.top + 1
            try:
                self._store.commit(LedgerChange(sessions=[(number, name)]))
            except StoreFailed:
                raise
            except Unavailable:
                number = 0
            else:
                self.add_sessions([(number, name)])
        self._streams += 1
        return SessionGrant(request.seq, number, self._streams)

    def look_up(self, request: LookupRequest, live: QueryRegistry) -> LookupReply:
        """Returns a query by its id, or a page of queries: of a session, a tenant or all."""
        more = False
        tenant = request.tenant.tobytes()
        if len(request.id):
            handle = live.handles(np.array([0, len(request.id)]), request.id)
            rows = live.rows(handle[handle > 0])
        else:
            sessions = self.tenants.sessions_of(tenant) if tenant else None
            rows, more = live.page(request.after, request.limit, request.session, sessions)
        names = strings_to_column(map(self._names.__getitem__, rows.session.tolist()))
        total = self.tenants.count_live(tenant) if tenant else len(live)
        return LookupReply(request.seq, int(more), total, packed(rows), *names)
