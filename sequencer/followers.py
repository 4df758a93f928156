"""The progress of dispatchers and mergers: what is visible, and what nobody needs any more."""

from __future__ import annotations

from collections.abc import Iterable

from ps2stream.protocol.addresses import Address


class FollowerProgress:
    """Tracks the dispatchers and mergers among `peers`. When it starts, nothing below `watermark`
    is needed any more."""

    def __init__(self, peers: Iterable[Address], watermark: int) -> None:
        marked = [peer for peer in peers if peer.role in ("dispatcher", "merger")]
        self.watermark = watermark  # nobody needs queries that were deleted at or below it
        self.visible = 0  # every live dispatcher has applied it
        self._marks = dict.fromkeys(marked, watermark)
        self._applied = {peer.index: 0 for peer in marked if peer.role == "dispatcher"}
        self._fenced: set[Address] = set()

    def fence(self, dispatcher: Address) -> None:
        """Stops waiting for a dispatcher, which accepts nothing any more."""
        self._fenced.add(dispatcher)

    def joined(self, peer: Address) -> None:
        """Takes in a new incarnation of a peer, which has applied nothing yet."""
        self._fenced.discard(peer)
        if peer.role == "dispatcher" and peer.index in self._applied:
            self._applied[peer.index] = 0

    @property
    def first(self) -> int:
        """The first dispatcher that is not fenced; the first one if all are."""
        alive = [i for i in sorted(self._applied) if Address("dispatcher", i) not in self._fenced]
        return alive[0] if alive else min(self._applied, default=0)

    def waits_for(self, peer: Address) -> bool:
        return peer not in self._fenced

    def apply(self, dispatcher: int, lsn: int) -> None:
        """Notes that a dispatcher has applied everything to `lsn`; a lower one changes nothing."""
        if dispatcher in self._applied:  # otherwise it does not count yet
            self._applied[dispatcher] = max(self._applied[dispatcher], lsn)

    def mark(self, peer: Address, lsn: int) -> bool:
        """Notes that a peer needs nothing that was deleted at or below `lsn`; returns whether the
        watermark has risen."""
        if peer in self._marks:  # otherwise it does not count yet, or not any more
            self._marks[peer] = max(self._marks[peer], lsn)
        before, self.watermark = self.watermark, max(self.watermark, min(self._marks.values()))
        return self.watermark > before

    def reopen(self, mergers: Iterable[Address]) -> None:
        """Forgets what mergers needed no more, as they gain sessions with pairs of queries that
        nobody has forgotten yet."""
        self._marks |= {merger: self.watermark for merger in mergers if merger in self._marks}

    def count_mergers(self, mergers: int) -> None:
        """Follows so many mergers from now on; those that are new need what is not forgotten."""
        others = {peer: lsn for peer, lsn in self._marks.items() if peer.role != "merger"}
        names = [Address("merger", i) for i in range(mergers)]
        self._marks = others | {peer: self._marks.get(peer, self.watermark) for peer in names}

    def count_dispatchers(self, dispatchers: int) -> None:
        """Follows so many dispatchers from now on. One that is new has applied nothing that counts,
        and needs what is not forgotten."""
        self._fenced -= {Address("dispatcher", i) for i in range(len(self._applied), dispatchers)}
        self._applied = {i: self._applied.get(i, 0) for i in range(dispatchers)}
        others = {peer: lsn for peer, lsn in self._marks.items() if peer.role != "dispatcher"}
        names = [Address("dispatcher", i) for i in range(dispatchers)]
        self._marks = others | {peer: self._marks.get(peer, self.watermark) for peer in names}

    def see(self, end: int) -> bool:
        """Raises `visible`, to `end` if all dispatchers are fenced; returns whether it rose."""
        waited = [
            lsn for i, lsn in self._applied.items() if Address("dispatcher", i) not in self._fenced
        ]
        before, self.visible = self.visible, max(self.visible, min(waited, default=end))
        return self.visible > before
