"""The sessions of a merger that move, and the streams that come before them."""

from __future__ import annotations

from typing import NamedTuple

from ps2stream.merger.arriving import ArrivingSessions
from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.leaving import LeavingSessions
from ps2stream.merger.recovery import RecoveredState
from ps2stream.merger.sessions import make_closing
from ps2stream.merger.subscribers import MergerSessions
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.handover import (
    HandoverDropped,
    HandoverNumbers,
    HandoverRecords,
    HandoverRequest,
)
from ps2stream.protocol.messages.sessions import StreamAttach, StreamCredit, StreamDetach
from ps2stream.protocol.session_map import SessionMaps

HandoverFrame = HandoverRequest | HandoverNumbers | HandoverRecords | HandoverDropped
StreamFrame = StreamAttach | StreamCredit | StreamDetach


class HandoverTurn(NamedTuple):
    """The outcome of a message: what is to be sent, and whether batches that waited may be
    processed now."""

    sends: list[Send]
    may_process: bool = False


class MovingSessions:
    """What merger `index` gives and takes, by the tables `maps`."""

    def __init__(
        self,
        index: int,
        maps: SessionMaps,
        sessions: MergerSessions,
        journal: MatchJournal,
        found: RecoveredState,
    ) -> None:
        self._index = index
        self.maps = maps
        self._sessions = sessions
        self._arriving = ArrivingSessions(index, sessions, journal, found.taken, found.arrived)
        self._leaving = LeavingSessions(index, sessions, journal)
        self._early: dict[int, StreamAttach] = {}  # by session, of those that are not here yet

    @property
    def is_active(self) -> bool:
        """True while the log must keep what it has of sessions that move."""
        return self._arriving.is_active or self._leaving.is_active

    @property
    def is_arriving(self) -> bool:
        """True while sessions come from other mergers."""
        return self._arriving.is_active

    @property
    def hold_from(self) -> int:
        """The LSN from which on batches must wait; see ArrivingSessions."""
        return self._arriving.hold_from

    def follow(self, maps: SessionMaps) -> None:
        """Follows a change of the tables."""
        self.maps = maps
        self._leaving.follow(maps)
        self._arriving.follow(maps)

    def on(self, frame: HandoverFrame, watermark: int, knows_names: bool) -> HandoverTurn:
        """Handles a message of another merger. watermark: batches of a lower LSN are complete."""
        out: list[Send] = []
        may_process = False
        match frame:
            case HandoverRequest():
                return HandoverTurn(self._leaving.answer(frame, watermark))
            case HandoverNumbers():
                may_process = self._arriving.take_numbers(frame)
            case HandoverRecords():
                if self._arriving.take_records(frame):
                    out = self.open_early(knows_names)
            case HandoverDropped():
                self._arriving.take_dropped(frame)
        return HandoverTurn(out + self._arriving.make_requests(knows_names), may_process)

    def on_stream(self, frame: StreamFrame, knows_names: bool) -> list[Send]:
        """Handles a message about a stream, if it is for this merger. A stream that comes before
        its session waits for it; a credit does not, as it is repeated."""
        session, now = frame.session, self.maps.now
        is_mine = now.merger_of(session) == self._index
        if isinstance(frame, StreamDetach):
            early = self._early.get(session)
            if early is not None and early.epoch <= frame.epoch:
                del self._early[session]
            return self._sessions.on(frame) if is_mine else []
        is_ahead = frame.since > now.lsn
        if not is_ahead and not is_mine:
            return []
        if not is_ahead and knows_names and self._arriving.has(session):
            return self._sessions.on(frame)
        return self._keep_early(frame) if isinstance(frame, StreamAttach) else []

    def open_early(self, knows_names: bool) -> list[Send]:
        """Opens the streams that have waited for their sessions."""
        early, self._early = self._early, {}
        return [send for frame in early.values() for send in self.on_stream(frame, knows_names)]

    def joined(self, address: Address, knows_names: bool) -> list[Send]:
        """Handles a new incarnation of a peer."""
        if address.role == "dispatcher":
            early = self._early.items()
            self._early = {n: a for n, a in early if a.dispatcher != address.index}
        if address.role == "merger":
            self._arriving.joined(address.index)
        return self._arriving.make_requests(knows_names)

    def tick(self, knows_names: bool) -> list[Send]:
        """Does periodic work, ten times a second."""
        return self._arriving.make_requests(knows_names, tick=True)

    def make_requests(self, knows_names: bool) -> list[Send]:
        """Returns what is to be requested of other mergers now."""
        return self._arriving.make_requests(knows_names)

    def continue_answers(self, watermark: int) -> list[Send]:
        """Answers the requests of other mergers that have waited for this watermark."""
        return self._leaving.continue_answers(watermark) if self._leaving.has_waiting else []

    def _keep_early(self, attach: StreamAttach) -> list[Send]:
        """Keeps a stream that comes before its session. Of two, the one of the lower epoch is
        closed at once: every stream that is still open gets a new epoch if sessions move again."""
        early = self._early.get(attach.session, attach)
        first, last = (attach, early) if attach.epoch < early.epoch else (early, attach)
        self._early[attach.session] = last
        if first.epoch == last.epoch:
            return []
        return [make_closing(first.session, first.epoch, first.dispatcher, 1)]
