"""What the sequencer knows of tenants: whose each session is, how many queries each has, and
how many it may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import I64, U8
from ps2stream.protocol.messages.updates import Status
from ps2stream.protocol.rows import Kind, QueryRows
from ps2stream.security import Quota, Quotas
from ps2stream.sequencer.registry import Registry, split
from ps2stream.tenants import key_of


class Over(NamedTuple):
    """Rows beyond a quota: their positions, and why (a Status)."""

    at: I64
    status: U8

    def among(self, status: U8, lsn: I64) -> tuple[U8, I64]:
        """Put them among what became of the other rows."""
        where = self.at - np.arange(len(self.at))
        return np.insert(status, where, self.status), np.insert(lsn, where, 0)


class _Tenant:
    def __init__(self, number: int, quota: Quota) -> None:
        self.number = number
        self.quota = quota
        self.sessions = 0


class Tenants:
    """Counts per tenant. Names of sessions are those that are kept."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._tenants: dict[bytes, _Tenant] = {}
        self._of = np.zeros(64, np.int64)  # session number -> tenant number
        self._live = np.zeros(1, np.int64)

    def name_sessions(self, sessions: Iterable[tuple[int, bytes]]) -> None:
        """New sessions: (number, name)."""
        for number, name in sessions:
            if number >= len(self._of):
                grown = np.zeros(2 * number, np.int64)
                grown[: len(self._of)] = self._of
                self._of = grown
            tenant = self._tenant(key_of(name))
            self._of[number] = tenant.number
            tenant.sessions += 1

    def count(self, rows: QueryRows) -> None:
        """Committed inserts and deletes, each with the session of its query."""
        change = np.where(rows.kind == Kind.INSERT, 1, -1)
        np.add.at(self._live, self._of[rows.session], change)

    def live(self, key: bytes) -> int:
        """The live queries of a tenant."""
        tenant = self._tenants.get(key)
        return 0 if tenant is None else int(self._live[tenant.number])

    def sessions_of(self, key: bytes) -> NDArray[np.bool_]:
        """By session number, whether it is the tenant's."""
        tenant = self._tenants.get(key)
        number = -1 if tenant is None else tenant.number
        return np.equal(self._of, number)

    def session_limit(self, name: bytes) -> int:
        """The quota that forbids a new session of this name; 0 when it may be."""
        tenant = self._tenant(key_of(name))
        limit = tenant.quota.sessions
        return limit if limit is not None and tenant.sessions >= limit else 0

    def over(
        self,
        rows: QueryRows,
        names: Sequence[bytes],
        live: Registry,
        sessions: Mapping[bytes, int],
    ) -> Over | None:
        """The inserts of new ids that go beyond a quota, the first ones fitting in; None
        without any. Deletes make room only for the next requests."""
        if not self._quotas.limited:
            return None
        ids = split(rows.id_off, rows.id)
        insert = rows.kind == Kind.INSERT
        # What these rows delete may be inserted anew behind it, for another session.
        gone = set(compress(ids, (~insert).tolist()))
        again = np.fromiter(map(gone.__contains__, ids), np.bool_, len(ids))
        new = insert & (again | (live.handles(ids) == 0))
        status = np.zeros(len(rows), np.uint8)
        distinct = dict.fromkeys(names)
        code = dict(zip(distinct, range(len(distinct)), strict=True))
        which = np.fromiter(map(code.__getitem__, names), np.int64, len(names))
        owners = [self._tenant(key_of(name)) for name in distinct]
        fresh = np.fromiter((name not in sessions for name in distinct), np.bool_, len(distinct))
        owner = np.fromiter((o.number for o in owners), np.int64, len(owners))
        for tenant in {o.number: o for o in owners}.values():
            mine = owner == tenant.number
            if (limit := tenant.quota.sessions) is not None:
                used = np.unique(which[new & mine[which]])
                extra = used[fresh[used]][max(0, limit - tenant.sessions) :]
                beyond = new & np.isin(which, extra)
                status[beyond] = Status.SESSION_QUOTA
            if (limit := tenant.quota.queries) is not None:
                room = max(0, limit - int(self._live[tenant.number]))
                beyond = np.flatnonzero(new & mine[which] & (status == 0))[room:]
                status[beyond] = Status.QUERY_QUOTA
        at = np.flatnonzero(status)
        return Over(at, status[at]) if len(at) else None

    def _tenant(self, key: bytes) -> _Tenant:
        found = self._tenants.get(key)
        if found is None:
            quota = self._quotas.of(key[:-1].decode())
            found = self._tenants[key] = _Tenant(len(self._tenants) + 1, quota)
            if found.number >= len(self._live):
                self._live = np.concatenate([self._live, np.zeros(len(self._live), np.int64)])
        return found
