"""The sequencer's part when dispatchers join or leave (docs/decisions/0037, 0038).

A request for more dispatchers is granted once they run: a record of the ledger then has the new
number, and from then on they count. Producers move, with their windows; the dispatchers report when
they hold these, and those that leave when nothing of them is under way. Then another record says
that nothing is left where it was before, and those that have left count no more.
"""

from __future__ import annotations

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.handover import DispatchersReply, DispatchersRequest
from ps2stream.protocol.messages.publications import DispatcherEmptied, WindowsHeld
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.sequencer.followers import FollowerProgress
from ps2stream.sequencer.plan_changes import PlanChangeDriver
from ps2stream.sequencer.session_moves import ASKED_TICKS, SessionMoves


class DispatcherGrowth:
    """The dispatchers of a service that began with this number of them, or with all `peers`.
    `running`: those that run, of which the last ones may not count yet; `peers` gains those that
    come. `moves` holds the tables that the ledger has, and commits them."""

    def __init__(
        self,
        dispatchers: int | None,
        peers: list[Address],
        followers: FollowerProgress,
        plans: PlanChangeDriver,
        moves: SessionMoves,
    ) -> None:
        self._peers = peers
        self._followers = followers
        self._plans = plans
        self._moves = moves
        self.running = [peer for peer in peers if peer.role == "dispatcher"]
        first = len(self.running) if dispatchers is None else dispatchers
        self._first = ProducerMap.first(first)
        self._wanted = (0, 0)  # requested dispatchers, and for how many ticks they are wanted
        self._held: set[int] = set()  # dispatchers that hold the windows of their producers
        self._emptied: dict[int, int] = {}  # those that may leave: the end of their valid objects
        moves.listeners.append(self._follow)
        self._follow()

    @property
    def producers(self) -> ProducerMap:
        """How many dispatchers there are."""
        return self._moves.maps.producers or self._first

    @property
    def counters(self) -> dict[str, int]:
        """Present figures."""
        producers = self.producers
        return {
            "dispatchers": producers.dispatchers, "moving_producers": int(producers.is_moving)
        }  # fmt: skip

    def counts(self, dispatcher: int) -> bool:
        """Returns whether this dispatcher is one yet, or still."""
        return dispatcher < self.producers.counted

    def run(self, dispatchers: int) -> int:
        """Takes the number of dispatchers that run now, or will at once; returns how many
        should."""
        self.running[:] = [Address("dispatcher", i) for i in range(dispatchers)]
        self._list_peers()
        return max(self._wanted[0], self.producers.counted)

    def tick(self) -> list[Send]:
        """Does periodic work, ten times a second."""
        dispatchers, left = self._wanted
        self._wanted = (dispatchers, left - 1) if left > 1 else (0, 0)
        return self._finish()

    def note(self, frame: WindowsHeld | DispatcherEmptied) -> list[Send]:
        """Notes that a dispatcher holds the windows of all producers that it remembers, or that
        nothing of one that leaves is under way."""
        if self.producers.is_moving and frame.lsn == self.producers.lsn:
            if isinstance(frame, WindowsHeld):
                self._held.add(frame.dispatcher)
            else:
                self._emptied[frame.dispatcher] = frame.left_out
        return self._finish()

    def answer(self, request: DispatchersRequest, lsn: int) -> list[Send]:
        """Changes the number of dispatchers as requested, if possible, and reports it; lsn: the
        last of the ledger."""
        out: list[Send] = []
        wait = 0
        try:
            problem, out = self._begin(request.dispatchers, request.dispatcher, lsn)
        except StoreFailed:
            raise
        except Unavailable as error:
            problem, wait = str(error), 1
        reply = DispatchersReply.make(request.seq, self.producers, wait, problem)
        return [*out, Send(Address("dispatcher", request.dispatcher), reply)]

    def _begin(self, dispatchers: int, owner: int, lsn: int) -> tuple[str, list[Send]]:
        """Returns why nothing is done, or what is to be sent. Raises Unavailable while not all of
        the dispatchers run."""
        now = self.producers
        if not dispatchers or dispatchers == now.dispatchers:
            return "", []
        if now.is_moving:
            count = now.dispatchers
            return f"dispatchers: producers still move to {count} of them; try again later", []
        if self._moves.maps.before is not None:
            return "dispatchers: sessions are moving between mergers; try again later", []
        if dispatchers > len(self.running):
            self._wanted = (dispatchers, ASKED_TICKS)
            raise Unavailable(
                f"dispatchers: {dispatchers} are needed; {len(self.running)} are running, and the "
                "others are being started"
            )
        self._wanted = (0, 0)
        return "", self._record(now.changed(dispatchers, lsn + 1), owner)

    def _finish(self) -> list[Send]:
        """Ends the change if every dispatcher holds the windows of its producers, and nothing of
        those that leave is under way."""
        producers = self.producers
        if not producers.is_moving or not self._held >= set(range(producers.dispatchers)):
            return []
        if not self._emptied.keys() >= set(range(producers.dispatchers, producers.before)):
            return []
        try:
            finished = producers.finished(max(self._emptied.values(), default=0))
            return self._record(finished, self._followers.first)
        except StoreFailed:
            raise
        except Unavailable:
            return []  # it is still due at the next tick

    def _record(self, producers: ProducerMap, owner: int) -> list[Send]:
        return self._moves.commit(self._moves.maps._replace(producers=producers).record(), owner)

    def _follow(self) -> None:
        """Follows what the ledger says."""
        self._held.clear()
        self._emptied.clear()
        self._list_peers()
        dispatchers = self.producers.counted
        self._followers.count_dispatchers(dispatchers)
        self._plans.count_dispatchers(dispatchers)

    def _list_peers(self) -> None:
        """Makes the dispatchers that run, or count, peers, and no others."""
        for index in range(len(self.running), self.producers.counted):
            self.running.append(Address("dispatcher", index))
        others = [peer for peer in self._peers if peer.role != "dispatcher"]
        self._peers[:] = [*others, *self.running]
