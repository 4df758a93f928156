"""The tenants of the sequencer: the sessions and live queries of each, and its quota."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import I64, U8, U64, take_ragged
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.security import QuotaTable, TenantQuota
from ps2stream.sequencer.columns import StringColumn, find_first_rows, split
from ps2stream.sequencer.registry import QueryRegistry
from ps2stream.sequencer.remembered import FoundRepeats
from ps2stream.sequencer.table_kernels import NONE
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

    @property
    def limited(self) -> bool:
        """Whether any tenant has a quota."""
        return self._quotas.limited

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

    @property
    def counts(self) -> tuple[I64, I64]:
        """The tenant of each session, and the live queries of each tenant, for
        kernels.count_updates."""
        return self._of, self._live

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
        find_repeats: Callable[[U64], FoundRepeats],
    ) -> OverQuotaRows | None:
        """Returns the inserts of new ids that exceed a quota, into which the first ones fit; None
        without any. Deletes make room only for the next requests, and a replacement needs none.
        find_repeats returns, given the hashes of their ids, the updates that the rows repeat."""
        if not self._quotas.limited:
            return None
        hashes = live.hash(rows.id_off, rows.id)
        insert = rows.kind != UpdateKind.DELETE
        # A row may insert an id again that a row before it deletes, for another session.
        code, _ = find_first_rows(rows.id_off, rows.id, hashes)
        ends = _count_deletes_before(code, insert)
        is_gone = ends > 0
        new = insert & (is_gone | (live.find(rows.id_off, rows.id, hashes).place == NONE))
        repeats = find_repeats(hashes)
        new &= repeats.lsn == 0
        new &= rows.handle == 0  # what may only replace a certain query needs no room
        status = np.zeros(len(rows), np.uint8)
        first, _ = find_first_rows(*names, live.hash(*names))
        leader = _find_leaders(rows.kind, new, np.stack([code, ends, first]), repeats.first)
        follows = leader < np.arange(len(rows))
        new &= ~follows
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
        status[follows] = status[leader[follows]]
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


def _count_deletes_before(code: I64, insert: NDArray[np.bool_]) -> I64:
    """Returns for each row how many rows before it delete its id; code: the first row with that."""
    order = np.argsort(code, kind="stable")
    before = np.empty(len(code), np.int64)
    before[order] = np.cumsum(~insert[order]) - ~insert[order]
    return before - before[code]


def _find_leaders(kind: U8, new: NDArray[np.bool_], keys: I64, request: I64) -> I64:
    """Returns for each new REPLACE the new row before it whose query it replaces, which has the
    same column of keys int64[k, n], or whose request it repeats; for all others themselves. It is
    refused as that is, and needs no room beside it. request int64[n]: as FoundRepeats.first."""
    n = np.arange(len(new))
    leader, at = n.copy(), np.flatnonzero(new)
    if not (new & (kind == UpdateKind.REPLACE)).any():
        return leader
    _, first, which = np.unique(keys[:, at], axis=1, return_index=True, return_inverse=True)
    leader[at] = at[first[which.ravel()]]
    leader = np.where(kind == UpdateKind.REPLACE, leader, n)
    again = np.flatnonzero(new & (request >= 0) & (request < n))
    again = again[new[request[again]]]
    leader[again] = leader[request[again]]
    return leader
