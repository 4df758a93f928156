"""The LSN stream as a merger follows it: names of queries that come, and go when no batch and
no kept pair can need them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ps2stream.merger.forgotten import Forgotten
from ps2stream.merger.names import Names
from ps2stream.merger.records import DeadNames
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.follower import Follower
from ps2stream.protocol.frame import I64, U8, concat_ragged, take_ragged
from ps2stream.protocol.messages.updates import Applied, MergerQueries, Tip
from ps2stream.protocol.rows import Kind, QueryRows
from ps2stream.protocol.wire import StringColumn


class _Deleted(NamedTuple):
    """Deletes, their LSNs rising."""

    lsn: I64
    handle: I64
    session: I64


class Updates:
    """The names that merger `index` of `mergers` needs: those of its sessions' queries."""

    def __init__(self, index: int, mergers: int, forgotten: Forgotten) -> None:
        self._index = index
        self._mergers = mergers
        self.names = Names()
        self._forgotten = forgotten
        self._stream: Follower[MergerQueries] = Follower("merger", index)
        self._asks: list[Send] = []
        self._deleted: deque[_Deleted] = deque()
        self._kept = 0

    @property
    def applied(self) -> int:
        """All queries up to this LSN are known; 0 while the state is received."""
        return 0 if self._stream.amid else self._stream.applied

    def on(self, frame: MergerQueries | Applied | Tip) -> bool:
        """Whether `applied` has risen."""
        before = self.applied
        match frame:
            case Tip():
                self._asks += self._stream.hear(frame.lsn)
            case MergerQueries():
                self._stream.add(frame.lsn_from, frame.lsn_to, frame)
            case Applied():
                if self._stream.fetched(frame):
                    self.names = Names()
                    self._deleted.clear()
        while (now := self._stream.next()) is not None:
            rows = QueryRows.decode(now.rows.data) if isinstance(now, Applied) else now
            self._learn(rows)
        if isinstance(frame, Applied):
            self._asks += self._stream.ask()
        return self.applied > before

    def asks(self) -> list[Send]:
        """What is to be asked for after `on`."""
        asks, self._asks = self._asks, []
        return asks

    def tick(self) -> list[Send]:
        """Ask again for what is missing since the last tick."""
        return self._stream.tick()

    def of(self, handles: I64) -> StringColumn:
        """The ids of these handles. Raises KeyError for an unknown one."""
        known = self.names.known(handles)
        if known.all():
            return self.names.of(handles)
        parts = [self.names.of(handles[known]), self._forgotten.of(handles[~known])]
        order = np.argsort(np.concatenate([np.flatnonzero(known), np.flatnonzero(~known)]))
        return take_ragged(*concat_ragged(parts), order)

    def forget(self, lowest: int, last: Callable[[int], int]) -> int:
        """Let go of the names of queries that were deleted at or below this LSN: no batch can
        name them any more. last(session) is the number of its last pair if pairs of it are
        kept, else 0; their names go to the log. Returns the LSN to which that is done."""
        while self._deleted and self._deleted[0].lsn[0] <= min(lowest, self.applied):
            deleted = self._deleted[0]
            cut = int(np.searchsorted(deleted.lsn, lowest, "right"))
            if not self._bury(deleted.handle[:cut], deleted.session[:cut], last):
                return max(self._kept, int(deleted.lsn[0]) - 1)
            self.names.forget(deleted.handle[:cut])
            self._deleted.popleft()
            if cut < len(deleted.lsn):
                self._deleted.appendleft(_Deleted(*(column[cut:] for column in deleted)))
        self._kept = max(self._kept, min(lowest, self.applied))
        return self._kept

    def _bury(self, handle: I64, session: I64, last: Callable[[int], int]) -> bool:
        order = np.argsort(handle)
        handle, session = handle[order], session[order]
        numbers, which = np.unique(session, return_inverse=True)
        lasts = np.array([last(n) for n in numbers.tolist()], np.int64)[which]
        rows = np.flatnonzero((lasts > 0) & self.names.known(handle))
        if not len(rows):
            return True
        ids = self.names.of(handle[rows])
        return self._forgotten.add(DeadNames(session[rows], handle[rows], lasts[rows], *ids))

    def _learn(self, rows: MergerQueries | QueryRows) -> None:
        """The rows that are new and of this merger's sessions."""
        mine = (rows.session % self._mergers == self._index) & (rows.lsn > self._stream.before)
        inserts = np.flatnonzero(mine & (rows.kind == Kind.INSERT))
        deletes = np.flatnonzero(mine & (rows.kind == Kind.DELETE))
        inserts = inserts[np.argsort(rows.handle[inserts], kind="stable")]
        deletes = deletes[np.argsort(rows.lsn[deletes], kind="stable")]
        ids: tuple[I64, U8] = take_ragged(rows.id_off, rows.id, inserts)
        self.names.add(rows.handle[inserts], *ids)
        if len(deletes):
            columns = (rows.lsn, rows.handle, rows.session)
            self._deleted.append(_Deleted(*(column[deletes] for column in columns)))
