"""The announcement of how far the ledger goes: what was sent of it may be lost."""

from __future__ import annotations

from collections.abc import Sequence

from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.updates import LedgerTip
from ps2stream.protocol.ticks import REPEAT_TICKS
from ps2stream.sequencer.followers import FollowerProgress


class TipAnnouncer:
    """Makes tips: the last LSN of the ledger, and the one that every live dispatcher has applied.
    A tip goes to all `peers` when it is new, and then ever more seldom."""

    def __init__(self, peers: Sequence[Address], followers: FollowerProgress) -> None:
        self._peers = peers
        self._followers = followers
        self._last, self._age = (-1, -1), 0  # at the last tick; ticks since it changed

    def make(self, peers: Sequence[Address], lsn: int) -> list[Send]:
        """Makes tips for these peers except for fenced ones: a dispatcher that starts would take
        for visible what is visible only without it."""
        tip = LedgerTip(lsn, self._followers.visible)
        return [Send(to, tip) for to in peers if self._followers.waits_for(to)]

    def announce_visible(self, lsn: int) -> list[Send]:
        """Makes tips for the dispatchers if more has become visible."""
        if not self._followers.see(lsn):
            return []
        return self.make([peer for peer in self._peers if peer.role == "dispatcher"], lsn)

    def tick(self, lsn: int) -> list[Send]:
        """Makes tips for all peers if they are due."""
        tip = (lsn, self._followers.visible)
        self._age = self._age + 1 if tip == self._last else 0
        self._last = tip
        is_due = not self._age & (self._age - 1) or not self._age % REPEAT_TICKS
        return self.make(self._peers, lsn) if is_due else []

    def joined(self, peer: Address, lsn: int) -> list[Send]:
        """Makes the tip for a new incarnation of a peer. It may be lost, too."""
        self._age = 0
        return self.make([peer], lsn)
