"""Messages that are encoded once, for the ledger and for those who are sent them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from ps2stream.protocol.addresses import nothing
from ps2stream.protocol.frame import I64, U8, U64, Frame
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
        fields = frame.__dict__
        fields.update(values)
        fields["_encoded"] = room.data.cast("B").toreadonly()
        return frame


class CommittedBatch(_EncodedOnce, LedgerBatch):
    """A batch of the ledger's log."""

    @classmethod
    def view(cls, room: U64, rows: U8, lsn_from: int, lsn_to: int, owner: int) -> CommittedBatch:
        """Returns the batch that is encoded in `room`, with these rows, LSNs and owner."""
        values = {"lsn_from": lsn_from, "lsn_to": lsn_to, "owner": owner, "rows": rows}
        return cls._wrap(room, values | _NO_STATE)


class CommittedDecision(_EncodedOnce, UpdateDecision):
    """An answer that the ledger keeps."""

    @classmethod
    def make(cls, seq: int, status: U8, lsn: I64) -> CommittedDecision:
        """Returns an answer; the constructor of a frozen dataclass sets each field on its own."""
        decision = object.__new__(cls)
        decision.__dict__.update(seq=seq, status=status, lsn=lsn)
        return decision


class CommittedRequests(_EncodedOnce, NamedUpdates):
    """Request ids that the ledger remembers."""

    @classmethod
    def view(cls, room: U64, last: int) -> CommittedRequests:
        """Returns those that are encoded in `room`, the last of which has this LSN."""
        return cls._wrap(room, {"_last": last})

    @property
    def last(self) -> int:
        last: int = self.__dict__["_last"]
        return last

    def __getattr__(self, name: str) -> Any:
        """Decodes the columns, which most requests are never asked for."""
        if name not in _REQUEST_FIELDS:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        self.__dict__.update(NamedUpdates.decode(self.encode()).__dict__)
        return self.__dict__[name]


_NO_STATE = {"state": 0, "until": 0, "strategy": nothing(), "sessions": nothing()}
_REQUEST_FIELDS = {field.name for field in dataclasses.fields(NamedUpdates)}
