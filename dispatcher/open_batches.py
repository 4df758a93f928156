"""The batches under way: what was sent of each, and who has not yet answered.

A batch that was open through DEATHS deaths of workers that it had been sent to is a
suspect: they say when they come to it, and what dies then died of it. It goes again as two
halves, suspects too; an object that is alone has DEATHS trials.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from ps2stream.dispatcher.gridt import Share
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.objects import (
    Begin,
    Completed,
    Partial,
    Payload,
    RoutedObjects,
    Stale,
)
from ps2stream.protocol.rows import ObjectRows

ROWS, TEXT_BYTES = 8_192, 1 << 20
"""What makes a batch a full one."""
LEAST_BYTES = 4096
"""What a batch takes at least, however small."""
DEATHS = 3
DELAYED_TICKS, STALLED_TICKS = 2, 11
"""Ticks that pass in more than 0.1 s, and in more than 1 s."""
DEPTH_BITS = 8  # of an attempt: how often the batch was halved
RESEND_TICKS = 30
"""A batch is sent again after so many ticks at the front of its workers' queues, after twice as
many, and so on."""
OVERTAKEN_TICKS = 10
"""Ticks after which it is sent again once something shows that a message was lost."""


@dataclasses.dataclass(eq=False)
class Open:
    """A batch. `waiting`: mergers that have not called it complete; `partial`: those that only
    wait for silent workers; `deaths` of workers that may be its doing, or, of a suspect, are;
    `sent`: the number of its last sending; `waited`: ticks that it was at the front of all queues,
    at `sent_at` of them it was last sent, at `resend_at` it is sent again."""

    lsn: int
    rows: ObjectRows
    payload: Payload
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
    def held_up(self) -> bool:
        """Whether only silent workers keep it open."""
        return self.waiting <= self.partial

    @property
    def size(self) -> int:
        """Of TEXT_BYTES, which a full batch has."""
        return max(len(self.rows) * (TEXT_BYTES // ROWS), len(self.rows.text), LEAST_BYTES)

    @property
    def guilty(self) -> bool:
        """Whether it killed for certain."""
        return self.suspect and self.deaths >= (1 if len(self.rows) > 1 else DEATHS)

    def mourn(self, begun: bool) -> None:
        """A worker died that had been sent a share; `begun`: when it came to that."""
        self.deaths += begun or not self.suspect
        if not self.suspect and self.deaths == DEATHS:
            self.suspect, self.deaths = True, 0
            self.shares = {w: dataclasses.replace(r, suspect=1) for w, r in self.shares.items()}

    def sends(self, shares: bool = True) -> Iterator[Send]:
        for merger in sorted(self.waiting):
            yield Send(Address("merger", merger), self.payload)
        if shares:
            for worker, routed in self.shares.items():
                yield Send(Address("worker", worker), routed)


class OpenBatches:
    """Those of dispatcher `index`, in its incarnation `epoch`; new ones are of the plan
    `route`."""

    def __init__(self, index: int, mergers: int, route: int, epoch: int) -> None:
        self._index = index
        self._mergers = mergers
        self.route = route
        self._epoch = epoch
        self._open: dict[int, Open] = {}
        self._offsets: list[int] = []  # heap of them, and of some that are complete
        self._held: set[int] = set()  # those that are held up
        self._held_size = 0
        self.completed = 0  # objects of batches that are complete
        self.delayed = self.stalled = 0  # objects that took long
        self._collapsed = [0] * mergers  # as each has told, since its start
        self.collapsed = 0
        self._begun: dict[int, tuple[int, int]] = {}  # batch and attempt, by worker
        self._sendings = 0  # so far
        self._passed: dict[int, int] = {}  # by worker: the last sending that it has dealt with
        self._lossy: set[int] = set()  # workers whose last complete batch had to be sent again

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, batch: int) -> bool:
        return batch in self._open

    @property
    def active(self) -> int:
        """How many are not held up by silent workers."""
        return len(self._open) - len(self._held)

    @property
    def in_flight(self) -> int:
        """How many there are; what is held up counts by its size, in full batches."""
        return self.active + self._held_size // TEXT_BYTES

    def oldest(self, otherwise: int) -> int:
        """The lowest offset of them."""
        offsets = self._offsets
        while offsets and offsets[0] not in self._open:
            heapq.heappop(offsets)
        return offsets[0] if offsets else otherwise

    def watermark(self, otherwise: int) -> int:
        """The lowest LSN of them, which is that of the lowest offset."""
        first = self._open.get(self.oldest(-1))
        return otherwise if first is None else first.lsn

    @property
    def oldest_age(self) -> int:
        """Ticks that the batch of the lowest offset has been open; 0 where there is none."""
        first = self._open.get(self.oldest(-1))
        return 0 if first is None else first.age

    def describe_oldest(self) -> str:
        """Who has not answered for the batch of the lowest offset, as a line for people; empty
        where there is none."""
        batch = self.oldest(-1)
        open_ = self._open.get(batch)
        if open_ is None:
            return ""
        mergers = ", ".join(f"merger-{n}" for n in sorted(open_.waiting - open_.partial))
        held = ", ".join(f"merger-{n}" for n in sorted(open_.waiting & open_.partial))
        workers = ", ".join(f"worker-{n}" for n in sorted(open_.shares))
        said = [f"{mergers} has not answered"] if mergers else []
        said += [f"{held} has reported that a worker is silent"] if held else []
        return (
            f"the batch at offset {batch} has been open for {open_.age} ticks: "
            f"{'; '.join(said)}; it was sent to {workers}"
        )

    def add(
        self,
        batch: int,
        lsn: int,
        rows: ObjectRows,
        shares: Sequence[Share],
        watermark: int,
        oldest: int,
        part_of: Open | None = None,
    ) -> list[Send]:
        """Open a batch; what is to be sent. All below offset `oldest` are complete. A part has
        a higher attempt than the whole, which may have its offset."""
        attempt = self._epoch << DEPTH_BITS if part_of is None else part_of.payload.attempt + 1
        payload = Payload(
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
        open_ = self._open[batch] = Open(lsn, rows, payload, routed, waiting, suspect)
        self._sendings += 1
        open_.sent = self._sendings
        heapq.heappush(self._offsets, batch)
        return list(open_.sends())

    def complete(self, frame: Completed) -> None:
        """A merger has done these."""
        before, self._collapsed[frame.merger] = self._collapsed[frame.merger], frame.collapsed
        self.collapsed += frame.collapsed - (before if before <= frame.collapsed else 0)
        for batch in frame.batch.tolist():
            open_ = self._open.get(batch)
            if open_ is None:
                continue
            open_.waiting.discard(frame.merger)
            if open_.waiting:
                self._look(batch, open_)
            else:
                self.completed += len(open_.rows)
                self.delayed += len(open_.rows) * (open_.age >= DELAYED_TICKS)
                self.stalled += len(open_.rows) * (open_.age >= STALLED_TICKS)
                self._note_passed(open_)
                self._close(batch)

    def hold_up(self, frame: Partial) -> None:
        """Of these a merger lacks what silent workers owe."""
        for batch in frame.batch.tolist():
            if (open_ := self._open.get(batch)) is not None:
                open_.partial.add(frame.merger)
                self._look(batch, open_)

    def refuse(self, frame: Stale) -> None:
        """A worker has another plan: the batch is sent again after a while."""
        if (open_ := self._open.get(frame.batch)) is not None and not open_.refused:
            open_.refused = True
            open_.resend_at = min(open_.resend_at, open_.waited + RESEND_TICKS)

    def begin(self, frame: Begin) -> None:
        """A worker comes to a suspect, or is done with it."""
        self._begun[frame.worker] = frame.batch, frame.attempt

    def replaced(self, peer: Address) -> list[Send]:
        """What a new incarnation of `peer` must be sent of the open batches."""
        out: list[Send] = []
        begun = self._begun.pop(peer.index, None) if peer.role == "worker" else None
        for batch, open_ in self._open.items():
            if peer.role == "merger" and peer.index in open_.waiting:
                out += self._send_again(open_)
            elif peer.role == "worker" and peer.index in open_.shares:
                open_.mourn(begun == (batch, open_.payload.attempt))
                if not open_.guilty:
                    self._send_again(open_)
                    out.append(Send(peer, open_.shares[peer.index]))
        return out

    def guilty(self) -> list[tuple[int, Open]]:
        """Take out the batches that killed."""
        found = [(b, open_) for b, open_ in self._open.items() if open_.guilty]
        for batch, _ in found:
            self._close(batch)
        return found

    def tick(self) -> list[Send]:
        """Returns what is sent again: batches that nothing explains but a lost message.

        Links keep their order and workers take batches in turn, so a batch that stands behind
        another in the queue of one of its workers has not been lost, however old it is. Were it
        sent again for its age alone, each copy would make the queue longer, and with that make
        more batches old, until workers did little but copies.
        """
        out: list[Send] = []
        queued: set[int] = set()  # workers that have not come to a batch that was sent before
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

    def _send_again(self, open_: Open) -> Iterator[Send]:
        """Counts one more sending; yields its messages."""
        self._sendings += 1
        open_.sent, open_.resent = self._sendings, True
        open_.sent_at, open_.refused = open_.waited, False
        return open_.sends()

    def _note_passed(self, open_: Open) -> None:
        """Every worker of a batch that is complete has come so far. Of one that was sent more
        than once nobody knows which of them was answered."""
        if open_.resent:
            self._lossy.update(open_.shares)
            return
        self._lossy.difference_update(open_.shares)
        for worker in open_.shares:
            self._passed[worker] = max(self._passed.get(worker, 0), open_.sent)

    def _look(self, batch: int, open_: Open) -> None:
        """Whether it is held up now; it remains so."""
        if open_.held_up and batch not in self._held:
            self._held.add(batch)
            self._held_size += open_.size

    def _close(self, batch: int) -> None:
        open_ = self._open.pop(batch)
        if batch in self._held:
            self._held.discard(batch)
            self._held_size -= open_.size
