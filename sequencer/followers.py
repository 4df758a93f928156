"""How far everyone has come: what is visible, and what nobody needs any more."""

from __future__ import annotations

from collections.abc import Iterable

from ps2stream.protocol.addresses import Address


class Followers:
    """Of the dispatchers and mergers among `peers`; nothing below `watermark` was needed
    before."""

    def __init__(self, peers: Iterable[Address], watermark: int) -> None:
        marked = [peer for peer in peers if peer.role in ("dispatcher", "merger")]
        self.watermark = watermark  # queries deleted at or below it are needed by nobody
        self.visible = 0  # every live dispatcher has applied it
        self._marks = dict.fromkeys(marked, watermark)
        self._applied = {peer.index: 0 for peer in marked if peer.role == "dispatcher"}
        self._fenced: set[Address] = set()

    def fence(self, dispatcher: Address) -> None:
        """It accepts nothing any more; wait for it no longer."""
        self._fenced.add(dispatcher)

    def joined(self, peer: Address) -> None:
        """A new incarnation, which has applied nothing yet."""
        self._fenced.discard(peer)
        if peer.role == "dispatcher":
            self._applied[peer.index] = 0

    @property
    def first(self) -> int:
        """The first dispatcher that is not fenced, else the first."""
        alive = [i for i in sorted(self._applied) if Address("dispatcher", i) not in self._fenced]
        return alive[0] if alive else min(self._applied, default=0)

    def waits_for(self, peer: Address) -> bool:
        return peer not in self._fenced

    def apply(self, dispatcher: int, lsn: int) -> None:
        """It has everything to `lsn`; an old word takes nothing back."""
        self._applied[dispatcher] = max(self._applied[dispatcher], lsn)

    def mark(self, peer: Address, lsn: int) -> bool:
        """It needs nothing that was deleted at or below `lsn`. Whether the watermark rises."""
        self._marks[peer] = max(self._marks[peer], lsn)
        before, self.watermark = self.watermark, max(self.watermark, min(self._marks.values()))
        return self.watermark > before

    def see(self, end: int) -> bool:
        """Whether more has become visible; `end` where nobody is waited for."""
        waited = [
            lsn for i, lsn in self._applied.items() if Address("dispatcher", i) not in self._fenced
        ]
        before, self.visible = self.visible, max(self.visible, min(waited, default=end))
        return self.visible > before
