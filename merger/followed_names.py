"""The names of the queries of a merger's sessions, also while it takes over those of others."""

from __future__ import annotations

import numpy as np

from ps2stream.merger.forgotten import ForgottenNames
from ps2stream.merger.updates import MergerUpdates
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.frame import I64, sealed
from ps2stream.protocol.messages.updates import LedgerBatch, LedgerTip, MergerQueries
from ps2stream.protocol.session_map import SessionMaps
from ps2stream.protocol.wire import StringColumn


class FollowedNames:
    """Follows the ledger for merger `index`, which begins with these tables of sessions.

    When the tables give it other sessions, it fetches the names of all of them beside those that it
    has, and goes on with the new ones once they are as recent. So no other session waits."""

    def __init__(self, index: int, maps: SessionMaps, forgotten: ForgottenNames) -> None:
        self._index = index
        self._forgotten = forgotten
        self._present = MergerUpdates(index, maps.needed_by(index), maps, forgotten)
        self._coming: MergerUpdates | None = None

    @property
    def applied(self) -> int:
        """The LSN up to which all queries are known; 0 while a state is received."""
        return self._present.applied

    @property
    def maps(self) -> SessionMaps:
        """The tables of sessions as of `applied`."""
        return self._present.maps

    @property
    def is_fetching(self) -> bool:
        """True while names of sessions that the tables give this merger are not here."""
        return self._coming is not None

    @property
    def updates(self) -> MergerUpdates:
        """The names and owners that are known."""
        return self._present

    def on(self, frame: MergerQueries | LedgerBatch | LedgerTip) -> tuple[bool, list[Send]]:
        """Takes a message of the ledger's stream; returns whether more is known now, and what is to
        be sent. Answers to fetches are for the names that are coming, as there is one fetch at a
        time."""
        coming, is_more, out = self._coming, False, []
        if coming is None or not isinstance(frame, LedgerBatch):
            is_more = self._present.on(frame)
            out = self._present.take_requests()
        if coming is not None:
            coming.on(frame)
            out = coming.take_requests()
            is_more |= self._switch()
        return is_more, out

    def skip(self, after: int, lsn: int) -> bool:
        """Notes that no update in after + 1..lsn concerns this merger; returns whether more is
        known now."""
        is_more = self._present.skip(after, lsn)
        if self._coming is not None:
            self._coming.skip(after, lsn)
            is_more |= self._switch()
        return is_more

    def follow(self, maps: SessionMaps) -> list[Send]:
        """Fetches the names that these tables need, if they are not known."""
        needed, owned = maps.needed_by(self._index), self._present.owned
        self._coming = None
        if len(owned) != len(needed):
            owned = np.zeros_like(needed)
        is_same = np.array_equal(needed, owned)
        # What the dispatchers send no more is not known from now on.
        self._present.owned = sealed(owned & needed)
        if not needed.any() or is_same:
            return []
        self._coming = MergerUpdates(self._index, needed, maps, self._forgotten)
        self._coming.on(LedgerTip(self._present.applied, 0))
        return self._coming.take_requests()

    def tick(self) -> list[Send]:
        """Requests again what was missing at the last tick already."""
        return (self._coming or self._present).tick()

    def of(self, handles: I64) -> StringColumn:
        """Returns the ids of these handles. Raises KeyError for an unknown one."""
        return self._present.of(handles)

    def _switch(self) -> bool:
        """Goes on with the names that are coming if they are recent; returns whether it does."""
        coming = self._coming
        if coming is None or coming.applied < max(self._present.applied, 1):
            return False
        self._present, self._coming = coming, None
        return True
