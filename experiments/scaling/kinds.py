"""What flows in a service: the kinds of messages, who sends them, and what counts as their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.objects import (
    MatchBatch,
    MatchRelease,
    ReleasesKept,
    RoutedObjects,
)
from ps2stream.protocol.messages.sessions import DeliveryArrivals, StreamCredit, StreamDelivery
from ps2stream.protocol.messages.updates import (
    AppliedReport,
    LedgerBatch,
    LedgerTip,
    MergerQueries,
    UpdateDecision,
    UpdateRequest,
    WorkerUpdates,
)

DISPATCHER, WORKER, MERGER, SEQUENCER = ROLES = "dispatcher", "worker", "merger", "sequencer"


class MessageKind(NamedTuple):
    """A kind of message. count_rows: its rows, of which each takes time and bytes; None: those
    that the batch has of its own (`batch_rows`: objects, pairs or updates)."""

    sender: str
    receiver: str
    count_rows: Callable[[Any], int] | None
    batch_rows: str


def _count_none(frame: Any) -> int:
    return 0


KINDS: dict[type[Frame], MessageKind] = {
    RoutedObjects: MessageKind(DISPATCHER, WORKER, lambda f: len(f.row), ""),
    MatchBatch: MessageKind(WORKER, DISPATCHER, lambda f: len(f.row), ""),
    MatchRelease: MessageKind(DISPATCHER, MERGER, lambda f: len(f.pair_row), ""),
    ReleasesKept: MessageKind(MERGER, DISPATCHER, _count_none, ""),
    StreamDelivery: MessageKind(MERGER, DISPATCHER, None, "pairs"),
    StreamCredit: MessageKind(DISPATCHER, MERGER, _count_none, ""),
    DeliveryArrivals: MessageKind(DISPATCHER, MERGER, _count_none, ""),
    UpdateRequest: MessageKind(DISPATCHER, SEQUENCER, None, "updates"),
    LedgerBatch: MessageKind(SEQUENCER, DISPATCHER, None, "updates"),
    UpdateDecision: MessageKind(SEQUENCER, DISPATCHER, None, "updates"),
    WorkerUpdates: MessageKind(DISPATCHER, WORKER, lambda f: len(f.tag_off) - 1, ""),
    MergerQueries: MessageKind(DISPATCHER, MERGER, lambda f: len(f.lsn), ""),
    AppliedReport: MessageKind(DISPATCHER, SEQUENCER, _count_none, ""),
    LedgerTip: MessageKind(SEQUENCER, DISPATCHER, _count_none, ""),
}
"""Of the messages that flow with each batch of objects and of updates."""


def find_kind(to: Address, kind: type[Frame]) -> str:
    """Returns the name of a kind, of the one that it refines, or "other"."""
    return next((each.__name__ for each in kind.__mro__ if each in KINDS), "other")


def find_sender(to: Address, kind: type[Frame]) -> str:
    """Returns the role that sends such a message to this receiver."""
    known = next((KINDS[each] for each in kind.__mro__ if each in KINDS), None)
    if known is not None:
        return known.sender
    return {WORKER: DISPATCHER, MERGER: DISPATCHER}.get(to.role, SEQUENCER)
