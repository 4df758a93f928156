"""The driver of a dispatcher's machine: it gives the machine the time with its events, and carries
out its instructions."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from ps2stream.dispatcher.events import DeliveryDropped, Event, InboxReopened
from ps2stream.dispatcher.instructions import (
    AnnounceCongestion,
    AnswerCall,
    DeliverBatch,
    EndStream,
    Instruction,
    OpenStream,
    RefuseCall,
    ReopenInbox,
    ReportStall,
    ShowSample,
    SyncLog,
    TraceStage,
    TrimLog,
)
from ps2stream.dispatcher.machine import DispatcherMachine
from ps2stream.errors import Unavailable
from ps2stream.observability.process import wall_clock_ms
from ps2stream.observability.traces import record_stage
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.ports import Log

log = logging.getLogger("ps2stream.cluster")


def replaced() -> Unavailable:
    """Returns the error of a call to a dispatcher whose lease has run out."""
    return Unavailable("this dispatcher has been replaced; try again")


class DispatcherDriver:
    """Drives one machine, one thread at a time. `post` sends messages; `wake_sync` has the log
    synced, of which LogSynced informs the machine. Once `lapsed` returns that another incarnation
    may have come, no client gets an answer or a delivery."""

    def __init__(
        self,
        machine: DispatcherMachine,
        log: Log,
        post: Callable[[list[Send]], None],
        wake_sync: Callable[[], None],
        lapsed: Callable[[], bool] = lambda: False,
    ) -> None:
        self.machine = machine
        self._log = log
        self._post = post
        self._wake_sync = wake_sync
        self._lapsed = lapsed

    @property
    def answers_are_due(self) -> bool:
        """Whether answers of workers have waited long enough for those of slower ones."""
        return self.machine.answers_due <= time.monotonic()

    def handle(self, events: list[Event]) -> bool:
        """Handles events, and those that follow from the instructions before any others; returns
        whether there is more to do without events."""
        while events or self.machine.busy:
            out = self.machine.handle(events, time.monotonic(), wall_clock_ms())
            events = self._carry_out(out)
            if not events:
                break
        return self.machine.busy

    def _carry_out(self, out: list[Instruction]) -> list[Event]:
        if sends := [each for each in out if type(each) is Send]:
            self._post(sends)
        found: list[Event] = []
        for each in out:
            match each:
                case Send():
                    continue
                case AnswerCall(call, value):
                    call.set_exception(replaced()) if self._lapsed() else call.set_result(value)
                case DeliverBatch(stream, data):
                    if not self._lapsed() and stream.sink(data):
                        found.append(DeliveryDropped(stream))
                case RefuseCall(call, error):
                    call.set_exception(error)
                case SyncLog():
                    self._wake_sync()
                case ShowSample(watcher, sample):
                    watcher(sample)
                case _:
                    self._carry_out_rare(each, found)
        return found

    def _carry_out_rare(self, each: Any, found: list[Event]) -> None:
        match each:
            case OpenStream(stream, session, epoch, acked):
                numbers = session, epoch, acked
                stream.open(*numbers) if not self._lapsed() else stream.end(replaced())
            case EndStream(stream, error):
                stream.end(error if not self._lapsed() else replaced())
            case ReopenInbox(stream):
                found.append(InboxReopened(stream, *stream.reopen()))
            case AnnounceCongestion(listeners, congested):
                for listener in listeners:
                    listener(congested)
            case TrimLog(before):
                self._log.trim(before)
            case ReportStall(report, in_flight, waiting):
                log.warning(
                    "objects wait and hardly any are completed: %s; batches under way: %d, "
                    "publications in the intake: %d",
                    report, in_flight, waiting,
                )  # fmt: skip
            case TraceStage() if (traces := self.machine.meter.traces) is not None:
                record_stage(traces, *each)
