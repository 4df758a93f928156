"""Which update was the last that concerns each worker and each merger.

An update concerns the workers that own one of its postings and the merger of its session; a plan
change concerns all. Others need not wait for it: every dispatcher computes this alike from the
ledger, so a receiver that has applied the last update that concerns it has applied all.
"""

from __future__ import annotations

import numpy as np

from ps2stream.dispatcher.kernels import raise_last
from ps2stream.protocol.frame import I64, sealed
from ps2stream.routing.unit_kernels import U16


class ReceiverConcerns:
    """The last LSN that concerns each receiver of one role, by index. After a state, in which
    nobody can see what concerned whom, everything counts as concerning all."""

    def __init__(self) -> None:
        self._all = 0  # concerns everybody, those included who are yet to come
        self._last: I64 = np.zeros(0, np.int64)

    def of(self, index: int) -> int:
        """Returns the last LSN that concerns a receiver; 0 without one."""
        last = int(self._last[index]) if index < len(self._last) else 0
        return max(last, self._all)

    def note_all(self, lsn: int) -> None:
        """Notes an update that concerns all."""
        self._all = max(self._all, lsn)

    def note_one(self, index: int, lsn: int) -> None:
        """Notes an update that concerns one receiver."""
        if index >= len(self._last):
            self._last = np.concatenate(
                [self._last, np.zeros(index + 1 - len(self._last), np.int64)]
            )
        self._last[index] = max(int(self._last[index]), lsn)

    def note(self, off: I64, receiver: U16, lsn: I64) -> None:
        """Notes that each update concerns some receivers: the one with lsn[i] those of index
        receiver[off[i] : off[i + 1]]. off int64[n + 1], receiver uint16[], lsn int64[n]."""
        columns = sealed(off), sealed(receiver), sealed(lsn)
        if size := raise_last(*columns, self._last):
            self._make_room(size)
            raise_last(*columns, self._last)

    def _make_room(self, size: int) -> None:
        if (more := size - len(self._last)) > 0:
            self._last = np.concatenate([self._last, np.zeros(more, np.int64)])
