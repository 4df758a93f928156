"""The ledger as a merger follows it: names of queries are added, and dropped when no batch and
no kept pair can need them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ps2stream.merger.forgotten import ForgottenNames
from ps2stream.merger.kernels import part_updates, take_spans
from ps2stream.merger.names import QueryNames
from ps2stream.merger.query_owners import QueryOwners
from ps2stream.merger.records import DeadNamesRecord
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.follower import LedgerFollower
from ps2stream.protocol.frame import I64, U8, concat_ragged, sealed, take_ragged
from ps2stream.protocol.messages.updates import LedgerBatch, LedgerTip, MergerQueries
from ps2stream.protocol.rows import QueryRows
from ps2stream.protocol.session_map import SessionMaps
from ps2stream.protocol.wire import StringColumn


class _DeletedQueries(NamedTuple):
    """Deletes in the order of their LSNs."""

    lsn: I64
    handle: I64
    session: I64


class MergerUpdates:
    """Follows the names that merger `index` needs: those of the queries of sessions in the slots
    that are `owned`, uint8[slots]. `maps`: the tables of sessions as of `applied`."""

    def __init__(self, index: int, owned: U8, maps: SessionMaps, forgotten: ForgottenNames) -> None:
        self._index = index
        self.owned = owned
        self.maps = maps
        self._begun = maps.order
        self.names = QueryNames()
        self.owners = QueryOwners()
        self._forgotten = forgotten
        self._stream: LedgerFollower[MergerQueries] = LedgerFollower("merger", index)
        self._requests: list[Send] = []
        self._deleted: deque[_DeletedQueries] = deque()
        self._kept = 0

    @property
    def applied(self) -> int:
        """The LSN up to which all queries are known; 0 while a state is received."""
        return 0 if self._stream.amid else self._stream.applied

    def on(self, frame: MergerQueries | LedgerBatch | LedgerTip) -> bool:
        """Takes a message of the ledger's stream; returns whether `applied` has risen."""
        before = self.applied
        match frame:
            case LedgerTip():
                self._requests += self._stream.hear(frame.lsn)
            case MergerQueries():
                self._stream.add(frame.lsn_from, frame.lsn_to, frame)
            case LedgerBatch():
                if self._stream.fetched(frame):
                    self.names, self.owners = QueryNames(), QueryOwners()
                    self._deleted.clear()
        while (now := self._stream.next()) is not None:
            if len(now.sessions):
                self._follow_sessions(now)
            rows = QueryRows.decode(now.rows.data) if isinstance(now, LedgerBatch) else now
            self._apply_rows(rows)
        if isinstance(frame, LedgerBatch):
            self._requests += self._stream.ask()
        return self.applied > before

    def skip(self, after: int, lsn: int) -> bool:
        """Notes that no update in after + 1..lsn concerns this merger; returns whether `applied`
        has risen."""
        return self._stream.skip(after, lsn)

    def take_requests(self) -> list[Send]:
        """Returns the requests for missing updates that `on` has made."""
        requests, self._requests = self._requests, []
        return requests

    def tick(self) -> list[Send]:
        """Requests again what was missing at the last tick already."""
        return self._stream.tick()

    def of(self, handles: I64) -> StringColumn:
        """Returns the ids of these handles. Raises KeyError for an unknown one."""
        if (found := self.names.find(handles)) is not None:
            return found
        known = self.names.known(handles)
        parts = [self.names.of(handles[known]), self._forgotten.of(handles[~known])]
        order = np.argsort(np.concatenate([np.flatnonzero(known), np.flatnonzero(~known)]))
        return take_ragged(*concat_ragged(parts), order)

    def forget(self, lowest: int, last: Callable[[int], int]) -> int:
        """Drops the names of queries that were deleted at or below this LSN, which no batch can
        refer to any more. last(session) is the number of its last pair if pairs of it are kept,
        else 0; the names that such sessions may need are written to the log. Returns the LSN up to
        which that is done."""
        while self._deleted and self._deleted[0].lsn[0] <= min(lowest, self.applied):
            deleted = self._deleted[0]
            cut = int(np.searchsorted(deleted.lsn, lowest, "right"))
            if not self._log_names(deleted.handle[:cut], deleted.session[:cut], last):
                return max(self._kept, int(deleted.lsn[0]) - 1)
            self.names.forget(deleted.handle[:cut])
            self._deleted.popleft()
            if cut < len(deleted.lsn):
                self._deleted.appendleft(_DeletedQueries(*(column[cut:] for column in deleted)))
        self._kept = max(self._kept, min(lowest, self.applied))
        return self._kept

    def _log_names(self, handle: I64, session: I64, last: Callable[[int], int]) -> bool:
        """Writes the names that kept pairs may need to the log; returns whether the log took
        them."""
        order = np.argsort(handle)
        handle, session = handle[order], session[order]
        numbers, which = np.unique(session, return_inverse=True)
        lasts = np.array([last(n) for n in numbers.tolist()], np.int64)[which]
        rows = np.flatnonzero((lasts > 0) & self.names.known(handle))
        if not len(rows):
            return True
        ids = self.names.of(handle[rows])
        return self._forgotten.add(DeadNamesRecord(session[rows], handle[rows], lasts[rows], *ids))

    def _follow_sessions(self, frame: MergerQueries | LedgerBatch) -> None:
        """Follows a change of the tables of sessions. At the begin of a state, no name is known
        yet, so that those of all sessions of the tables can be. Later, what the dispatchers send no
        more is not known any more, though the next change may call for it again."""
        self.maps = SessionMaps.of_record(frame.sessions)
        needed = self.maps.needed_by(self._index)
        owned = self.owned if len(needed) == len(self.owned) else np.zeros_like(needed)
        if isinstance(frame, LedgerBatch) and frame.state:
            # It may be an earlier state, before the tables that call for what is owned here.
            self.owned = sealed(owned | needed)
        elif self.maps.order > self._begun:
            self.owned = sealed(owned & needed)

    def _apply_rows(self, rows: MergerQueries | QueryRows) -> None:
        """Applies the rows that are new and of this merger's sessions."""
        inserts, deletes, rise = part_updates(
            sealed(rows.kind), sealed(rows.lsn), sealed(rows.handle), sealed(rows.session),
            self.owned, self._stream.before,
        )  # fmt: skip
        if not rise:
            inserts = inserts[np.argsort(rows.handle[inserts], kind="stable")]
            deletes = deletes[np.argsort(rows.lsn[deletes], kind="stable")]
        if len(inserts):
            self.owners.add(rows.session[inserts])
            off, ids = rows.id_off, rows.id
            if len(inserts) == len(rows.kind) and rise:
                self.names.add(rows.handle, off, ids)
            else:
                ends = sealed(off[:-1]), sealed(off[1:])
                self.names.add(rows.handle[inserts], *take_spans(*ends, sealed(ids), inserts))
        if len(deletes):
            columns = (rows.lsn, rows.handle, rows.session)
            self._deleted.append(_DeletedQueries(*(column[deletes] for column in columns)))
