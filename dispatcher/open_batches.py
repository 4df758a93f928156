"""The batches under way: what was sent of each, and who has not yet answered.

Each worker that got a share answers once, to this dispatcher, with the pairs that it found. When
the last one has answered, each merger that has a match among them gets its pairs with the objects
that they name; a batch without a match reaches no merger. So a batch costs at most two messages for
each of its workers and each of its mergers. A slow worker does not delay what others found: LATE_S
after the first answer, what there is goes to the mergers.

A batch is a suspect once DEATHS workers to which it had been sent died while it was open. Workers
report when they begin a suspect, so that a worker that dies then has died of it. The suspect is
then sent again as two halves, which are suspects too; an object that is alone is fatal after
DEATHS trials.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence

from ps2stream.dispatcher.gathering import (
    NOT_RETRO,
    ReleaseHead,
    RetroParts,
    RoutingProgress,
    gather_matches,
    order_pairs,
)
from ps2stream.dispatcher.gridt import ObjectShare
from ps2stream.dispatcher.held_up import HeldUpBatches
from ps2stream.dispatcher.open_batch import TEXT_BYTES, OpenBatch
from ps2stream.dispatcher.releases import ReleaseQueues
from ps2stream.dispatcher.silence import SILENT_TICKS, SilentWorkers
from ps2stream.dispatcher.waits import WorkerWaits
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.objects import (
    MatchBatch,
    ReleasesKept,
    RoutedObjects,
    StaleRoute,
    SuspectBegin,
)
from ps2stream.protocol.rows import ObjectRows
from ps2stream.protocol.session_map import SessionMap, SessionMaps
from ps2stream.protocol.ticks import OVERTAKEN_TICKS, RESEND_TICKS

DELAYED_TICKS, STALLED_TICKS = 2, 11
"""Ticks that pass in more than 0.1 s, and in more than 1 s."""
DEPTH_BITS = 8  # of an attempt: they count how often the batch was halved
LATE_S = 0.005
"""The seconds that an answer waits for those of other workers. If mergers were sent each answer at
once, a batch would cost a message for each pair of a worker and a merger."""


class OpenBatches:
    """The open batches of dispatcher `index` in its incarnation `epoch`. `route` is the number of
    the plan by which new ones are routed. `closed` are those that were completed since they were
    last taken. `last_in_part` is the highest batch of which mergers were sent a part, until they
    were informed that it is complete. `waits`: what is before each worker. `sessions`: the tables
    by which pairs belong to mergers."""

    def __init__(self, index: int, workers: int, mergers: int, route: int, epoch: int) -> None:
        self._index = index
        self.waits = WorkerWaits(workers)
        self.route = route
        self._epoch = epoch
        self._open: dict[int, OpenBatch] = {}
        self._offsets: list[int] = []  # a heap of those of open batches and of some complete ones
        self._late: deque[tuple[float, int]] = deque()  # since when a batch has answers that wait
        self.sessions = SessionMaps(SessionMap.first(mergers))
        self._releases = ReleaseQueues(mergers, epoch)
        self._silence = SilentWorkers()
        self._held_up = HeldUpBatches()
        self.closed: list[int] = []
        self.last_in_part = -1
        self.completed = 0  # objects of batches that are complete
        self.delayed = self.stalled = 0  # objects that took long
        self._begun: dict[int, tuple[int, int]] = {}  # batch and attempt that a worker has begun
        self._sendings = 0  # in all
        self._passed: dict[int, int] = {}  # the last sending that a worker has answered
        self._lossy: set[int] = set()  # workers whose last answer was to one of several sendings

    def __len__(self) -> int:
        return len(self._open)

    def follow_sessions(self, maps: SessionMaps) -> None:
        """Follows a change of the tables of sessions. What `is_known_complete` is closed: it is
        open only because this incarnation does not know what an earlier one was told."""
        self.sessions = maps
        self._releases.resize(maps.mergers)
        for batch, open_ in list(self._open.items()):
            if self.is_known_complete(open_.lsn):
                self._releases.drop(open_.releases)
                self._finish_batch(batch, open_)

    def is_known_complete(self, lsn: int) -> bool:
        """Returns whether all batches of this LSN were complete when sessions had moved. Mergers
        that have the sessions now do not know the pairs of those batches as theirs."""
        return lsn < self.sessions.complete_below

    def is_below_all(self, lsn: int) -> bool:
        """Returns whether every open batch has a higher LSN."""
        return all(open_.lsn > lsn for open_ in self._open.values())

    @property
    def counted(self) -> int:
        """The number of dispatchers, as messages with a watermark name it (ProducerMap.mark); 0 if
        it has not changed since the service's start."""
        producers = self.sessions.producers
        return 0 if producers is None else producers.mark

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
        return self.active + self._held_up.size // TEXT_BYTES

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

    @property
    def collapsed(self) -> int:
        """The matches that came from two workers, as the mergers report."""
        return self._releases.collapsed

    def describe_oldest(self) -> str:
        """Describes in one line which peers have not answered for the batch of the lowest offset;
        empty if there is none."""
        batch = self.oldest(-1)
        open_ = self._open.get(batch)
        if open_ is None:
            return ""
        workers = ", ".join(f"worker-{n}{self._silence.describe(n)}" for n in sorted(open_.shares))
        mergers = ", ".join(f"merger-{n}" for n in self._releases.mergers_of(open_.releases))
        reasons = [f"no answer from {workers}"] if workers else []
        reasons += [f"matches are not durable at {mergers}"] if mergers else []
        return (
            f"the batch at offset {batch} has been open for {open_.age} ticks: {'; '.join(reasons)}"
        )

    def add(
        self,
        batch: int,
        lsn: int,
        rows: ObjectRows,
        shares: Sequence[ObjectShare],
        needs: Sequence[int],
        watermark: int,
        part_of: OpenBatch | None = None,
    ) -> list[Send]:
        """Opens a batch and returns its messages to workers; `needs` is for each share the last
        update that concerns its worker. A half of `part_of` has a higher attempt, since both may
        have the same offset."""
        attempt = self._epoch << DEPTH_BITS if part_of is None else part_of.attempt + 1
        suspect = part_of is not None
        routed = {
            share.worker: RoutedObjects(
                self._index, batch, attempt, self.route, lsn, last, watermark, int(suspect),
                share.row, share.lon, share.lat, share.term_off, share.term, share.chosen,
                share.value_off, share.value, self.counted,
            )
            for share, last in zip(shares, needs, strict=True)
        }  # fmt: skip
        open_ = self._open[batch] = OpenBatch(lsn, rows, attempt, routed, suspect)
        for share in shares:
            self.waits.note_sent(share.worker, len(share.row))
        self._sendings = open_.sent = self._sendings + 1
        heapq.heappush(self._offsets, batch)
        self._hold_up(batch, open_)
        return open_.sends()

    def add_found(
        self, batch: int, lsn: int, rows: ObjectRows, retro: RetroParts, progress: RoutingProgress
    ) -> list[Send]:
        """Opens a batch of matches that were found without workers; returns its releases. One that
        `is_known_complete` is closed at once."""
        if self.is_known_complete(lsn):
            self.closed.append(batch)
            return []
        open_ = self._open[batch] = OpenBatch(lsn, rows, 0, {}, suspect=False)
        heapq.heappush(self._offsets, batch)
        return self._send_releases(batch, open_, retro.answers, progress, True, retro)

    def take_answer(self, frame: MatchBatch, now: float, progress: RoutingProgress) -> list[Send]:
        """Takes a worker's answer; returns what mergers are sent if it was the last one. Of several
        answers to one share, the first counts."""
        self._silence.note_answer(frame)
        open_ = self._open.get(frame.batch)
        if open_ is None or frame.attempt != open_.attempt:
            return []
        if (share := open_.shares.pop(frame.worker, None)) is None:
            return []
        self.waits.note_done(frame.worker, len(share.row), frame.took_us, frame.cpu_us)
        self._note_passed(frame.worker, open_)
        if len(frame.row):
            if not open_.answers:
                self._late.append((now, frame.batch))
            open_.answers.append(frame)
        self._hold_up(frame.batch, open_)
        return [] if open_.shares else self._release_answers(frame.batch, open_, progress)

    @property
    def answers_due(self) -> float:
        """When the first answers have waited for LATE_S; infinite if none wait."""
        while self._late:
            since, batch = self._late[0]
            if (open_ := self._open.get(batch)) is not None and open_.answers:
                return since + LATE_S
            self._late.popleft()
        return math.inf

    def release_late(self, now: float, progress: RoutingProgress) -> list[Send]:
        """Returns what mergers are sent of batches in which some workers have answered LATE_S ago
        and others have not."""
        out: list[Send] = []
        while self._late and self._late[0][0] <= now - LATE_S:
            _, batch = self._late.popleft()
            open_ = self._open.get(batch)
            if open_ is not None and open_.answers:
                out += self._release_answers(batch, open_, progress)
        return out

    def _release_answers(
        self, batch: int, open_: OpenBatch, progress: RoutingProgress
    ) -> list[Send]:
        """Sends the answers that wait to the mergers that have matches in them."""
        answers, open_.answers = open_.answers, []
        whole = not open_.shares and not open_.released
        open_.released = True
        if not whole:
            self.last_in_part = max(self.last_in_part, batch)
        return self._send_releases(batch, open_, answers, progress, whole)

    def _send_releases(
        self, batch: int, open_: OpenBatch, answers: Sequence[MatchBatch],
        progress: RoutingProgress, whole: bool, retro: RetroParts = NOT_RETRO,
    ) -> list[Send]:  # fmt: skip
        first, size = self._releases.next, max(len(open_.rows), 1)
        head = ReleaseHead(
            self._index, batch, size, int(whole), 0, first, open_.lsn, 0,
            progress.watermark, progress.oldest, progress.dispatchers,
        )  # fmt: skip
        sessions = self.sessions.at(open_.lsn)
        needs = [progress.concern(merger) for merger in range(sessions.mergers)]
        ordered = [order_pairs(answer, sessions) for answer in answers]
        found = gather_matches(open_.rows, ordered, needs, head, sessions, retro)
        out = [self._releases.add(merger, frame) for merger, frame in found]
        open_.releases.update(range(first, self._releases.next))
        self._close_if_complete(batch, open_)
        self._hold_up(batch, open_)
        return out

    def note_kept(self, frame: ReleasesKept) -> None:
        """Notes that a merger has made releases durable."""
        for release, batch in self._releases.take_kept(frame):
            if (open_ := self._open.get(batch)) is not None:
                open_.releases.discard(release)
                self._close_if_complete(batch, open_)
                self._hold_up(batch, open_)

    def note_lost(self, worker: int) -> None:
        """Notes that a worker seems to have died, which may be a false alarm."""
        self._silence.suspect(worker)
        self._held_up.find_all(self._open, self._silence.silent)

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
        if peer.role == "merger":
            return self._releases.resend_to(peer.index)
        if peer.role != "worker":
            return []
        out: list[Send] = []
        begun = self._begun.pop(peer.index, None)
        for batch, open_ in self._open.items():
            if peer.index in open_.shares:
                open_.count_death(begun == (batch, open_.attempt))
                if not open_.is_fatal:
                    self._count_sending(open_)
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
            if not open_.shares:
                continue  # a merger has not made all durable
            ahead = [w for w in open_.shares if open_.sent > self._passed.get(w, 0)]
            if open_.refused or queued.isdisjoint(ahead):
                open_.waited += 1
                lost = not ahead or (not open_.resent and not self._lossy.isdisjoint(ahead))
                soon = open_.sent_at + OVERTAKEN_TICKS if lost else open_.resend_at
                if open_.waited >= min(open_.resend_at, soon):
                    open_.resend_at = max(2 * open_.waited, RESEND_TICKS)
                    self._count_sending(open_)
                    out += open_.sends()
            queued.update(ahead)
        self._silence.tick(o.shares for o in self._open.values() if o.age > SILENT_TICKS)
        self._held_up.find_all(self._open, self._silence.silent)
        return out + self._releases.tick()

    def _count_sending(self, open_: OpenBatch) -> None:
        """Counts one more sending of a batch."""
        self._sendings += 1
        open_.sent, open_.resent = self._sendings, True
        open_.sent_at, open_.refused = open_.waited, False

    def _note_passed(self, worker: int, open_: OpenBatch) -> None:
        """Notes that a worker has come up to the sending of a batch that it has answered. If it was
        sent more than once, it is unknown which sending was answered."""
        if open_.resent:
            self._lossy.add(worker)
            return
        self._lossy.discard(worker)
        self._passed[worker] = max(self._passed.get(worker, 0), open_.sent)

    def _hold_up(self, batch: int, open_: OpenBatch) -> None:
        """Counts a batch as held up from now, not only from the next tick, if only silent workers
        keep it open: small publications to others would wait for it."""
        self._held_up.add_early(batch, open_, self._silence.silent)

    def _close_if_complete(self, batch: int, open_: OpenBatch) -> None:
        if open_.is_complete:
            self._finish_batch(batch, open_)

    def _finish_batch(self, batch: int, open_: OpenBatch) -> None:
        self.completed += len(open_.rows)
        self.delayed += len(open_.rows) * (open_.age >= DELAYED_TICKS)
        self.stalled += len(open_.rows) * (open_.age >= STALLED_TICKS)
        self.closed.append(batch)
        self._close_batch(batch)

    def _close_batch(self, batch: int) -> None:
        open_ = self._open.pop(batch)
        for worker, share in open_.shares.items():
            self.waits.note_done(worker, len(share.row))
        self._held_up.discard(batch, open_)
