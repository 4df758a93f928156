"""Which workers are silent: they owe an answer, and have answered nothing for a while."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ps2stream.protocol.messages.objects import MatchBatch

SILENT_TICKS = 2
"""Ticks after which a worker that owes an answer, and has answered no batch, is silent."""


class SilentWorkers:
    """The workers that are `silent`, and what each last reported of itself."""

    def __init__(self) -> None:
        self.silent: set[int] = set()
        self._suspects: set[int] = set()  # silent workers that seem to have died
        self._answered: dict[int, int] = {}  # worker: the tick of its last answer
        self._backlog: dict[int, int] = {}  # batches that waited at a worker when it last answered
        self._ticks = 0

    def note_answer(self, frame: MatchBatch) -> None:
        """Notes that a worker has answered."""
        self._answered[frame.worker] = self._ticks
        self._backlog[frame.worker] = frame.backlog
        self.silent.discard(frame.worker)
        self._suspects.discard(frame.worker)

    def suspect(self, worker: int) -> None:
        """Counts a worker that seems to have died as silent, until it answers again."""
        self._suspects.add(worker)
        self.silent.add(worker)

    def tick(self, owing: Iterable[Collection[int]]) -> None:
        """Finds out who is silent, ten times a second. `owing`: for each batch that has been open
        for SILENT_TICKS, the workers that owe an answer."""
        self._ticks += 1
        before = self._ticks - SILENT_TICKS
        found = set[int]().union(*owing)
        self.silent = {w for w in found if self._answered.get(w, 0) <= before} | self._suspects

    def describe(self, worker: int) -> str:
        """Describes a worker's last report, for the operator; empty without one that matters."""
        backlog = self._backlog.get(worker, 0)
        return f" (at its last answer {backlog} batches waited there)" if backlog else ""
