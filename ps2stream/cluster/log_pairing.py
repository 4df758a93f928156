"""The check at the start of a service, before it accepts anything, that its ledger and its logs
belong together and that everything acknowledged is there (store/pairing.py).

An error names what is missing. Where the operator accepts the loss, numbers go on above all that
clients can have seen, and each session receives a gap.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ps2stream.cluster.left_archives import finish_archives
from ps2stream.cluster.log_validity import note_left_out
from ps2stream.cluster.log_windows import move_windows
from ps2stream.cluster.logs import ServiceLogs, list_dispatchers, name_of
from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.errors import DataDirectoryError
from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.records import (
    CheckpointRecord,
    CursorsRecord,
    MatchedRecord,
    MissingRecord,
    TakenOverRecord,
)
from ps2stream.merger.recovery import recover
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import I64, decode
from ps2stream.protocol.log_records import IdentifiedRecord, ObjectRecord
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.ports import LedgerChange, Log, LogNote, Store
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.rows import no_queries
from ps2stream.protocol.session_map import MAX_MERGERS, SessionMap, SessionMaps
from ps2stream.protocol.session_numbers import LEAP
from ps2stream.sequencer.feed import packed
from ps2stream.sequencer.session_moves import describe_change
from ps2stream.store.identity import LogIdentity
from ps2stream.store.pairing import (
    FoundLedger,
    FoundLog,
    LogMismatch,
    find_lost_log,
    find_mismatches,
)

log = logging.getLogger("ps2stream.cluster")
_START = ("start", 0)
"""A name in the ledger whose epochs count the starts of the service."""


def pair_logs(
    logs: ServiceLogs,
    store: Store,
    topology: Topology,
    accept_loss: bool = False,
    lsn: int | None = None,
) -> None:
    """Checks the logs of a service that starts against its ledger, and creates those that are new.

    No log may be open. `lsn`: the ledger's last when it was opened, if it has more by now. Raises
    DataDirectoryError where something is missing, unless `accept_loss`, and Unavailable on a full
    disk.
    """
    notes = store.log_notes()
    identities = {name: logs.identity(name) for name in logs.names()}
    if not accept_loss:
        _refuse_foreign(logs, identities, store.identity)
    logs.check(topology, notes or {})
    ledger = FoundLedger(
        store.identity, store.epoch(*_START), store.lsn if lsn is None else lsn, notes
    )
    addresses = [a for a in topology.addresses() if a.role in ("dispatcher", "merger")]
    made = set(identities)
    with contextlib.ExitStack() as opened:
        kept: dict[Address, Log] = {}
        found: list[FoundLog] = []
        for address in addresses:
            name = name_of(address)
            if name not in made:
                found.append(FoundLog(name, made=False, end=0, lsn=0, identity=None))
                continue
            identity = identities[name]
            kept[address] = opened.enter_context(contextlib.closing(logs.open(address, False)))
            stamped = _highest_lsn(kept[address], identity, (notes or {}).get(name))
            found.append(FoundLog(name, True, kept[address].end, stamped, identity))
        unused = set(notes or {}) - {known.name for known in found} - made
        gone = [FoundLog(name, made=False, end=0, lsn=0, identity=None) for name in sorted(unused)]
        mismatches = find_mismatches(ledger, [*found, *gone])
        if mismatches and not accept_loss:
            raise _describe_mismatches(logs, [m.problem for m in mismatches])
        for address in addresses:
            if address not in kept:
                kept[address] = opened.enter_context(contextlib.closing(logs.open(address, False)))
        if mismatches or logs.restored:
            _check_tables(logs, made, kept, store)
            _go_on_without(mismatches, ledger, found, kept, store, restored=logs.restored)
        objects = {a.index: log for a, log in kept.items() if a.role == "dispatcher"}
        move_windows(logs, topology.dispatchers, objects)
        _note_dispatchers(logs.recorded_dispatchers(), topology, store, notes or {})
        note_left_out(logs, objects)
        if topology.archive is not None and not logs.restored:  # else the archive may be ahead
            finish_archives(logs, topology.dispatchers, topology.archive, store.identity)
        noted: dict[str, LogNote] = {}
        for address, known in zip(addresses, found, strict=True):
            noted[known.name] = _tie_log(logs, ledger, known, kept[address], store.lsn)
        store.commit(LedgerChange(mergers=topology.mergers))
        store.note_logs(noted)
        logs.forget_restored()


def make_log(logs: ServiceLogs, store: Store, owner: Address) -> None:
    """Makes the log of a dispatcher or merger that joins a service; one that it had before is used
    again. Raises DataDirectoryError if that is another service's, or is gone, and Unavailable."""
    name = name_of(owner)
    is_made = name in logs.names()
    identity = logs.identity(name) if is_made else None
    _refuse_foreign(logs, {name: identity}, store.identity)
    notes = store.log_notes()
    if lost := find_lost_log(notes or {}, name, is_made, identity):
        raise DataDirectoryError(f"{logs.place}: {lost}; put it back, or restart the service")
    ledger = FoundLedger(store.identity, store.epoch(*_START), store.lsn, notes)
    with contextlib.closing(logs.open(owner, False)) as log:
        found = FoundLog(name, True, log.end, 0, identity)
        note = _tie_log(logs, ledger, found, log, store.lsn)
    store.note_logs({**(notes or {}), name: note})


def _refuse_foreign(
    logs: ServiceLogs, identities: Mapping[str, LogIdentity | None], ledger: int
) -> None:
    """Raises DataDirectoryError for logs of another service, before they are opened: that would
    take them from it."""
    foreign = [name for name, found in identities.items() if found and found.ledger != ledger]
    if foreign:
        problems = [f"{name}: it belongs to another ledger" for name in sorted(foreign)]
        raise _describe_mismatches(logs, problems)


def _describe_mismatches(logs: ServiceLogs, problems: Sequence[str]) -> DataDirectoryError:
    return DataDirectoryError(
        f"{logs.place}: ledger and logs do not belong together: {'; '.join(problems)}. Restore a "
        "backup of both; to continue without the missing data, start once with --accept-loss: each "
        "session then receives a gap"
    )


def _highest_lsn(log: Log, identity: LogIdentity | None, note: LogNote | None) -> int:
    """Returns the highest LSN of the records after the position that the ledger has noted for
    this log; all of them count if the log is another one."""
    same = identity is not None and note is not None and identity.incarnation == note.incarnation
    start = note.position if same and note is not None and note.position <= log.end else 0
    lsn = 0
    for _, data in log.scan(start):
        match decode(data):
            case ObjectRecord() | MatchedRecord() | CheckpointRecord() as record:
                lsn = max(lsn, record.lsn)
            case IdentifiedRecord(lsn=stamped):
                lsn = max(lsn, stamped)
    return lsn


def _tie_log(
    logs: ServiceLogs, ledger: FoundLedger, found: FoundLog, log: Log, lsn: int
) -> LogNote:
    """Writes the ledger's identity into that of the log; returns what the ledger is to note."""
    incarnation = 0
    if logs.identified:
        old = found.identity
        incarnation = secrets.randbits(63) if old is None else old.incarnation
        identity = LogIdentity(ledger.identity, incarnation, ledger.generation, lsn)
        logs.identify(found.name, identity, log)
    before = (ledger.notes or {}).get(found.name)
    return LogNote(incarnation, log.sync(), 0 if before is None else before.highest)


def _go_on_without(
    mismatches: Sequence[LogMismatch],
    ledger: FoundLedger,
    found: Sequence[FoundLog],
    kept: dict[Address, Log],
    store: Store,
    restored: bool,
) -> None:
    """Records what is lost, so that nothing new is taken for it."""
    maps = _find_tables(store, sum(role == "merger" for role, _ in kept))
    for mismatch in mismatches:
        log.warning("the service continues without the missing data: %s", mismatch.problem)
    lost = {m.log for m in mismatches if m.lost}
    older = any(not m.lost for m in mismatches)
    if older:
        stamps = [0 if log.identity is None else log.identity.lsn for log in found]
        _raise_lsn(store, max([*stamps, *(log.lsn for log in found)]))
    numbers = {name: note.highest for name, note in (ledger.notes or {}).items()}
    used: dict[int, int] = {}  # by dispatcher: the first offset not yet used
    for (role, index), opened in kept.items():
        if role == "dispatcher":
            objects = ObjectLog(opened)
            if restored or f"objects-{index}" in lost:
                highest = numbers.get(f"objects-{index}", 0)
                objects.skip_offsets(max(objects.offset, highest) + LEAP)
            used[index] = objects.offset
    for (role, index), opened in kept.items():
        if role == "merger":
            mine = [number for number, _ in store.sessions() if maps.now.merger_of(number) == index]
            if f"matches-{index}" in lost:
                _complete_all(opened, used)
            highest = numbers.get(f"matches-{index}", 0) if f"matches-{index}" in lost else 0
            _append_gaps(opened, mine, drop=older, leap=restored or bool(lost), highest=highest)


def _check_tables(
    logs: ServiceLogs, made: Collection[str], kept: Mapping[Address, Log], store: Store
) -> None:
    """Raises DataDirectoryError unless the ledger says which merger has each session: it does not
    while sessions move, nor if it is older than a move of which these logs have been part. Numbers
    of sessions would begin anew at a merger that has never had them."""
    maps = _find_tables(store, 1)
    if maps.before is not None:
        raise DataDirectoryError(
            f"{logs.place}: sessions were moving between mergers when data was lost, so that it is "
            "not known which of them had a session; restore a backup of ledger and logs"
        )
    for merger in (Address("merger", i) for i in range(MAX_MERGERS)):
        if name_of(merger) not in made:
            continue
        with contextlib.ExitStack() as opened:
            log = kept.get(merger)
            if log is None:  # it was dismissed, or the ledger does not know it yet
                log = opened.enter_context(contextlib.closing(logs.open(merger, False)))
            lsn = _find_highest_table(log)
        if lsn > maps.now.lsn:
            raise DataDirectoryError(
                f"{logs.place}: {name_of(merger)} has sessions that moved between mergers at LSN "
                f"{lsn}, of which the ledger does not know; restore a backup of ledger and logs"
            )


def _find_highest_table(log: Log) -> int:
    """Returns the LSN of the last table of sessions that a merger's log names; 0 without one."""
    lsn = 0
    for _, data in log.scan():
        match decode(data):
            case CheckpointRecord(table=table):
                lsn = max(lsn, table)
            case TakenOverRecord(lsn=table):
                lsn = max(lsn, table)
    return lsn


def _find_tables(store: Store, mergers: int) -> SessionMaps:
    """Returns the tables of sessions that the ledger ends with."""
    maps = SessionMaps(SessionMap.first(mergers))
    for batch in store.replay():
        if len(batch.sessions):
            maps = SessionMaps.of_record(batch.sessions)
    return maps


def _note_dispatchers(
    recorded: str | None, topology: Topology, store: Store, notes: Mapping[str, LogNote]
) -> None:
    """Notes in the ledger that the service starts with this number of dispatchers, if it has
    another one, or none though it knows logs of more: what these accept when they are there again
    has higher LSNs than what was withdrawn meanwhile. All of them are new, and so are the actors
    that would have to follow a change."""
    dispatchers = topology.dispatchers
    if recorded is None:
        if max(list_dispatchers([*notes]), default=0) < dispatchers:
            return
    elif int(recorded.split()[0]) == dispatchers:
        return
    lsn, no_rows = store.lsn + 1, packed(no_queries())
    tables = _find_tables(store, topology.mergers)
    left_out = 0 if tables.producers is None else tables.producers.left_out
    producers = ProducerMap.first(dispatchers)._replace(lsn=lsn, left_out=left_out)
    record = tables._replace(producers=producers).record()
    batch = LedgerBatch(lsn, lsn, 0, 0, 0, no_rows, sessions=record)
    store.commit(describe_change(batch, watermark=0))


def _raise_lsn(store: Store, lsn: int) -> None:
    """Raises the ledger's LSN to this one, so that no new query gets a handle in the logs."""
    if lsn > store.lsn:
        store.commit(LedgerChange(LedgerBatch(store.lsn + 1, lsn, 0, 0, 0, packed(no_queries()))))


def _complete_all(log: Log, used: Mapping[int, int]) -> None:
    """Marks all objects below these offsets as complete in a merger's log that was lost.

    The merger cannot know which of them it has dealt with. Matches that were under way are part
    of the gap, and none is delivered twice.
    """
    none, zero = np.zeros(0, np.int64), np.zeros(1, np.int64)
    rows, raw, place = np.zeros(0, np.uint32), np.zeros(0, np.uint8), np.zeros(0)
    pairs = none, none, zero, none, rows
    now = time.time_ns() // 1_000_000
    for dispatcher, stop in used.items():
        record = MatchedRecord(
            dispatcher, 0, stop, 0, now, *pairs, none, zero, raw, none, place, place, zero, raw,
            none, raw,
        )  # fmt: skip
        log.append(record.encode())


def _append_gaps(log: Log, sessions: Sequence[int], drop: bool, leap: bool, highest: int) -> None:
    """Appends gaps for these sessions and those that the match log knows; durable on return.

    `drop` gives up what they have not acknowledged, since its queries are unknown; `leap` goes on
    with numbers above `highest`, and above all that can have been used.
    """
    known = recover(log, MatchJournal(log)).sessions
    numbers: I64 = np.array(sorted({*sessions, *known}), np.int64)
    following: I64 = np.array(
        [known[n].next if n in known else 1 for n in numbers.tolist()], np.int64
    )
    if drop:
        log.append(CursorsRecord(numbers, np.zeros_like(numbers), following - 1).encode())
    if leap:
        last = np.maximum(following - 1, highest) + LEAP
        log.append(MissingRecord(numbers, following, last).encode())
    log.sync()
