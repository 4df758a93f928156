"""Messages that are encoded once, for the ledger and for those who are sent them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np

from ps2stream.protocol.addresses import nothing
from ps2stream.protocol.frame import U64, Frame
from ps2stream.protocol.messages.updates import LedgerBatch, UpdateDecision
from ps2stream.protocol.ports import NamedUpdates


class _EncodedOnce(Frame):
    def encode(self) -> bytes:
        """Returns the same bytes as the class that it has its fields from."""
        encoded: bytes | None = self.__dict__.get("_encoded")
        if encoded is None:
            encoded = self.__dict__["_encoded"] = super().encode()
        return encoded

    @classmethod
    def _wrap(cls, room: U64, values: Mapping[str, object]) -> Self:
        """Returns a frame with these fields that is encoded in `room` already."""
        frame = object.__new__(cls)
        frame.__dict__.update(values, _encoded=room.data.cast("B").toreadonly())
        return frame


class CommittedBatch(_EncodedOnce, LedgerBatch):
    """A batch of the ledger's log."""

    @classmethod
    def finish(cls, room: U64, lsn_from: int, lsn_to: int, owner: int) -> CommittedBatch:
        """Returns the batch whose encoded rows are in `room` behind that of its head."""
        rows = room.view(np.uint8)[cls.head_bytes() :]
        cls.write_head(room, [lsn_from, lsn_to, owner, 0, 0, len(rows), 0])
        rows.flags.writeable = False
        span = {"lsn_from": lsn_from, "lsn_to": lsn_to, "owner": owner}
        rest = {"state": 0, "until": 0, "rows": rows, "strategy": nothing()}
        return cls._wrap(room, span | rest)


class CommittedDecision(_EncodedOnce, UpdateDecision):
    """An answer that the ledger keeps."""


class CommittedRequests(_EncodedOnce, NamedUpdates):
    """Request ids that the ledger remembers."""

    @classmethod
    def view(cls, room: U64) -> CommittedRequests:
        """Returns those that are encoded in `room`."""
        return cls._wrap(room, NamedUpdates.decode(room.data.cast("B").toreadonly()).__dict__)
