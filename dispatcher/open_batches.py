"""The batches under way: what was sent of each, and who has not yet answered.

A batch is a suspect once DEATHS workers to which it had been sent died while it was open. Workers
report when they begin a suspect, so that a worker that dies then has died of it. The suspect is
then sent again as two halves, which are suspects too; an object that is alone is fatal after
DEATHS trials.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from ps2stream.dispatcher.gridt import ObjectShare
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.objects import (
    BatchContent,
    BatchesCompleted,
    BatchesPartial,
    RoutedObjects,
    StaleRoute,
    SuspectBegin,
)
from ps2stream.protocol.rows import ObjectRows
from ps2stream.protocol.ticks import RESEND_TICKS

ROWS, TEXT_BYTES = 8_192, 1 << 20
"""The size of a full batch."""
LEAST_BYTES = 4096
"""The least size that a batch counts with, however small it is."""
DEATHS = 3
DELAYED_TICKS, STALLED_TICKS = 2, 11
"""Ticks that pass in more than 0.1 s, and in more than 1 s."""
DEPTH_BITS = 8  # the bits of an attempt that count how often the batch was halved
OVERTAKEN_TICKS = 10
"""Ticks after which a batch is sent again if something shows that a message was lost."""


@dataclasses.dataclass(eq=False)
class OpenBatch:
    """A batch that is not complete.

    waiting: mergers that have not completed it; partial: those of them that only wait for silent
    workers. deaths: of workers, which the batch may have caused, or, if it is a suspect, has
    caused. sent: the number of its last sending. waited: ticks that it was at the front of all
    queues; at `sent_at` of them it was last sent, at `resend_at` it is sent again."""

    lsn: int
    rows: ObjectRows
    payload: BatchContent
    shares: dict[int, RoutedObjects]
    waiting: set[int]
    suspect: bool
    partial: set[int] = dataclasses.field(default_factory=set)
    deaths: int = 0
    age: int = 0
    sent: int = 0
    resent: bool = False
    waited: int = 0
    sent_at: int = 0
    resend_at: int = RESEND_TICKS
    refused: bool = False

    @property
    def is_held_up(self) -> bool:
        """Returns whether only silent workers keep it open."""
        return self.waiting <= self.partial

    @property
    def size(self) -> int:
        """The size in units of which a full batch has TEXT_BYTES."""
        return max(len(self.rows) * (TEXT_BYTES // ROWS), len(self.rows.text), LEAST_BYTES)

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

    def sends(self) -> Iterator[Send]:
        for merger in sorted(self.waiting):
            yield Send(Address("merger", merger), self.payload)
        for worker, routed in self.shares.items():
            yield Send(Address("worker", worker), routed)


class OpenBatches:
    """The open batches of dispatcher `index` in its incarnation `epoch`. `route` is the number of
    the plan by which new ones are routed."""

    def __init__(self, index: int, mergers: int, route: int, epoch: int) -> None:
        self._index = index
        self._mergers = mergers
        self.route = route
        self._epoch = epoch
        self._open: dict[int, OpenBatch] = {}
        self._offsets: list[int] = []  # a heap of those of open batches and of some complete ones
        self._held_up: set[int] = set()  # batches that are held up
        self._held_up_size = 0
        self.completed = 0  # objects of batches that are complete
        self.delayed = self.stalled = 0  # objects that took long
        self._collapsed = [0] * mergers  # as each merger reported, since its start
        self.collapsed = 0
        self._begun: dict[int, tuple[int, int]] = {}  # batch and attempt that a worker has begun
        self._sendings = 0  # in all
        self._passed: dict[int, int] = {}  # the last sending that a worker has completed
        self._lossy: set[int] = set()  # workers whose last complete batch was sent more than once

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, batch: int) -> bool:
        return batch in self._open

    @property
    def active(self) -> int:
        """The number of batches that are not held up by silent workers."""
        return len(self._open) - len(self._held_up)

    @property
    def in_flight(self) -> int:
        """The number of open batches, in which those that are held up count by their size, in full
        batches."""
        return self.active + self._held_up_size // TEXT_BYTES

    def oldest(self, otherwise: int) -> int:
        """Returns the lowest offset of an open batch, `otherwise` if there is none."""
        offsets = self._offsets
        while offsets and offsets[0] not in self._open:
            heapq.heappop(offsets)
        return offsets[0] if offsets else otherwise

    def watermark(self, otherwise: int) -> int:
        """Returns the lowest LSN of an open batch, which is that of the lowest offset; `otherwise`
        if there is none."""
        first = self._open.get(self.oldest(-1))
        return otherwise if first is None else first.lsn

    @property
    def oldest_age(self) -> int:
        """The ticks that the batch of the lowest offset has been open; 0 if there is none."""
        first = self._open.get(self.oldest(-1))
        return 0 if first is None else first.age

    def describe_oldest(self) -> str:
        """Describes in one line which peers have not answered for the batch of the lowest offset;
        empty if there is none."""
        batch = self.oldest(-1)
        open_ = self._open.get(batch)
        if open_ is None:
            return ""
        mergers = ", ".join(f"merger-{n}" for n in sorted(open_.waiting - open_.partial))
        held = ", ".join(f"merger-{n}" for n in sorted(open_.waiting & open_.partial))
        workers = ", ".join(f"worker-{n}" for n in sorted(open_.shares))
        reasons = [f"{mergers} has not answered"] if mergers else []
        reasons += [f"{held} has reported that a worker is silent"] if held else []
        return (
            f"the batch at offset {batch} has been open for {open_.age} ticks: "
            f"{'; '.join(reasons)}; it was sent to {workers}"
        )

    def add(
        self,
        batch: int,
        lsn: int,
        rows: ObjectRows,
        shares: Sequence[ObjectShare],
        watermark: int,
        oldest: int,
        part_of: OpenBatch | None = None,
    ) -> list[Send]:
        """Opens a batch and returns its messages. All batches below offset `oldest` are complete.
        A half of the batch `part_of` has a higher attempt than that batch, since both may have
        the same offset."""
        attempt = self._epoch << DEPTH_BITS if part_of is None else part_of.payload.attempt + 1
        payload = BatchContent(
            dispatcher=self._index,
            batch=batch,
            attempt=attempt,
            lsn=lsn,
            watermark=watermark,
            worker=np.array([share.worker for share in shares], np.int64),
            id_off=rows.id_off,
            id=rows.id,
            time=rows.time,
            lon=rows.lon,
            lat=rows.lat,
            text_off=rows.text_off,
            text=rows.text,
            oldest=oldest,
        )
        suspect = part_of is not None
        head = (self._index, batch, attempt, self.route, lsn, watermark, int(suspect))
        routed = {
            s.worker: RoutedObjects(*head, s.row, s.lon, s.lat, s.term_off, s.term) for s in shares
        }
        waiting = set(range(self._mergers))
        open_ = self._open[batch] = OpenBatch(lsn, rows, payload, routed, waiting, suspect)
        self._sendings += 1
        open_.sent = self._sendings
        heapq.heappush(self._offsets, batch)
        return list(open_.sends())

    def complete(self, frame: BatchesCompleted) -> None:
        """Notes that a merger has completed batches."""
        before, self._collapsed[frame.merger] = self._collapsed[frame.merger], frame.collapsed
        self.collapsed += frame.collapsed - (before if before <= frame.collapsed else 0)
        for batch in frame.batch.tolist():
            open_ = self._open.get(batch)
            if open_ is None:
                continue
            open_.waiting.discard(frame.merger)
            if open_.waiting:
                self._check_held_up(batch, open_)
            else:
                self.completed += len(open_.rows)
                self.delayed += len(open_.rows) * (open_.age >= DELAYED_TICKS)
                self.stalled += len(open_.rows) * (open_.age >= STALLED_TICKS)
                self._note_passed(open_)
                self._close_batch(batch)

    def note_partial(self, frame: BatchesPartial) -> None:
        """Notes the batches of which a merger lacks only the answers of silent workers."""
        for batch in frame.batch.tolist():
            if (open_ := self._open.get(batch)) is not None:
                open_.partial.add(frame.merger)
                self._check_held_up(batch, open_)

    def note_refusal(self, frame: StaleRoute) -> None:
        """Notes that a worker refused a batch because it has another plan; the batch is sent again
        after a while."""
        if (open_ := self._open.get(frame.batch)) is not None and not open_.refused:
            open_.refused = True
            open_.resend_at = min(open_.resend_at, open_.waited + RESEND_TICKS)

    def note_begun(self, frame: SuspectBegin) -> None:
        """Notes that a worker has begun a suspect, or is done with it."""
        self._begun[frame.worker] = frame.batch, frame.attempt

    def resend_to(self, peer: Address) -> list[Send]:
        """Returns what a new incarnation of `peer` must be sent of the open batches."""
        out: list[Send] = []
        begun = self._begun.pop(peer.index, None) if peer.role == "worker" else None
        for batch, open_ in self._open.items():
            if peer.role == "merger" and peer.index in open_.waiting:
                out += self._send_again(open_)
            elif peer.role == "worker" and peer.index in open_.shares:
                open_.count_death(begun == (batch, open_.payload.attempt))
                if not open_.is_fatal:
                    self._send_again(open_)
                    out.append(Send(peer, open_.shares[peer.index]))
        return out

    def take_fatal(self) -> list[tuple[int, OpenBatch]]:
        """Removes and returns the batches that certainly killed workers."""
        found = [(b, open_) for b, open_ in self._open.items() if open_.is_fatal]
        for batch, _ in found:
            self._close_batch(batch)
        return found

    def tick(self) -> list[Send]:
        """Counts a tick and returns what is sent again: batches whose delay only a lost message
        explains.

        Links keep their order and workers take batches in turn, so a batch that is behind another
        one in the queue of one of its workers was not lost, however old it is. If it were sent
        again for its age alone, each copy would make the queue longer and so more batches old,
        until workers did little but handle copies.
        """
        out: list[Send] = []
        queued: set[int] = set()  # workers that still have a batch that was sent earlier
        for open_ in sorted(self._open.values(), key=lambda open_: open_.sent):
            open_.age += 1
            ahead = [w for w in open_.shares if open_.sent > self._passed.get(w, 0)]
            if open_.refused or queued.isdisjoint(ahead):
                open_.waited += 1
                lost = not ahead or (not open_.resent and not self._lossy.isdisjoint(ahead))
                soon = open_.sent_at + OVERTAKEN_TICKS if lost else open_.resend_at
                if open_.waited >= min(open_.resend_at, soon):
                    open_.resend_at = max(2 * open_.waited, RESEND_TICKS)
                    out += self._send_again(open_)
            queued.update(ahead)
        return out

    def _send_again(self, open_: OpenBatch) -> Iterator[Send]:
        """Counts one more sending and returns its messages."""
        self._sendings += 1
        open_.sent, open_.resent = self._sendings, True
        open_.sent_at, open_.refused = open_.waited, False
        return open_.sends()

    def _note_passed(self, open_: OpenBatch) -> None:
        """Notes that every worker of a complete batch has come up to its sending. If the batch was
        sent more than once, it is unknown which sending was answered."""
        if open_.resent:
            self._lossy.update(open_.shares)
            return
        self._lossy.difference_update(open_.shares)
        for worker in open_.shares:
            self._passed[worker] = max(self._passed.get(worker, 0), open_.sent)

    def _check_held_up(self, batch: int, open_: OpenBatch) -> None:
        """Notes whether a batch is held up now; from then on it counts as held up."""
        if open_.is_held_up and batch not in self._held_up:
            self._held_up.add(batch)
            self._held_up_size += open_.size

    def _close_batch(self, batch: int) -> None:
        open_ = self._open.pop(batch)
        if batch in self._held_up:
            self._held_up.discard(batch)
            self._held_up_size -= open_.size
