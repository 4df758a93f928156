"""Checks that a ledger and its logs belong together, and that none of them lacks something.

The ledger notes each log's incarnation and a position that it has reached; a log names its
ledger and the start of the service that opened it last, and its records are stamped with LSNs.
So a log that is missing or older than the ledger is noticed, and a ledger older than its logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ps2stream.protocol.ports import LogNote
from ps2stream.store.identity import LogIdentity


class FoundLedger(NamedTuple):
    """A ledger as a start finds it. identity: its random number; generation: of this start,
    counted by the ledger; lsn: its last; notes: what it knows of the logs, None where it was
    written by an older version."""

    identity: int
    generation: int
    lsn: int
    notes: Mapping[str, LogNote] | None


class FoundLog(NamedTuple):
    """A log as a start finds it. made: whether it was there; end: where its last record ends;
    lsn: the highest LSN of a record behind the noted position; identity: None where it has
    none."""

    name: str
    made: bool
    end: int
    lsn: int
    identity: LogIdentity | None


class LogMismatch(NamedTuple):
    """Fault of a log: it lacks records (`lost`), or it knows more than the ledger."""

    log: str
    lost: bool
    problem: str


def find_mismatches(ledger: FoundLedger, logs: Sequence[FoundLog]) -> list[LogMismatch]:
    """Returns what does not fit, in the order of the logs, at most one fault a log."""
    found: list[LogMismatch] = []
    for log in logs:
        note = None if ledger.notes is None else ledger.notes.get(log.name)
        if problem := _describe_older_ledger(ledger, log, note):
            found.append(LogMismatch(log.name, lost=False, problem=f"{log.name}: {problem}"))
        elif note is not None and (problem := _describe_lost_records(log, note)):
            found.append(LogMismatch(log.name, lost=True, problem=f"{log.name} {problem}"))
    return found


def find_lost_log(
    notes: Mapping[str, LogNote], name: str, is_made: bool, identity: LogIdentity | None
) -> str:
    """Returns that a log which the ledger knows is not there, or that another is in its place;
    empty if neither is so. Looks at no records."""
    note = notes.get(name)
    if note is None:
        return ""
    found = FoundLog(name, is_made, note.position, 0, identity)
    problem = _describe_lost_records(found, note)
    return problem and f"{name} {problem}"


def _describe_lost_records(log: FoundLog, note: LogNote) -> str:
    """Returns what the log lacks of what the ledger knows of it; empty if nothing."""
    reached = f"the ledger refers to it up to position {note.position}"
    if not log.made and (note.incarnation or note.position):
        return f"is missing; {reached}"
    if note.incarnation and (log.identity is None or log.identity.incarnation != note.incarnation):
        return f"is another log than the one of this name that the ledger refers to; {reached}"
    if log.end < note.position:
        return f"ends at position {log.end}; {reached}"
    return ""


def _describe_older_ledger(ledger: FoundLedger, log: FoundLog, note: LogNote | None) -> str:
    """Returns what the log knows that the ledger does not; empty if nothing."""
    identity = log.identity
    if identity is not None and identity.ledger != ledger.identity:
        return "it belongs to another ledger"
    if identity is not None and identity.generation >= ledger.generation:
        return (
            f"the ledger is older than the log: it records {ledger.generation - 1} starts of the "
            f"service, but the log records {identity.generation}"
        )
    lsn = max(log.lsn, 0 if identity is None else identity.lsn)
    if lsn > ledger.lsn:
        return (
            f"the ledger is older than the log: it ends at LSN {ledger.lsn}, but the log contains "
            f"LSN {lsn}"
        )
    if ledger.notes is not None and note is None and identity is None and log.end:
        return "it contains records, but the ledger does not refer to it"
    return ""
