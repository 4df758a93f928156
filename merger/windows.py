"""The windows of all dispatchers, and the lowest of their watermarks."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

from ps2stream.merger.dedup import DedupWindow
from ps2stream.protocol.messages.objects import MatchRelease, WatermarkNotice
from ps2stream.protocol.messages.updates import MergerQueries
from ps2stream.protocol.producer_map import count_marked


class DispatcherWindows:
    """The windows of a service that began with this number of `dispatchers`; those that a log had
    are in `recovered`, by dispatcher, perhaps with some of dispatchers that came later.

    Messages say how many dispatchers there are. A new one is known from the first message on whose
    watermark may be above the LSN from which on it counts; one that has left has no open batch
    (docs/decisions/0037, 0038).
    """

    def __init__(self, dispatchers: int, recovered: MutableMapping[int, DedupWindow]) -> None:
        self._recovered = recovered
        self._windows = [self._take_window(i) for i in range(dispatchers)]
        self._is_informed = False
        self._counted = 0  # the latest mark of the number of dispatchers

    def __iter__(self) -> Iterator[DedupWindow]:
        return iter(self._windows)

    @property
    def watermark(self) -> int:
        """The LSN below which no release will come: the minimum over the dispatchers."""
        return min(window.watermark for window in self._windows)

    @property
    def pending(self) -> int:
        """The number of releases that wait."""
        return sum(map(len, self._windows))

    @property
    def can_be_described(self) -> bool:
        """True if `done` describes all windows: it does not while pairs of open batches have been
        reported, nor before it is known whose windows there are."""
        informed = self._is_informed or not self._recovered
        return informed and not any(window.in_part for window in self._windows)

    def find_sender(
        self, frame: MatchRelease | MergerQueries | WatermarkNotice
    ) -> DedupWindow | None:
        """Returns the window of the dispatcher that sent this; None if it does not count yet."""
        self._count(frame.dispatchers)
        return self._windows[frame.dispatcher] if frame.dispatcher < len(self._windows) else None

    def note(self, frame: MergerQueries | WatermarkNotice, oldest: int = 0) -> None:
        """Takes the watermark of a message, and the offset below which all is complete."""
        if (window := self.find_sender(frame)) is not None:
            window.advance(frame.watermark, oldest)

    def __getitem__(self, dispatcher: int) -> DedupWindow:
        """Returns the window of a dispatcher that counts."""
        return self._windows[dispatcher]

    def done(self) -> list[tuple[int, int, int]]:
        """Returns the ranges of offsets that are done: dispatcher, first and end."""
        return [(i, *r) for i, window in enumerate(self._windows) for r in window.done.items()]

    def _count(self, mark: int) -> None:
        """Notes how many dispatchers there are, by a mark; 0 for as many as at the start. A new one
        counts with the lowest watermark of the others: its batches have higher LSNs. What one that
        has left had done is kept, as a repeat may yet arrive when it is there again."""
        self._is_informed = True
        if mark <= self._counted:
            return
        self._counted, dispatchers = mark, count_marked(mark)
        while len(self._windows) > dispatchers:
            self._recovered[len(self._windows) - 1] = self._windows[-1]
            del self._windows[-1]
        lowest = self.watermark
        while len(self._windows) < dispatchers:
            window = self._take_window(len(self._windows))
            window.advance(lowest)
            self._windows.append(window)

    def _take_window(self, dispatcher: int) -> DedupWindow:
        found = self._recovered.get(dispatcher)
        if found is None:
            return DedupWindow()
        del self._recovered[dispatcher]
        return found
