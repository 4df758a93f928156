"""The events of a dispatcher's machine: what clients request, what became of its instructions, and
time. Messages of peers are events as they are.

`call`, `stream`, `watcher` and `listener` belong to the shell. The machine hands them back in its
instructions, and does nothing else with them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ps2stream.dispatcher.gateway import PublicationIdentity
from ps2stream.protocol.addresses import SEQUENCER, Address
from ps2stream.protocol.frame import I64, U8, Frame
from ps2stream.protocol.messages.updates import UpdateRequest
from ps2stream.protocol.rows import ObjectRows, QueryRows


class PublishRequested(NamedTuple):
    """A client publishes a batch, at `since`, monotonic seconds. If as many batches wait as may, it
    waits for room, at most for `wait_s`. With an identity, a repeat gets the first answer."""

    call: Any
    rows: ObjectRows
    durable: bool
    since: float
    wait_s: float = 0.0
    identity: PublicationIdentity | None = None


class PublishWithdrawn(NamedTuple):
    """A client gives a publication up that was not routed within `waited_s`."""

    call: Any
    waited_s: float


class WithdrawRequested(NamedTuple):
    """A client withdraws the objects with these stored ids (ragged)."""

    call: Any
    id_off: I64
    id: U8


class UpdateRequested(NamedTuple):
    """A client inserts or deletes this number of queries; `inserts`: some are inserts."""

    call: Any
    request: UpdateRequest
    rows: int
    inserts: bool


class RequestForwarded(NamedTuple):
    """A client's request that the sequencer or the controller answers; the machine numbers it."""

    call: Any
    request: Frame
    to: Address = SEQUENCER


class StreamRequested(NamedTuple):
    """A client opens a Deliver stream of the session `name`. It acknowledges the matches up to
    `ack`, of the session with the number `of` unless that is 0."""

    stream: Any
    name: str
    fields: int
    window_batches: int
    window_bytes: int
    ack: int = 0
    of: int = 0


class CreditGranted(NamedTuple):
    """The client of a stream took `batches` batches of `size` bytes and acknowledges `ack`."""

    stream: Any
    batches: int
    size: int
    ack: int


class DeliveryDropped(NamedTuple):
    """The stream's inbox has dropped a delivery, and drops those that follow."""

    stream: Any


class StreamResumed(NamedTuple):
    """The client of a stream whose inbox dropped deliveries takes them again."""

    stream: Any


class InboxReopened(NamedTuple):
    """The stream's inbox takes deliveries again, after it dropped these batches and bytes."""

    stream: Any
    batches: int
    size: int


class StreamClosed(NamedTuple):
    """The stream has ended on the client's side."""

    stream: Any


class WatchRequested(NamedTuple):
    """A client of `tenant` watches the stream."""

    call: Any
    watcher: Any
    tenant: str


class WatchEnded(NamedTuple):
    """A watcher has left."""

    watcher: Any


class CongestionWatched(NamedTuple):
    """A listener wants to be informed whether routed batches wait."""

    listener: Any


class SampleRequested(NamedTuple):
    """A client requests the sample of objects."""

    call: Any


class WeightsRequested(NamedTuple):
    """A client requests the weights of the parts."""

    call: Any


class EstimateRequested(NamedTuple):
    """A client wants to know what a query would match and cost."""

    call: Any
    query: QueryRows


class ExplanationRequested(NamedTuple):
    """A client wants to know how this query and an object would meet."""

    call: Any
    query: QueryRows


class StatusRequested(NamedTuple):
    """An operator requests the figures of this dispatcher."""

    call: Any


class PeerJoined(NamedTuple):
    """A peer was replaced by a new incarnation."""

    peer: Address


class PeerLost(NamedTuple):
    """The link to a peer has ended; it seems to have died, which may be a false alarm."""

    peer: Address


class AnswersDue(NamedTuple):
    """Answers of workers have waited long enough for those of slower ones."""


class TickPassed(NamedTuple):
    """A tenth of a second has passed."""


class StopBegun(NamedTuple):
    """The dispatcher stops in order."""


class LogSynced(NamedTuple):
    """The object log is durable up to `end`."""

    end: int


class LogFailed(NamedTuple):
    """The object log could not be synced, for good."""

    error: Exception


ClientEvent = (
    PublishRequested | PublishWithdrawn | WithdrawRequested | UpdateRequested | RequestForwarded
    | StreamRequested | CreditGranted | StreamResumed | StreamClosed | WatchRequested | WatchEnded
    | CongestionWatched | SampleRequested | WeightsRequested | EstimateRequested
    | ExplanationRequested | StatusRequested
)  # fmt: skip
Event = (
    ClientEvent | Frame | PeerJoined | PeerLost | AnswersDue | TickPassed | LogSynced | LogFailed
    | DeliveryDropped | InboxReopened | StopBegun
)  # fmt: skip
