"""The sequencer's part in moves of sessions between mergers (docs/decisions/0036).

A request for another number of mergers is granted once they run: a record of the ledger then has
the new table of sessions. The mergers move what it says, and report when they hold it; then another
record says that nothing is left at the mergers of before. One change is under way at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.addresses import Address, Send, nothing
from ps2stream.protocol.frame import U8
from ps2stream.protocol.messages.handover import MergersReply, MergersRequest, SessionsHeld
from ps2stream.protocol.messages.updates import LedgerBatch, NamesKept
from ps2stream.protocol.ports import LedgerChange
from ps2stream.protocol.session_map import SessionMap, SessionMaps
from ps2stream.sequencer.followers import FollowerProgress

ASKED_TICKS = 300
"""Ticks after which mergers that were requested are no longer wanted."""


def describe_change(batch: LedgerBatch, watermark: int) -> LedgerChange:
    """Returns the change of the ledger with this batch, whose `sessions` are a record."""
    maps, lsn = SessionMaps.of_record(batch.sessions), batch.lsn_to
    producers = maps.producers
    return LedgerChange(
        batch,
        watermark=watermark,
        mergers=maps.mergers,
        moves=f"{lsn} moving" if maps.is_changing else str(lsn),
        dispatchers=None if producers is None else producers.summary,
    )


class SessionMoves:
    """The tables of sessions, of a service that began with this number of `mergers`. `peers` gains
    the mergers that come; `commit` commits a record for its owner, a dispatcher, and returns what
    is to be sent."""

    def __init__(
        self,
        mergers: int,
        peers: list[Address],
        followers: FollowerProgress,
        commit: Callable[[U8, int], list[Send]],
    ) -> None:
        self.maps = SessionMaps(SessionMap.first(mergers))
        self.changed = False  # whether the ledger has a record of a change
        self.listeners: list[Callable[[], None]] = []  # called when the tables have changed
        self._peers = peers
        self._followers = followers
        self.commit = commit
        self._running = sum(peer.role == "merger" for peer in peers)
        self._wanted = (0, 0)  # requested mergers, and for how many ticks they are wanted
        self._held: set[int] = set()  # mergers that hold what the table gives them

    @property
    def counters(self) -> dict[str, int]:
        """Present figures."""
        return {"mergers": self.maps.now.mergers, "moving_sessions": int(self._is_under_way)}

    def run(self, mergers: int) -> int:
        """Takes the number of mergers that run now, or will at once; returns how many should."""
        self._running = mergers
        self._list_peers()
        return max(self._wanted[0], self.maps.mergers)

    def apply(self, record: U8) -> None:
        """Applies a record that is in the ledger."""
        self.maps = SessionMaps.of_record(record)
        self.changed = True
        self._held.clear()
        self._followers.count_mergers(self.maps.mergers)
        self._followers.reopen(Address("merger", i) for i in self._gaining)
        self._list_peers()
        for listener in self.listeners:
            listener()

    def make_record(self) -> U8:
        """Returns the record of the tables in force; empty if the ledger has never changed them."""
        return self.maps.record() if self.changed else nothing()

    def tick(self) -> list[Send]:
        """Does periodic work, ten times a second."""
        mergers, left = self._wanted
        self._wanted = (mergers, left - 1) if left > 1 else (0, 0)
        return self._finish()

    def note_held(self, frame: SessionsHeld) -> list[Send]:
        """Notes that a merger holds all that the table gives it."""
        if self._is_under_way and frame.lsn == self.maps.now.lsn:
            self._held.add(frame.merger)
        return self._finish()

    def find_kept(self, frame: NamesKept) -> int:
        """Returns the LSN up to which a merger needs no more names; 0 for what it says of the
        sessions that it had before a move, which may have given it others."""
        return frame.lsn if frame.table >= self.maps.now.lsn else 0

    def answer(self, request: MergersRequest, to: Address, lsn: int) -> list[Send]:
        """Changes the number of mergers as requested, if possible, and reports it; lsn: the last of
        the ledger."""
        out: list[Send] = []
        wait = 0
        try:
            problem, out = self._begin(request.mergers, request.dispatcher, lsn)
        except StoreFailed:
            raise
        except Unavailable as error:
            problem, wait = str(error), 1
        return [*out, Send(to, MergersReply.make(request.seq, self.maps, wait, problem))]

    @property
    def _is_under_way(self) -> bool:
        return self.maps.before is not None

    @property
    def _gaining(self) -> set[int]:
        """The mergers that gain sessions by the move that is under way."""
        return {m for m in range(self.maps.mergers) if self.maps.sources_of(m)}

    def _begin(self, mergers: int, owner: int, lsn: int) -> tuple[str, list[Send]]:
        """Returns why nothing is done, or what is to be sent. Raises Unavailable while not all of
        the mergers run."""
        if not mergers or mergers == self.maps.now.mergers:
            return "", []
        if self._is_under_way:
            target = self.maps.now.mergers
            return f"mergers: sessions are still moving to {target} mergers; try again later", []
        if self.maps.is_changing:
            return "mergers: the number of dispatchers is changing; try again later", []
        if mergers > self._running:
            self._wanted = (mergers, ASKED_TICKS)
            raise Unavailable(
                f"mergers: {mergers} are needed; {self._running} are running, and the others are "
                "being started"
            )
        self._wanted = (0, 0)
        now = self.maps.now
        maps = self.maps._replace(now=now.spread(mergers, lsn + 1), before=now)
        return "", self.commit(maps.record(), owner)

    def _finish(self) -> list[Send]:
        """Ends the change if every merger that gains sessions holds them."""
        if not self._is_under_way:
            return []
        if not self._held >= self._gaining:
            return []
        try:
            return self.commit(self.maps.finished().record(), self._followers.first)
        except StoreFailed:
            raise
        except Unavailable:
            return []  # it is still due at the next tick

    def _list_peers(self) -> None:
        """Makes the mergers that run, or are in a table, peers, and no others."""
        count = max(self._running, self.maps.mergers)
        others = [peer for peer in self._peers if peer.role != "merger"]
        self._peers[:] = [*others, *(Address("merger", i) for i in range(count))]
