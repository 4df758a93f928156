"""Messages that are encoded once, for the ledger and for those who are sent them."""

from __future__ import annotations

from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.updates import LedgerBatch, UpdateDecision


class _EncodedOnce(Frame):
    def encode(self) -> bytes:
        """Returns the same bytes as the class that it has its fields from."""
        encoded: bytes | None = self.__dict__.get("_encoded")
        if encoded is None:
            encoded = self.__dict__["_encoded"] = super().encode()
        return encoded


class CommittedBatch(_EncodedOnce, LedgerBatch):
    """A batch of the ledger's log."""


class CommittedDecision(_EncodedOnce, UpdateDecision):
    """An answer that the ledger keeps."""
