"""One batch under way, from when it is routed until all its matches are durable."""

from __future__ import annotations

import dataclasses

from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.objects import MatchBatch, RoutedObjects
from ps2stream.protocol.rows import ObjectRows
from ps2stream.protocol.ticks import RESEND_TICKS

ROWS, TEXT_BYTES = 8_192, 1 << 20
"""The size of a full batch."""
LEAST_BYTES = 4096
"""The least size that a batch counts with, however small it is."""
DEATHS = 3


@dataclasses.dataclass(eq=False)
class OpenBatch:
    """A batch that is not complete.

    shares: of the workers that have not answered. answers: of those that have, which no merger has
    been sent. releases: the numbers of what was sent to mergers and is not durable there. deaths:
    of workers, which the batch may have caused, or, if it is a suspect, has caused. sent: the
    number of its last sending. waited: ticks that it was at the front of all queues; at `sent_at`
    of them it was last sent, at `resend_at` it is sent again."""

    lsn: int
    rows: ObjectRows
    attempt: int
    shares: dict[int, RoutedObjects]
    suspect: bool
    answers: list[MatchBatch] = dataclasses.field(default_factory=list)
    releases: set[int] = dataclasses.field(default_factory=set)
    released: bool = False
    deaths: int = 0
    age: int = 0
    sent: int = 0
    resent: bool = False
    waited: int = 0
    sent_at: int = 0
    resend_at: int = RESEND_TICKS
    refused: bool = False

    @property
    def is_complete(self) -> bool:
        """Returns whether every match is durable at its merger."""
        return not (self.shares or self.answers or self.releases)

    @property
    def size(self) -> int:
        """The size in units of which a full batch has TEXT_BYTES."""
        rows = self.rows
        return max(len(rows) * (TEXT_BYTES // ROWS), len(rows.text) + len(rows.opaque), LEAST_BYTES)

    @property
    def is_fatal(self) -> bool:
        """Returns whether it certainly killed workers."""
        return self.suspect and self.deaths >= (1 if len(self.rows) > 1 else DEATHS)

    def count_death(self, begun: bool) -> None:
        """Counts the death of a worker to which a share had been sent; `begun` says that the
        worker had begun it."""
        self.deaths += begun or not self.suspect
        if not self.suspect and self.deaths == DEATHS:
            self.suspect, self.deaths = True, 0
            self.shares = {w: dataclasses.replace(r, suspect=1) for w, r in self.shares.items()}

    def sends(self) -> list[Send]:
        """Returns the messages to the workers that have not answered."""
        return [Send(Address("worker", worker), share) for worker, share in self.shares.items()]
