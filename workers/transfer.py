"""The transfer of queries that a following plan gives a worker.

They come from the ledger, never from their present owner (contract.md 3), in chunks, while the
worker goes on matching. The worker requests those that meet the box of the cells whose owners
change, and of the words alone if only words are replicated. Their deletes come in LSN order with
everything else, perhaps before the query itself: they are kept and applied again after it.
"""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.addresses import SEQUENCER, Send
from ps2stream.protocol.frame import I64
from ps2stream.protocol.messages.plan import TransferChunk, TransferRequest
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.protocol.ticks import TRANSFER_TICKS
from ps2stream.routing.plan_follower import GainedUnits


class QueryTransfer:
    """The transfer to one worker of queries that were inserted up to the LSN `begun`. Complete
    at once when `gained` is None: nothing is gained."""

    def __init__(self, worker: int, begun: int, gained: GainedUnits | None) -> None:
        self._worker = worker
        self._begun = begun
        self._gained = gained
        self._after = begun if gained is None else 0
        self._deleted: list[tuple[I64, I64]] = []  # handles, LSNs
        self._ticks = 0

    @property
    def done(self) -> bool:
        """Returns whether there is nothing more to transfer."""
        return self._after >= self._begun

    def ask(self) -> list[Send]:
        """Requests the next chunk, unless there is none."""
        if self.done or self._gained is None:
            return []
        self._ticks = 0
        request = TransferRequest(self._worker, self._begun, self._after, *self._gained)
        return [Send(SEQUENCER, request)]

    def tick(self) -> list[Send]:
        """Requests the chunk again if nothing came for long."""
        self._ticks += 1
        return self.ask() if self._ticks >= TRANSFER_TICKS else []

    def note(self, handles: I64, lsns: I64) -> None:
        """Notes that these queries were deleted meanwhile."""
        if not self.done:
            self._deleted.append((handles, lsns))

    def take(self, frame: TransferChunk) -> tuple[QueryRows, I64, I64] | None:
        """Takes a chunk in; returns (inserts, handles and LSNs of the deletes among them), or
        None for a chunk that was not requested."""
        if frame.begun != self._begun or frame.after != self._after or self.done:
            return None
        self._after = frame.last
        rows = QueryRows.decode(frame.rows.data)
        gone = rows.kind == UpdateKind.DELETE
        found = rows.take(np.flatnonzero(~gone))
        handle = np.concatenate([rows.handle[gone], *(h for h, _ in self._deleted)])
        lsn = np.concatenate([rows.lsn[gone], *(at for _, at in self._deleted)])
        handle, first = np.unique(handle, return_index=True)
        mine = np.isin(handle, found.handle)
        if frame.last >= self._begun:
            self._deleted.clear()
        return found, handle[mine], lsn[first][mine]
