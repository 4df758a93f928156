"""What was sent to each merger and is not yet durable there."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.objects import MatchRelease, ReleasesKept
from ps2stream.protocol.ticks import OVERTAKEN_TICKS, RESEND_TICKS

EPOCH_BITS = 40
"""The bits of a release's number that count within one incarnation of a dispatcher."""


@dataclasses.dataclass(eq=False)
class _MergerQueue:
    """The releases of one merger that are not durable, by number. kept: the highest that is.
    front: the lowest of the others at the last tick, for `waited` ticks since it was first or
    came to the front; it is sent again at `resend_at`, and at `overtaken_at` if a later one is
    kept."""

    open: dict[int, MatchRelease] = dataclasses.field(default_factory=dict)
    kept: int = -1
    front: int = -1
    waited: int = 0
    resend_at: int = RESEND_TICKS
    overtaken_at: float = OVERTAKEN_TICKS


class ReleaseQueues:
    """The releases of a dispatcher in its incarnation `epoch`, by merger. `next` is the number of
    the next one; numbers rise from one incarnation to the next."""

    def __init__(self, mergers: int, epoch: int) -> None:
        self.mergers = mergers
        self.next = epoch << EPOCH_BITS
        self._queues = [_MergerQueue() for _ in range(mergers)]
        self._reported = [0] * mergers  # pairs that collapsed, since each merger's start
        self.collapsed = 0

    def resize(self, mergers: int) -> None:
        """Makes room for so many mergers, if there are more than before."""
        more = max(mergers - self.mergers, 0)
        self._queues += [_MergerQueue() for _ in range(more)]
        self._reported += [0] * more
        self.mergers += more

    def add(self, merger: int, frame: MatchRelease) -> Send:
        """Adds the release that has the number `next`; returns the message."""
        self._queues[merger].open[frame.release] = frame
        self.next = frame.release + 1
        return Send(Address("merger", merger), frame)

    def take_kept(self, frame: ReleasesKept) -> Iterator[tuple[int, int]]:
        """Removes the releases that a merger reports as durable, and yields each with its batch."""
        if frame.merger >= self.mergers:
            return  # it reports to an earlier incarnation; this one has not yet read of it
        before, self._reported[frame.merger] = self._reported[frame.merger], frame.collapsed
        self.collapsed += frame.collapsed - (before if before <= frame.collapsed else 0)
        queue = self._queues[frame.merger]
        for release in frame.release.tolist():
            queue.kept = max(queue.kept, release)
            if (found := queue.open.pop(release, None)) is not None:
                yield release, found.batch

    def drop(self, releases: set[int]) -> None:
        """Removes releases that are known to be durable without a report."""
        for queue in self._queues:
            for release in releases.intersection(queue.open):
                del queue.open[release]

    def resend_to(self, merger: int) -> list[Send]:
        """Returns all that is open at a merger, for its new incarnation."""
        if merger >= self.mergers:
            return []  # it has no sessions yet
        to = Address("merger", merger)
        return [Send(to, frame) for frame in self._queues[merger].open.values()]

    def mergers_of(self, releases: set[int]) -> list[int]:
        """Returns the mergers at which some of these releases are not durable."""
        return [m for m, queue in enumerate(self._queues) if not releases.isdisjoint(queue.open)]

    def tick(self) -> list[Send]:
        """Returns what is sent again. Links keep their order, so what a later release has overtaken
        was lost, or its merger cannot write, or does not know the queries yet."""
        out: list[Send] = []
        for merger, queue in enumerate(self._queues):
            front = next(iter(queue.open), -1)
            if front != queue.front:
                queue.front, queue.waited = front, 0
                queue.resend_at, queue.overtaken_at = RESEND_TICKS, OVERTAKEN_TICKS
            if front < 0:
                continue
            queue.waited += 1
            if queue.waited >= queue.resend_at:
                queue.resend_at = 2 * queue.waited
                out += self.resend_to(merger)
            elif front < queue.kept and queue.waited >= queue.overtaken_at:
                queue.overtaken_at = math.inf  # once
                to = Address("merger", merger)
                out += [Send(to, queue.open[n]) for n in queue.open if n < queue.kept]
        return out
