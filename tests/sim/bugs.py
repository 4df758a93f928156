"""Deliberate bugs: each is a small patch of the real code, and the simulator must find it.

`planted(name)` makes one for as long as it is entered. What a bug does is its docstring.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
from numba import njit

from ps2stream.cluster import actor_shells
from ps2stream.dispatcher import (
    concerns,
    explanations,
    gathering,
    gridt,
    identified,
    instructions,
    intake,
    literal_table,
    object_log,
    open_batch,
    open_batches,
    producers,
    publications,
    releases,
    reservoir,
    retro,
    retro_queue,
    streams,
    valid_log,
    window_moves,
    withdrawals,
)
from ps2stream.dispatcher import machine as dispatcher_machine
from ps2stream.dispatcher import router as dispatcher_router
from ps2stream.language import literal_kernels, literals, object_terms
from ps2stream.merger import (
    arriving,
    dedup,
    leaving,
    moving,
    recovery,
    sessions,
    subscribers,
    updates,
)
from ps2stream.merger import machine as merger_machine
from ps2stream.merger.intervals import OffsetIntervals
from ps2stream.protocol import producer_map
from ps2stream.protocol.addresses import ROLES, Address, nothing
from ps2stream.protocol.follower import LedgerFollower, LedgerTail
from ps2stream.protocol.frame import sealed
from ps2stream.protocol.messages.objects import ReleasesKept, WatermarkNotice
from ps2stream.protocol.messages.sessions import StreamDelivery
from ps2stream.protocol.rows import (
    NEVER,
    ObjectRows,
    QueryRows,
    UpdateKind,
    no_offsets,
    no_queries,
)
from ps2stream.protocol.session_map import SessionMaps
from ps2stream.routing import h1, plan_follower, tags
from ps2stream.routing.plan_changes import step_record
from ps2stream.routing.plan_states import PlanStep
from ps2stream.sequencer import (
    chunk_kernels,
    decide,
    decide_kernels,
    dispatcher_growth,
    feed,
    followers,
    log_compaction,
    migration,
    query_ends,
    registry,
    remembered,
    session_moves,
    table_kernels,
)
from ps2stream.sequencer import machine as sequencer_machine
from ps2stream.sequencer import plan_changes as sequencer_changes
from ps2stream.sequencer.registry import encode
from ps2stream.store import frames, segments
from ps2stream.workers.machine import WorkerMachine
from tests.sim.cluster import Poisonable
from tests.sim.ledger import Ledger
from tests.support.sequencing import cut_hashes

BUGS: dict[str, Callable[[], AbstractContextManager[object]]] = {}


def planted(name: str) -> AbstractContextManager[object]:
    """Raises KeyError for an unknown name; none for an empty one."""
    return BUGS[name]() if name else nullcontext()


def bug(make: Callable[[], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
    BUGS[make.__name__] = contextmanager(make)
    return make


def patch(owner: Any, name: str, new: object) -> AbstractContextManager[object]:
    return mock.patch.object(owner, name, new)


# --- the object log and the dispatcher ---------------------------------------------------


@bug
def offsets_used_again() -> Iterator[None]:
    """A restarted dispatcher goes on after the last object in its log, though others that were
    not logged had higher offsets."""
    init = object_log.ObjectLog.__init__

    def forgetful(self: Any, log: Any, *rest: Any) -> None:
        init(self, log, *rest)
        ends = [r.batch + len(ObjectRows.decode(r.rows.data)) for r in self._read]
        self.offset = max(ends, default=0)

    with patch(object_log.ObjectLog, "__init__", forgetful):
        yield


@bug
def open_batches_not_replayed() -> Iterator[None]:
    """A restarted dispatcher sends nothing again."""
    with patch(object_log.ObjectLog, "recover", lambda self: []):
        yield


@bug
def restarts_forget_what_was_published() -> Iterator[None]:
    """A restarted dispatcher does not read from its log which publications it remembers."""
    add_batch = producers.ProducerWindows.add_batch

    def forgetful(self: Any, record: Any, partition: int, now: float = -1.0) -> None:
        if now >= 0:
            add_batch(self, record, partition, now)

    with patch(producers.ProducerWindows, "add_batch", forgetful):
        yield


@bug
def trimming_forgets_what_was_published() -> Iterator[None]:
    """The log is trimmed though the windows of producers come from there."""
    with patch(object_log.ObjectLog, "_keep_windows_from", lambda self, position: None):
        yield


@bug
def every_dispatcher_remembers_alone() -> Iterator[None]:
    """A publication that another dispatcher remembers is published here."""

    def selfish(self: Any, event: Any, identity: Any) -> None:
        self._take_in(event.call, event.rows, identity, event.since, event.wait_s)

    with (
        patch(identified.IdentifiedPublications, "add", selfish),
        patch(window_moves.WindowMoves, "describe_refusal", lambda self, producer: ""),
    ):
        yield


@bug
def repeats_under_way_are_published() -> Iterator[None]:
    """A repeat does not find the first, as long as that has no place in the log."""
    take_in = identified.IdentifiedPublications._take_in

    def blind(self: Any, caller: Any, rows: Any, identity: Any, *rest: Any) -> None:
        known = self._open.pop((identity.producer, identity.seq), None)
        take_in(self, caller, rows, identity, *rest)
        if known is not None:
            self._open[identity.producer, identity.seq] = known

    close = identified.IdentifiedPublications._close

    def lenient(self: Any, publication: Any) -> Any:
        key = publication.identity.producer, publication.identity.seq
        self._open.setdefault(key, publication)
        close(self, publication)
        return publication.callers

    with (
        patch(identified.IdentifiedPublications, "_take_in", blind),
        patch(identified.IdentifiedPublications, "_close", lenient),
    ):
        yield


@bug
def contents_of_repeats_are_not_compared() -> Iterator[None]:
    """Another batch under the same seq gets the answer of the first."""
    with (
        patch(identified, "check_digest", lambda identity, digest: None),
        patch(producers, "check_digest", lambda identity, digest: None),
    ):
        yield


@bug
def old_numbers_are_published() -> Iterator[None]:
    """What is older than the window of its producer is published."""
    with patch(producers.ProducerWindow, "lowest", property(lambda self: 0)):
        yield


@bug
def repeatable_batches_are_routed_at_once() -> Iterator[None]:
    """A batch that may be repeated is matched before its record is synced, and answered later."""
    reserve = publications.PublicationPipeline._reserve_batch
    route = publications.PublicationPipeline._route_reserved

    def hasty(self: Any, rows: Any, taken: Any, now: float) -> None:
        reserve(self, rows, taken, now)
        self._out += self._router.route_reserved(self._reserved[-1].batch.offset)

    def late(self: Any, now: float, now_ms: int) -> None:
        with patch(self._router, "route_reserved", lambda batch: []):
            route(self, now, now_ms)

    with (
        patch(publications.PublicationPipeline, "_reserve_batch", hasty),
        patch(publications.PublicationPipeline, "_route_reserved", late),
    ):
        yield


@bug
def progress_runs_ahead() -> Iterator[None]:
    """A dispatcher notes batches as complete that are under way."""
    with patch(dispatcher_router.RouterMachine, "oldest", property(lambda self: self.offset)):
        yield


@bug
def watermark_rises_too_early() -> Iterator[None]:
    """A dispatcher's watermark passes batches that are under way."""
    with patch(dispatcher_router.RouterMachine, "watermark", property(lambda self: self.applied)):
        yield


@bug
def serves_before_it_has_caught_up() -> Iterator[None]:
    """A new dispatcher takes objects in though it knows no queries yet."""
    ready = property(lambda self: self._ready_at is not None)
    with patch(dispatcher_router.RouterMachine, "ready", ready):
        yield


@bug
def every_suspect_is_blamed() -> Iterator[None]:
    """A worker's death counts for all suspect batches that it had been sent."""
    count = open_batch.OpenBatch.count_death
    with patch(open_batch.OpenBatch, "count_death", lambda self, begun: count(self, True)):
        yield


@bug
def one_answer_less() -> Iterator[None]:
    """A dispatcher does not wait for the last worker's answer."""
    take = open_batches.OpenBatches.take_answer

    def hasty(self: Any, frame: Any, *rest: Any) -> Any:
        open_ = self._open.get(frame.batch)
        if open_ is not None and len(open_.shares) == 2 and frame.worker in open_.shares:
            open_.shares = {frame.worker: open_.shares[frame.worker]}
        return take(self, frame, *rest)

    with patch(open_batches.OpenBatches, "take_answer", hasty):
        yield


@bug
def complete_before_it_is_kept() -> Iterator[None]:
    """A dispatcher does not wait until a merger has made durable what it was sent."""
    whole = property(lambda self: not (self.shares or self.answers))
    with patch(open_batch.OpenBatch, "is_complete", whole):
        yield


@bug
def releases_are_sent_once() -> Iterator[None]:
    """A dispatcher does not send again what may have got lost on the way to a merger."""
    with (
        patch(releases.ReleaseQueues, "resend_to", lambda self, merger: []),
        patch(releases.ReleaseQueues, "tick", lambda self: []),
    ):
        yield


@bug
def a_late_part_is_called_whole() -> Iterator[None]:
    """A dispatcher calls whole what lacks answers that come before or after it."""

    def gather(rows: Any, answers: Any, needs: Any, head: Any, *rest: Any) -> Any:
        return gathering.gather_matches(rows, answers, needs, head._replace(whole=1), *rest)

    with patch(open_batches, "gather_matches", gather):
        yield


@bug
def other_dispatchers_are_not_told_of_withdrawals() -> Iterator[None]:
    """The dispatcher that is called withdraws its own objects alone."""

    def selfish(self: Any, _: int, opened: Any) -> None:
        opened.missing.intersection_update({self._router.index})

    with patch(withdrawals.ObjectWithdrawals, "_send", selfish):
        yield


@bug
def withdrawals_are_forgotten_by_a_restart() -> Iterator[None]:
    """A restarted dispatcher does not read what was withdrawn."""
    with patch(valid_log.ValidityLog, "_drop_withdrawn", lambda self: None):
        yield


@bug
def withdrawals_take_what_came_behind_them() -> Iterator[None]:
    """A restarted dispatcher leaves out also what was published after its withdrawal."""
    drop = valid_log.ValidityLog._drop_withdrawn

    def greedy(self: Any) -> None:
        self._withdrawn = dict.fromkeys(self._withdrawn, len(self._read))
        drop(self)

    with patch(valid_log.ValidityLog, "_drop_withdrawn", greedy):
        yield


@bug
def withdrawals_leave_what_is_in_memory() -> Iterator[None]:
    """A withdrawal is in the log alone."""
    with patch(retro.RetroMatching, "withdraw", lambda self, ids: None):
        yield


@bug
def withdrawals_concern_what_is_yet_to_come() -> Iterator[None]:
    """A withdrawn id stays so, whoever publishes an object under it later."""
    note_batch, withdraw = retro.RetroMatching.note_batch, retro.RetroMatching.withdraw

    def remember(self: Any, ids: Any) -> None:
        self.all_ids = [*getattr(self, "all_ids", []), ids]
        withdraw(self, ids)

    def note(self: Any, *what: Any) -> None:
        note_batch(self, *what)
        for ids in getattr(self, "all_ids", []):
            withdraw(self, ids)

    with (
        patch(retro.RetroMatching, "withdraw", remember),
        patch(retro.RetroMatching, "note_batch", note),
    ):
        yield


@bug
def objects_wait_for_no_update() -> Iterator[None]:
    """A dispatcher says of no update that it concerns somebody."""
    with patch(concerns.ReceiverConcerns, "of", lambda self, index: 0):
        yield


@bug
def notices_skip_what_concerns_the_receiver() -> Iterator[None]:
    """A dispatcher tells everybody that nothing concerns them."""

    def careless(index: int, watermark: int, oldest: int, after: int, lsn: int) -> Any:
        return WatermarkNotice(index, watermark, oldest, 0, lsn)

    with patch(dispatcher_router, "WatermarkNotice", careless):
        yield


@bug
def plan_changes_concern_nobody() -> Iterator[None]:
    """A dispatcher does not count a plan change among what a worker has to wait for."""
    with patch(concerns.ReceiverConcerns, "note_all", lambda self, lsn: None):
        yield


@bug
def nothing_is_repeated() -> Iterator[None]:
    """A dispatcher does not say again what may have got lost on the way to the sequencer."""
    with patch(dispatcher_router, "REPEAT_TICKS", 1 << 60):
        yield


@bug
def a_lost_delivery_is_passed_over() -> Iterator[None]:
    """A dispatcher hands on a delivery though the one before it is missing."""
    on = streams.SessionStreams.on

    def lax(self: Any, frame: Any, now: float) -> None:
        known = self._of.get(frame.session)
        if isinstance(frame, StreamDelivery) and known is not None and frame.number > known.number:
            known.number = frame.number - 1
        on(self, frame, now)

    with patch(streams.SessionStreams, "on", lax):
        yield


@bug
def withdrawn_publications_are_routed() -> Iterator[None]:
    """A client is told that its publication was withdrawn, and it is routed nevertheless."""

    def promise(self: Any, call: Any) -> bool:
        return any(waiting.call is call for waiting in self._waiting)

    def answer_once(self: Any, batch: Any, end: int, taken: Any, now: float) -> None:
        note(self, batch, end, [waiting for waiting in taken if not waiting.call.done()], now)

    note = publications.PublicationPipeline._note_accepted
    with (
        patch(intake.PublicationIntake, "withdraw", promise),
        patch(publications.PublicationPipeline, "_note_accepted", answer_once),
    ):
        yield


@bug
def waiting_publications_are_forgotten() -> Iterator[None]:
    """A publication that found no room in its time is dropped without a word."""
    expire = intake.PublicationIntake.take_expired

    def silent(self: Any, now: float) -> list[Any]:
        expire(self, now)
        return []

    with patch(intake.PublicationIntake, "take_expired", silent):
        yield


@bug
def credits_are_counted_twice() -> Iterator[None]:
    """A dispatcher tells the merger that the client took twice as much as it did."""
    credit = streams.SessionStreams.credit

    def twice(self: Any, event: Any, now: float) -> None:
        more = event._replace(batches=2 * event.batches, size=2 * event.size)
        credit(self, more, now)

    with patch(streams.SessionStreams, "credit", twice):
        yield


@bug
def credits_are_lost() -> Iterator[None]:
    """A dispatcher passes on what a client acknowledges, and not that it took batches."""
    credit = streams.SessionStreams.credit

    def deaf(self: Any, event: Any, now: float) -> None:
        credit(self, event._replace(batches=0, size=0), now)

    with patch(streams.SessionStreams, "credit", deaf):
        yield


@bug
def reopened_streams_go_on_where_they_were() -> Iterator[None]:
    """A stream that takes again gets nothing of what was dropped meanwhile."""

    def go_on(self: Any, handle: Any) -> None:
        self._out.append(instructions.ReopenInbox(handle))

    with (
        patch(streams.SessionStreams, "pause", lambda self, handle: None),
        patch(streams.SessionStreams, "resume", go_on),
        patch(streams.SessionStreams, "restart", lambda self, event: None),
    ):
        yield


@bug
def reopened_streams_get_no_epoch() -> Iterator[None]:
    """A stream that takes again waits for ever."""
    with patch(streams.SessionStreams, "restart", lambda self, event: None):
        yield


@bug
def estimates_leave_out_the_newest() -> Iterator[None]:
    """An estimate is made from part of the sample."""
    recent = reservoir.ObjectReservoir.recent

    def older(self: Any, now_ms: int) -> Any:
        found = recent(self, now_ms)
        return found._replace(parts=found.parts[:-1])

    with patch(reservoir.ObjectReservoir, "recent", older):
        yield


@bug
def queries_are_explained_by_one_posting() -> Iterator[None]:
    """An estimate and an explanation know the first posting of a query alone."""
    expand = explanations.expand_query

    def first(router: Any, query: Any) -> Any:
        found = expand(router, query)
        columns: list[Any]
        off, *columns = found.tags
        one = tags.QueryTags(np.minimum(off, 1), *(column[:1] for column in columns))
        return found._replace(tags=one)

    with patch(dispatcher_machine, "expand_query", first):
        yield


# --- links ---------------------------------------------------------------------------------


# --- the sequencer and the ledger ------------------------------------------------------------


@bug
def repeats_are_done_again() -> Iterator[None]:
    """The sequencer decides a request anew each time it comes."""

    def careless(self: Any, requests: Any) -> Any:
        requests = list(requests)
        for request in requests:
            self._settle_answers(request.dispatcher, request.epoch, request.settled)
        return {remembered.RequestKey(r.dispatcher, r.epoch, r.seq): r for r in requests}, {}

    with patch(remembered.RememberedAnswers, "sift", careless):
        yield


@bug
def answers_are_not_durable() -> Iterator[None]:
    """A restarted sequencer does not know what it has answered."""
    with patch(Ledger, "answers", lambda self: []):
        yield


@bug
def delete_requests_are_not_durable() -> Iterator[None]:
    """A restarted sequencer does not know the request ids of deletes."""
    with patch(Ledger, "requests", lambda self: iter(())):
        yield


@bug
def a_replacement_takes_two_lsns() -> Iterator[None]:
    """The insert of a replacement gets the LSN after that of its delete, so that an object may fall
    between them."""

    def take_apart(kernel: Any) -> Any:
        def apart(base: int, *args: Any) -> Any:
            counts = kernel(base, *args)
            _, lsns, kinds, _, numbers, _ = args[-1]
            out_lsn, handles = numbers[decide_kernels.OUT_LSN], numbers[decide_kernels.OUT_HANDLE]
            moved: dict[int, int] = {}  # the LSNs of inserts, and those of deletes without one
            for row in range(max(counts[0], 0)):
                lsn = base + row + 1
                moved[int(out_lsn[row])] = out_lsn[row] = lsn
                handle = int(handles[row])
                is_insert = kinds[row] == UpdateKind.INSERT
                handles[row] = lsn if is_insert else moved.get(handle, handle)
            if counts[0] > 0:
                lsns[:] = [moved.get(lsn, lsn) for lsn in lsns.tolist()]
            return counts

        return apart

    found, batch = decide_kernels.decide_found, decide_kernels.decide_batch
    with (
        patch(decide, "decide_found", take_apart(found)),
        patch(decide, "decide_batch", take_apart(batch)),
    ):
        yield


@bug
def replacements_are_done_again() -> Iterator[None]:
    """The sequencer knows the request ids of deletes alone."""
    whole = decide.decide

    def forgetful(rows: Any, names: Any, request_ids: Any, **rest: Any) -> Any:
        off, data = request_ids
        counts = QueryRows.decode(rows.data).kind != UpdateKind.REPLACE
        kept = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(off) * counts)])
        return whole(rows, names, (kept, data[np.repeat(counts, np.diff(off))]), **rest)

    with patch(sequencer_machine, "decide", forgetful):
        yield


def _with_conditions(change: Callable[[Any], Any]) -> AbstractContextManager[object]:
    """The sequencer finds the conditions of replacements changed."""
    whole = decide.decide

    def changed(rows: Any, *rest: Any, **more: Any) -> Any:
        decoded = QueryRows.decode(rows.data)
        return whole(encode(decoded.replace(handle=change(decoded.handle))), *rest, **more)

    return patch(sequencer_machine, "decide", changed)


@bug
def conditions_of_replacements_are_passed_over() -> Iterator[None]:
    """A query that somebody deleted or replaced is inserted again by who has read it before."""
    with _with_conditions(np.zeros_like):
        yield


@bug
def conditions_of_replacements_never_hold() -> Iterator[None]:
    """A replacement with a condition is refused, though the query is live."""
    with _with_conditions(lambda handle: np.where(handle > 0, np.int64(1) << 60, 0)):
        yield


@bug
def half_a_replacement_is_taken_for_all() -> Iterator[None]:
    """Who follows goes on with a log in which compaction has left only the insert of a
    replacement."""
    find_left_out = feed.find_left_out

    def blind(batch: Any, rows: Any) -> int:
        return find_left_out(dataclasses.replace(batch, until=0), rows)

    with patch(sequencer_machine, "find_left_out", blind):
        yield


@bug
def who_lags_goes_on_with_a_log_that_was_compacted() -> Iterator[None]:
    """The sequencer forgets what its compaction has left out while actors follow."""
    with patch(feed.FetchAnswers, "note_left_out", lambda *_: None):
        yield


@bug
def compaction_goes_beyond_the_watermark() -> Iterator[None]:
    """What was deleted lately is left out of the log, though objects are still matched as of LSNs
    below."""

    def find_last(self: Any, _watermark: int) -> tuple[int, int]:
        return self._store.lsn, self._store.lsn

    with patch(log_compaction.LogCompaction, "_raise_marks", find_last):
        yield


@bug
def half_a_pass_of_compaction_is_taken_for_damage() -> Iterator[None]:
    """A sequencer that starts cannot bear deletes of queries whose inserts are gone."""
    with patch(sequencer_machine, "leave_orphans_out", lambda rows, *_: rows):
        yield


@bug
def session_numbers_are_given_again() -> Iterator[None]:
    """A restarted sequencer begins to count sessions anew."""
    with patch(Ledger, "sessions", lambda self: sorted(self._sessions.items())[:1]):
        yield


@bug
def visible_before_all_have_applied() -> Iterator[None]:
    """An update is acknowledged once one dispatcher has it."""

    def hasty(self: Any, end: int) -> bool:
        before, self.visible = self.visible, max(self.visible, *self._applied.values())
        return bool(self.visible > before)

    with patch(followers.FollowerProgress, "see", hasty):
        yield


@bug
def states_lack_the_dying() -> Iterator[None]:
    """Who fetches the state is not told of queries that were deleted lately."""
    state = registry.QueryRegistry.state

    def partial(self: Any, size: int) -> Any:
        with mock.patch.object(self, "_dying", type(self._dying)()):
            return state(self, size)

    with patch(registry.QueryRegistry, "state", partial):
        yield


@bug
def ids_are_compared_by_hash_alone() -> Iterator[None]:
    """Ids that share a hash, of which there are few, are taken for one id."""

    batch, found = decide_kernels.decide_batch, decide_kernels.decide_found

    def careless(
        base: int,
        rows: Any,
        names: Any,
        session: int,
        requests: Any,
        keys: Any,
        live: Any,
        *rest: Any,
    ) -> Any:
        counts = batch(base, rows, names, session, requests, keys, live, *rest)
        hashes, numbers = rest[-1][3], rest[-1][4][:, : len(names[0]) - 1]
        stored = decide_kernels.STORED_PLACE, decide_kernels.STORED_HANDLE
        place, handle, owner = numbers[[*stored, decide_kernels.STORED_SESSION]]
        wants = decide_kernels.WANTS_SESSIONS, decide_kernels.WANTS_ROOM
        if counts[0] in wants or not _take_first(
            *live, hashes[decide_kernels.IDS], place, handle, owner
        ):
            return counts
        for column, values in zip(stored, (place, handle), strict=True):
            numbers[column] = values
        numbers[decide_kernels.STORED_SESSION] = owner
        none = requests[0][:1], requests[1][:0], requests[0][:1]
        return found(base, rows, names, requests, none, live[1], rest[-1])

    with cut_hashes(2), patch(decide, "decide_batch", careless):
        yield


@njit
def _take_first(parts: Any, table: Any, hashes: Any, place: Any, handle: Any, session: Any) -> int:
    """Takes, for the rows without a query, the first one with the hash of the id; returns how many
    have one."""
    taken = 0
    for i in range(len(place)):
        if place[i] == -1:
            slots, rest = table_kernels.find_part(parts, hashes[i])
            row = table_kernels.find_row(slots, rest, table_kernels.find_home(rest, len(slots)))[1]
            if row >= 0:
                place[i] = row
                one = slice(i, i + 1)
                chunk_kernels.read_owners(table, place[one], handle[one], session[one])
                taken += 1
    return taken


# --- workers -----------------------------------------------------------------------------------


@bug
def purged_too_early() -> Iterator[None]:
    """A worker lets go of deleted queries that objects under way must still meet."""
    with patch(WorkerMachine, "watermark", property(lambda self: self._stream.applied)):
        yield


@bug
def tombstones_dropped() -> Iterator[None]:
    """A worker forgets that a query was deleted before the objects that it must not match."""
    with patch(Poisonable, "delete", lambda self, handles, lsns: None):
        yield


@bug
def matched_as_of_now() -> Iterator[None]:
    """A worker matches objects with the queries that live now, not as of their LSN."""

    def newest(self: Any, lsn: int, *rest: Any) -> Any:
        return self.inner.match(NEVER - 1, *rest)

    with patch(Poisonable, "match", newest):
        yield


@bug
def gaps_are_passed_over() -> Iterator[None]:
    """A follower of the ledger applies what comes, though something before it is missing."""
    take = LedgerTail.next

    def hasty(self: Any, applied: int) -> Any:
        return take(self, self._waiting[0][0] if self._waiting else applied)

    with patch(LedgerTail, "next", hasty):
        yield


@bug
def half_a_state_is_used() -> Iterator[None]:
    """A follower takes the log amid a state."""
    with patch(LedgerFollower, "amid", property(lambda self: False)):
        yield


@bug
def snapshots_claim_more_than_they_hold() -> Iterator[None]:
    """A snapshot says that an update is in it which came later."""
    freeze = WorkerMachine.freeze

    def ahead(self: Any) -> Any:
        saved = freeze(self)
        return saved and saved._replace(lsn=saved.lsn + 1)

    with patch(WorkerMachine, "freeze", ahead):
        yield


# --- mergers -------------------------------------------------------------------------------------


def _early(kind: type) -> AbstractContextManager[object]:
    commit = actor_shells.MergerShell._commit_sends

    def hasty(self: Any, sends: Any) -> None:
        self.post([send for send in sends if isinstance(send.frame, kind)])
        commit(self, [send for send in sends if not isinstance(send.frame, kind)])

    return patch(actor_shells.MergerShell, "_commit_sends", hasty)


@bug
def completed_before_the_sync() -> Iterator[None]:
    """A merger reports a release as kept before its pairs are durable."""
    with _early(ReleasesKept):
        yield


@bug
def delivered_before_the_sync() -> Iterator[None]:
    """A merger sends pairs whose numbers are not durable."""
    with _early(StreamDelivery):
        yield


@bug
def done_batches_are_done_again() -> Iterator[None]:
    """A merger numbers the pairs of a batch each time it comes."""
    intervals = OffsetIntervals
    with (
        patch(intervals, "covers", lambda self, start, stop: False),
        patch(intervals, "within", lambda self, start, stop: []),
    ):
        yield


@bug
def told_again_after_a_restart() -> Iterator[None]:
    """A merger does not read from its log what it told of a batch before a silent worker's
    answer."""
    with patch(dedup.DedupWindow, "tell", lambda self, offset, handle: None):
        yield


@bug
def a_part_is_the_whole() -> Iterator[None]:
    """A merger takes for done what lacks the answers of some workers."""
    record = merger_machine.MergerMachine._record_pairs

    def hasty(self: Any, window: Any, release: Any) -> Any:
        return record(self, window, dataclasses.replace(release, whole=1))

    with patch(merger_machine.MergerMachine, "_record_pairs", hasty):
        yield


@bug
def names_forgotten_too_early() -> Iterator[None]:
    """A merger forgets a deleted query's name though pairs under way may need it."""
    forget = updates.MergerUpdates.forget
    with patch(
        updates.MergerUpdates, "forget", lambda self, lowest, last: forget(self, self.applied, last)
    ):
        yield


@bug
def cursors_lost() -> Iterator[None]:
    """A restarted merger takes for acknowledged whatever its log holds."""
    build = recovery._build_sessions

    def wrong(table: Any, *rest: Any) -> Any:
        rows = table.rows()
        table.add(rows[:, 0], 0, rows[:, 1] - 1, 0)
        return build(table, *rest)

    with patch(recovery, "_build_sessions", wrong):
        yield


@bug
def unacknowledged_pairs_are_not_sent_again() -> Iterator[None]:
    """A session's new stream goes on where the old one was, not where its client was."""
    attach = sessions.MergerSession.attach

    def hasty(self: Any, frame: Any) -> Any:
        taken = self.taken
        out = attach(self, frame)
        self.taken = max(taken, self.taken)
        return out

    with patch(sessions.MergerSession, "attach", hasty):
        yield


@bug
def gaps_are_not_announced() -> Iterator[None]:
    """A session whose backlog overflowed goes on as if nothing were missing."""
    pump = sessions.MergerSession.pump

    def silent(self: Any, source: Any) -> Any:
        if self.stream is not None and self.taken < self.noted:
            self.taken = self.noted
        return pump(self, source)

    with patch(sessions.MergerSession, "pump", silent):
        yield


# --- logs ----------------------------------------------------------------------------------------


@bug
def a_torn_tail_is_taken_for_records() -> Iterator[None]:
    """What a power cut left half written is read as if it were whole."""
    crc = mock.Mock(crc32=lambda data, seed=0: 0)
    with patch(frames, "zlib", crc):
        yield


@bug
def failed_syncs_are_ignored() -> Iterator[None]:
    """A log goes on after a sync that failed."""
    write = segments.SegmentLog._write_batch

    def careless(self: Any, *args: Any) -> None:
        try:
            write(self, *args)
        except OSError:
            for segment in args[1]:
                segment.begun = True

    with patch(segments.SegmentLog, "_write_batch", careless):
        yield


# --- moves to another plan -------------------------------------------------------------------


@bug
def finished_before_the_watermark() -> Iterator[None]:
    """Old owners forget while batches that were routed to them are under way."""
    due = migration.PlanMigration.due

    def hasty(self: Any) -> Any:
        return step_record(PlanStep.FINISH) if self.strategy.switched else due(self)

    with patch(migration.PlanMigration, "due", hasty):
        yield


@bug
def updates_go_to_the_present_owner_alone() -> Iterator[None]:
    """What is inserted during a move does not reach the owner to come."""

    def list_present(self: Any, given: tags.QueryTags) -> tags.QueryTags:
        other, self.other = self.other, None
        try:
            return list_holders(self, given)
        finally:
            self.other = other

    list_holders = tags.QueryTagger.list_holders
    with patch(tags.QueryTagger, "list_holders", list_present):
        yield


@bug
def updates_go_to_one_replica() -> Iterator[None]:
    """What is inserted into a replicated unit reaches the first of its workers alone."""

    def list_first(self: Any, given: tags.QueryTags) -> tags.QueryTags:
        return list_holders(self, given._replace(worker=self.h1.choose_first(given.worker)))

    list_holders = tags.QueryTagger.list_holders
    with patch(tags.QueryTagger, "list_holders", list_first):
        yield


@bug
def objects_go_to_one_shard() -> Iterator[None]:
    """An object that meets a sharded unit goes to one of its workers, as if it were replicated."""
    route = gridt.Gridt.route

    def route_to_one(self: Any, *args: Any) -> Any:
        groups = self.h1.groups
        self.h1.groups = h1.WorkerGroups(groups.off, groups.worker, np.zeros_like(groups.sharded))
        try:
            return route(self, *args)
        finally:
            self.h1.groups = groups

    with patch(gridt.Gridt, "route", route_to_one):
        yield


@bug
def every_shard_is_loaded_whole() -> Iterator[None]:
    """A worker of a sharded unit fetches, and does not drop, what the others have."""
    held_by = h1.H1.held_by

    def hold_all(self: Any, worker: int, holder: Any, term: Any, place: Any) -> Any:
        groups = self.groups
        self.groups = h1.WorkerGroups(groups.off, groups.worker, np.zeros_like(groups.sharded))
        try:
            return held_by(self, worker, holder, term, place)
        finally:
            self.groups = groups

    with patch(h1.H1, "held_by", hold_all):
        yield


@bug
def the_dying_are_not_loaded() -> Iterator[None]:
    """A new owner does not hear of queries that died lately, as of which objects may still
    come."""
    load = registry.QueryRegistry.load

    def living(self: Any, *args: Any) -> Any:
        dying, self._dying = self._dying, type(self._dying)()
        try:
            return load(self, *args)
        finally:
            self._dying = dying

    with patch(registry.QueryRegistry, "load", living):
        yield


@bug
def a_state_that_was_taken_is_sent_again() -> Iterator[None]:
    """Whoever has all of a state gets it again, though the log has lost what follows."""
    answer = feed.FetchAnswers.answer

    def answer_again(self: Any, request: Any, *rest: Any) -> Any:
        found = self._feeds.get(Address(ROLES[request.role], request.index))
        if found is None or request.state or not found.until <= request.after < self._horizon:
            return answer(self, request, *rest)
        return found.answer(request)

    with patch(feed.FetchAnswers, "answer", answer_again):
        yield


@bug
def reports_of_unknown_mergers_are_taken() -> Iterator[None]:
    """A dispatcher that starts knows every merger that reports."""
    take_kept = releases.ReleaseQueues.take_kept

    def take_any(self: Any, frame: Any) -> Any:
        assert self._reported[frame.merger] >= 0
        return take_kept(self, frame)

    with patch(releases.ReleaseQueues, "take_kept", take_any):
        yield


@bug
def a_move_is_forgotten_by_a_new_incarnation() -> Iterator[None]:
    """A state does not say which strategy is in force."""
    with patch(sequencer_changes.PlanChangeDriver, "make_record", lambda self: nothing()):
        yield


@bug
def part_of_what_moves_is_not_loaded() -> Iterator[None]:
    """A new owner asks for the queries of half of the cells that it gains."""
    gained = plan_follower.PlanFollower.gained

    def half(self: Any, worker: int) -> Any:
        found = gained(self, worker)
        return found if found is None else found._replace(box=found.box * 0.5)

    with patch(plan_follower.PlanFollower, "gained", half):
        yield


@bug
def old_owners_keep_what_they_had() -> Iterator[None]:
    """A worker forgets nothing of what it no longer owns, and may match it again later."""
    with patch(Poisonable, "drop", lambda self, keep: None):
        yield


# --- watched literals --------------------------------------------------------------------


@bug
def objects_are_not_searched_again() -> Iterator[None]:
    """Objects that were analysed before a phrase was first inserted are routed as they are."""
    with patch(literal_table.LiteralTable, "search", lambda _self, rows, _analyzer: rows):
        yield


@bug
def objects_are_searched_again_for_the_last_insert_alone() -> Iterator[None]:
    """Of several inserts that came since objects were analysed, only the last one counts."""
    with patch(literals.WatchedLiterals, "join", lambda parts: parts[-1]):
        yield


@bug
def literals_end_with_the_delete() -> Iterator[None]:
    """Phrases are no longer looked for once their last query is deleted, though objects of before
    may be sent again."""
    note = dispatcher_router.RouterMachine._note_deletes

    def hasty(self: Any, rows: Any, tags: Any) -> None:
        note(self, rows, tags)
        self.literals.retire(literals.WatchedLiterals.of(rows))
        self.literals._make_room(0)
        self.literals.view = self.literals.view._replace(version=self.literals.view.version + 1)
        self.literals._since = self.literals.view.version
        *rest, _ = self._deleted[-1]
        self._deleted[-1] = (*rest, literals.WatchedLiterals.of(no_queries()))

    with patch(dispatcher_router.RouterMachine, "_note_deletes", hasty):
        yield


@bug
def pairs_are_marked_for_the_first_query_alone() -> Iterator[None]:
    """Later queries under pairs do not mark the attributes of these, which are then not sought."""
    count: Any = literal_kernels.count_up

    def hasty(tables: Any, columns: Any, found: Any, more: Any, marks: Any) -> Any:
        is_later = bool(marks[2][literals.LiteralKind.PAIR])
        done = count(tables, columns, found, more, tuple(mark.copy() for mark in marks))
        _, kind, size, _ = found
        kept = kind != literals.LiteralKind.PAIR if is_later else np.ones(len(kind), np.bool_)
        literal_kernels.mark_literals(sealed(kind[kept]), sealed(size[kept]), marks)
        return done

    with patch(literal_table, "count_up", hasty):
        yield


# --- values of attributes ----------------------------------------------------------------


@bug
def halves_have_the_values_of_the_first() -> Iterator[None]:
    """Both halves of a batch that is split carry the values of the first half's objects."""
    add: Any = open_batches.OpenBatches.add
    firsts: dict[tuple[int, int], Any] = {}

    def careless(self: Any, *args: Any) -> Any:
        *head, shares, needs, watermark, part_of = args
        if part_of is not None:
            for i, share in enumerate(shares):
                if len(share.value_off):
                    _, first = firsts.setdefault((id(part_of), share.worker), (part_of, share))
                    ends = np.minimum(np.arange(len(share.row) + 1), len(first.row))
                    columns = {"value_off": first.value_off[ends], "value": first.value}
                    shares[i] = share._replace(**columns)
        return add(self, *head, shares, needs, watermark, part_of)

    with patch(open_batches.OpenBatches, "add", careless):
        yield


@bug
def values_are_not_taken_by_the_rows_of_a_share() -> Iterator[None]:
    """A worker gets the values of the first objects of a batch, whichever are its own."""
    with patch(
        object_terms.ComparedValues,
        "take",
        lambda self, rows: self if not len(self.off) else (self.off[: len(rows) + 1], self.word),
    ):
        yield


@bug
def values_stay_behind_in_the_log() -> Iterator[None]:
    """What is sent again after a restart has no attributes."""
    recover = object_log.ObjectLog.recover

    def bare(self: Any) -> Any:
        found = []
        for record in recover(self):
            rows = ObjectRows.decode(record.rows.data)
            rows = dataclasses.replace(rows, opaque_off=no_offsets(), opaque=nothing())
            found.append(dataclasses.replace(record, rows=object_log.column(rows)))
        return found

    with patch(object_log.ObjectLog, "recover", bare):
        yield


# --- validity ----------------------------------------------------------------------------


@bug
def ends_are_forgotten_by_a_restart() -> Iterator[None]:
    """A restarted sequencer does not know when the queries in its ledger end."""
    init = sequencer_machine.SequencerMachine.__init__

    def forgetful(self: Any, *args: Any, **others: Any) -> None:
        with patch(query_ends.QueryEnds, "note", lambda *_: None):
            init(self, *args, **others)

    with patch(sequencer_machine.SequencerMachine, "__init__", forgetful):
        yield


@bug
def queries_end_too_early() -> Iterator[None]:
    """A query ends up to half a second before its end."""
    take_due = query_ends.QueryEnds.take_due

    def hasty(self: Any, now_ms: int, most: int) -> Any:
        return take_due(self, now_ms + 500, most)

    with patch(query_ends.QueryEnds, "take_due", hasty):
        yield


@bug
def ends_that_cannot_be_committed_are_lost() -> Iterator[None]:
    """A query that ends while the ledger is full lives on."""
    with patch(query_ends.QueryEnds, "put_back", lambda *_: None):
        yield


@bug
def new_queries_meet_what_came_after_them_twice() -> Iterator[None]:
    """A new query is matched against all valid objects, those that it meets anyway included."""
    match = retro.RetroMatching._match

    def all_of_them(self: Any, job: Any, chunk: Any) -> Any:
        return match(self, job, chunk._replace(lsn=np.zeros_like(chunk.lsn)))

    late: Any = retro.RetroMatching.has_work

    def patient(self: Any) -> bool:
        return bool(late.fget(self)) and self._router.ready and not self._router.in_flight

    with (
        patch(retro.RetroMatching, "_match", all_of_them),
        patch(retro.RetroMatching, "has_work", property(patient)),
    ):
        yield


@bug
def objects_are_valid_by_the_clock_of_the_dispatcher() -> Iterator[None]:
    """An object that has ended by the time of the insert is matched if it is still kept."""
    take = retro_queue.RetroQueue.take

    def lax(self: Any) -> Any:
        queries = self._due[0]
        self._due[0] = queries._replace(inserted=queries.inserted - 1_000)
        return take(self)

    with patch(retro_queue.RetroQueue, "take", lax):
        yield


@bug
def valid_objects_are_forgotten_by_a_restart() -> Iterator[None]:
    """A restarted dispatcher knows no objects that are still valid."""
    with patch(valid_log.ValidityLog, "_add_read", lambda *_: None):
        yield


@bug
def valid_objects_do_not_hold_the_log() -> Iterator[None]:
    """The log is trimmed though objects that are still valid come from there."""
    with patch(valid_log.ValidityLog, "keep_from", lambda *_: None):
        yield


@bug
def restarts_do_not_go_on_with_new_queries() -> Iterator[None]:
    """A restarted dispatcher takes the new queries that it finds for done."""
    note = retro_queue.RetroQueue.note

    def careless(self: Any, rows: Any, tags: Any) -> None:
        if self._known == 0 and not hasattr(self, "begun"):
            self._known = int(rows.handle.max())
        self.begun = True
        note(self, rows, tags)

    with patch(retro_queue.RetroQueue, "note", careless):
        yield


@bug
def parts_are_released_before_all_are_durable() -> Iterator[None]:
    """What is found is released at once, and done anew after a crash."""
    append = retro.RetroMatching._append

    def hasty(self: Any, job: Any, *args: Any) -> None:
        append(self, job, *args)
        self._release([job.logged.pop()])

    with patch(retro.RetroMatching, "_append", hasty):
        yield


@bug
def dropped_objects_are_not_announced() -> Iterator[None]:
    """A session does not learn that objects were dropped that its query may have matched."""
    begin = retro.RetroMatching._begin

    def silent(self: Any, queries: Any) -> Any:
        job = begin(self, queries)
        job.missed = job.missed[:0]
        return job

    with patch(retro.RetroMatching, "_begin", silent):
        yield


@bug
def new_queries_do_not_hold_the_watermark() -> Iterator[None]:
    """A query that is matched against valid objects is forgotten when it is deleted meanwhile."""
    with patch(retro_queue.RetroQueue, "find_lowest", lambda self, otherwise: otherwise):
        yield


# --- sessions that move between mergers ---------------------------------------------------


@bug
def pairs_go_by_the_present_table() -> Iterator[None]:
    """Pairs of batches from before a change go to the merger that has their session after it."""
    with patch(SessionMaps, "at", lambda self, lsn: self.now):
        yield


@bug
def sessions_are_given_away_too_early() -> Iterator[None]:
    """A merger gives sessions away while batches from before the change are under way."""
    answer = leaving.LeavingSessions.answer
    with patch(
        leaving.LeavingSessions,
        "answer",
        lambda self, request, watermark: answer(self, request, NEVER),
    ):
        yield


@bug
def batches_do_not_wait_for_numbers() -> Iterator[None]:
    """A merger numbers pairs of a session before it knows the numbers that it has had elsewhere."""
    with patch(moving.MovingSessions, "hold_from", NEVER):
        yield


@bug
def records_of_sessions_that_come_are_not_fetched() -> Iterator[None]:
    """A merger has the numbers of sessions, and takes their pairs for acknowledged."""
    take_over = subscribers.MergerSessions.take_over

    def lossy(self: Any, record: Any) -> None:
        take_over(self, dataclasses.replace(record, acked=record.next - 1))

    with patch(subscribers.MergerSessions, "take_over", lossy):
        yield


@bug
def requests_for_sessions_are_not_repeated() -> Iterator[None]:
    """A merger requests a step of a move once, whether it is answered or not."""
    with patch(arriving, "REPEAT", 1 << 40):
        yield


@bug
def states_lack_the_tables_of_sessions() -> Iterator[None]:
    """An actor that starts anew takes the first table for the one in force."""
    with patch(session_moves.SessionMoves, "make_record", lambda self: nothing()):
        yield


@bug
def streams_are_opened_before_all_records_are_there() -> Iterator[None]:
    """A merger opens the stream of a session of which it has not all pairs yet."""
    with patch(arriving.ArrivingSessions, "has", lambda self, session: True):
        yield


@bug
def guessed_tables_are_taken_for_the_first() -> Iterator[None]:
    """A worker orders its pairs by the mergers of the start, and calls that the first table."""
    init = WorkerMachine.__init__

    def sure(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self._sessions = self._sessions._replace(lsn=0)

    with patch(WorkerMachine, "__init__", sure):
        yield


@bug
def what_was_complete_is_replayed_after_a_move() -> Iterator[None]:
    """A restarted dispatcher sends pairs again to a merger that has not seen them."""
    with patch(open_batches.OpenBatches, "is_known_complete", lambda self, lsn: False):
        yield


# --- dispatchers that join ----------------------------------------------------------------


@bug
def nobody_waits_for_new_dispatchers() -> Iterator[None]:
    """Updates are acknowledged though a new dispatcher has not applied them."""
    count = followers.FollowerProgress.count_dispatchers

    def few(self: Any, dispatchers: int) -> None:
        known = len(self._applied)
        count(self, dispatchers)
        self._applied = dict(list(self._applied.items())[:known])

    with patch(followers.FollowerProgress, "count_dispatchers", few):
        yield


@bug
def receivers_do_not_count_new_dispatchers() -> Iterator[None]:
    """Workers and mergers drop deleted queries that batches of a new dispatcher need."""
    with patch(open_batches.OpenBatches, "counted", 0):
        yield


@bug
def producers_come_without_their_windows() -> Iterator[None]:
    """A dispatcher that gains producers does not ask what they have published."""
    with patch(producer_map.ProducerMap, "sources_of", lambda self, dispatcher: set()):
        yield


@bug
def windows_leave_before_publications_are_over() -> Iterator[None]:
    """A dispatcher gives windows away while publications of their producers are open."""
    with patch(identified.IdentifiedPublications, "open_producers", ()):
        yield


# --- dispatchers that leave ---------------------------------------------------------------


@bug
def dispatchers_leave_before_their_batches_are_complete() -> Iterator[None]:
    """A dispatcher that leaves reports at once that nothing of it is under way."""
    with patch(dispatcher_machine.DispatcherMachine, "_is_idle", True):
        yield


@bug
def a_change_ends_before_windows_are_held() -> Iterator[None]:
    """Windows are dropped where they were before they are durable where they go."""
    finish = dispatcher_growth.DispatcherGrowth._finish

    def hasty(self: Any) -> Any:
        self._held |= set(range(self.producers.dispatchers))
        return finish(self)

    with patch(dispatcher_growth.DispatcherGrowth, "_finish", hasty):
        yield


@bug
def nobody_hears_of_the_objects_of_those_that_left() -> Iterator[None]:
    """A session does not learn that valid objects were given up which its query may have met."""
    finished = producer_map.ProducerMap.finished
    with patch(producer_map.ProducerMap, "finished", lambda self, left_out=0: finished(self)):
        yield
