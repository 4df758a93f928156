"""The tenants of the sequencer: the sessions and live queries of each, and its quota."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import I64, U8, sealed, take_ragged
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.security import QuotaTable, TenantQuota
from ps2stream.sequencer import kernels
from ps2stream.sequencer.columns import StringColumn, find_first_rows, split
from ps2stream.sequencer.kernels import NONE
from ps2stream.sequencer.registry import QueryRegistry
from ps2stream.tenants import key_of


class OverQuotaRows(NamedTuple):
    """The rows beyond a quota: their positions, and a Status with the reason."""

    at: I64
    status: U8

    def merge_into(self, status: U8, lsn: I64) -> tuple[U8, I64]:
        """Returns the status and LSN of all rows, given those of the others."""
        where = self.at - np.arange(len(self.at))
        return np.insert(status, where, self.status), np.insert(lsn, where, 0)


class _TenantEntry:
    """A tenant's number, quota and count of sessions."""

    def __init__(self, number: int, quota: TenantQuota) -> None:
        self.number = number
        self.quota = quota
        self.sessions = 0


class TenantCounts:
    """Counts sessions and live queries by tenant. Names of sessions are the stored ones."""

    def __init__(self, quotas: QuotaTable) -> None:
        self._quotas = quotas
        self._tenants: dict[bytes, _TenantEntry] = {}
        self._of = np.zeros(64, np.int64)  # session number -> tenant number
        self._live = np.zeros(1, np.int64)

    def name_sessions(self, sessions: Iterable[tuple[int, bytes]]) -> None:
        """Adds new sessions: (number, name)."""
        for number, name in sessions:
            if number >= len(self._of):
                grown = np.zeros(2 * number, np.int64)
                grown[: len(self._of)] = self._of
                self._of = grown
            tenant = self._ensure_tenant(key_of(name))
            self._of[number] = tenant.number
            tenant.sessions += 1

    def count_rows(self, kind: U8, session: I64) -> int:
        """Counts committed inserts and deletes, each with the session of its query; returns the
        number of inserts."""
        inserts: int = kernels.count_updates(sealed(kind), sealed(session), self._of, self._live)
        return inserts

    def count_live(self, key: bytes) -> int:
        """Returns the number of a tenant's live queries."""
        tenant = self._tenants.get(key)
        return 0 if tenant is None else int(self._live[tenant.number])

    def sessions_of(self, key: bytes) -> NDArray[np.bool_]:
        """Returns bool[n]: by session number, whether the session is the tenant's."""
        tenant = self._tenants.get(key)
        number = -1 if tenant is None else tenant.number
        return np.equal(self._of, number)

    def session_limit(self, name: bytes) -> int:
        """Returns the quota that forbids a new session of this name; 0 if none does."""
        tenant = self._ensure_tenant(key_of(name))
        limit = tenant.quota.sessions
        return limit if limit is not None and tenant.sessions >= limit else 0

    def find_over_quota(
        self,
        rows: QueryRows,
        names: StringColumn,
        live: QueryRegistry,
        sessions: Mapping[bytes, int],
    ) -> OverQuotaRows | None:
        """Returns the inserts of new ids that exceed a quota, into which the first ones fit; None
        without any. Deletes make room only for the next requests."""
        if not self._quotas.limited:
            return None
        hashes = live.hash(rows.id_off, rows.id)
        insert = rows.kind == UpdateKind.INSERT
        # A row may insert an id again that a row before it deletes, for another session.
        code, _ = find_first_rows(rows.id_off, rows.id, hashes)
        gone = np.zeros(len(rows), np.bool_)
        gone[code[~insert]] = True
        new = insert & (gone[code] | (live.find(rows.id_off, rows.id, hashes).place == NONE))
        status = np.zeros(len(rows), np.uint8)
        first, _ = find_first_rows(*names, live.hash(*names))
        firsts, which = np.unique(first, return_inverse=True)
        distinct = split(*take_ragged(*names, firsts))
        owners = [self._ensure_tenant(key_of(name)) for name in distinct]
        fresh = np.fromiter((name not in sessions for name in distinct), np.bool_, len(distinct))
        owner = np.fromiter((o.number for o in owners), np.int64, len(owners))
        for tenant in {o.number: o for o in owners}.values():
            mine = owner == tenant.number
            if (limit := tenant.quota.sessions) is not None:
                used = np.unique(which[new & mine[which]])
                extra = used[fresh[used]][max(0, limit - tenant.sessions) :]
                beyond = new & np.isin(which, extra)
                status[beyond] = UpdateStatus.SESSION_QUOTA
            if (limit := tenant.quota.queries) is not None:
                room = max(0, limit - int(self._live[tenant.number]))
                beyond = np.flatnonzero(new & mine[which] & (status == 0))[room:]
                status[beyond] = UpdateStatus.QUERY_QUOTA
        at = np.flatnonzero(status)
        return OverQuotaRows(at, status[at]) if len(at) else None

    def _ensure_tenant(self, key: bytes) -> _TenantEntry:
        """Returns the tenant of this key, a new one for a new key."""
        found = self._tenants.get(key)
        if found is None:
            quota = self._quotas.of(key[:-1].decode())
            found = self._tenants[key] = _TenantEntry(len(self._tenants) + 1, quota)
            if found.number >= len(self._live):
                self._live = np.concatenate([self._live, np.zeros(len(self._live), np.int64)])
        return found
