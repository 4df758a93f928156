"""The time that the stages of the stream take in one actor."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol

from ps2stream.observability.metrics import DurationHistogram
from ps2stream.observability.traces import ActorTraces, unix_ns
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.objects import RoutedObjects

STAGES = {
    "intake": "an object in a dispatcher, from its arrival until it is routed",
    "durable": "an object of level durable, from its arrival until it is synced and answered",
    "complete": "an object sent to a worker, from the arrival of the oldest publication of its "
    "batch until all its matches are durable",
    "link": "a message, from its sending by another actor until this one processes it",
    "match": "the matching, in a worker, of a batch or of the batches that waited for an update",
    "merge": "the processing of messages that a merger received together",
    "sync": "one sync of an object log or match log",
    "deliver": "a delivery, from its arrival at the dispatcher until the client has taken it",
}
"""The stages by name: what is counted, and from when until when."""


class StageMeter:
    """Histograms by stage, one thread adding to each, and the actor's traces, if any."""

    def __init__(self) -> None:
        self._stages: dict[str, DurationHistogram] = {}
        self.traces: ActorTraces | None = None

    @property
    def stages(self) -> dict[str, DurationHistogram]:
        """The histograms that have observations. From any thread."""
        return dict(self._stages)

    def add(self, stage: str, seconds: float, count: int = 1) -> None:
        """Counts `count` things that took `seconds` each."""
        histogram = self._stages.get(stage)
        if histogram is None:
            histogram = self._stages[stage] = DurationHistogram()
        histogram.add(seconds, count)

    def time(self, stage: str) -> AbstractContextManager[None]:
        """Returns a context manager that adds the time spent inside, unless that fails."""
        return StageTimer(self, stage)


class StageTimer:
    """A context manager that adds the time spent inside to a stage; see Meter.time."""

    __slots__ = ("_begun", "_meter", "_stage")

    def __init__(self, meter: StageMeter, stage: str) -> None:
        self._meter = meter
        self._stage = stage

    def __enter__(self) -> None:
        self._begun = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._meter.add(self._stage, time.perf_counter() - self._begun)


class MatchingWorker(Protocol):
    """A worker machine; `batches` counts those that it has matched."""

    batches: int

    def on(self, frame: Frame) -> list[Send]: ...


def matched(worker: MatchingWorker, frame: Frame, meter: StageMeter) -> list[Send]:
    """Returns the worker's answer to a frame; a match that this took is added to the meter."""
    before, begun = worker.batches, time.monotonic()
    sends = worker.on(frame)
    if worker.batches > before:
        meter.add("match", time.monotonic() - begun)
        traces = meter.traces
        if traces is not None and isinstance(frame, RoutedObjects):
            key = (frame.dispatcher, frame.batch)
            if traces.wanted(key):
                traces.part("match", key, unix_ns(begun), time.time_ns(), objects=len(frame.row))
    return sends
