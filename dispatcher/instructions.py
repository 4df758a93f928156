"""The instructions of a dispatcher's machine, which its shell carries out in this order: first all
messages (`Send`), then the others as they come.

`call`, `stream`, `watcher` and `listeners` are those of the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ps2stream.observability.traces import Key
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.messages.watch import WatchSample


class AnswerCall(NamedTuple):
    """Answer a call, unless the lease has run out."""

    call: Any
    value: object


class RefuseCall(NamedTuple):
    """End a call with an error."""

    call: Any
    error: Exception


class OpenStream(NamedTuple):
    """Inform the client that its stream is open, with the session's number, the stream's epoch and
    the number of the last pair that was acknowledged."""

    stream: Any
    session: int
    epoch: int
    acked: int


class DeliverBatch(NamedTuple):
    """Deliver an encoded batch of matches. If it is dropped, DeliveryDropped follows."""

    stream: Any
    data: bytes


class EndStream(NamedTuple):
    """End a stream, or its opening, with an error; without one the session could not be made."""

    stream: Any
    error: Exception | None


class ReopenInbox(NamedTuple):
    """Let the stream's inbox take deliveries again; InboxReopened follows."""

    stream: Any


class ShowSample(NamedTuple):
    """Show a watcher a sample of the stream."""

    watcher: Any
    sample: WatchSample


class AnnounceCongestion(NamedTuple):
    """Inform these listeners whether routed batches wait."""

    listeners: Sequence[Any]
    congested: bool


class SyncLog(NamedTuple):
    """Sync the object log soon; LogSynced follows."""


class TrimLog(NamedTuple):
    """Drop the records of the object log before this position."""

    before: int


class ReportStall(NamedTuple):
    """Log that objects wait while hardly any are completed."""

    report: str
    in_flight: int
    waiting: int


class TraceStage(NamedTuple):
    """Record a stage of a sampled batch; `ended` is None for a stage that ends now. Times are
    monotonic seconds."""

    stage: str
    key: Key
    begun: float
    ended: float | None
    objects: int = 0


Instruction = (
    Send | AnswerCall | RefuseCall | OpenStream | DeliverBatch | EndStream | ReopenInbox
    | ShowSample | AnnounceCongestion | SyncLog | TrimLog | ReportStall | TraceStage
)  # fmt: skip
