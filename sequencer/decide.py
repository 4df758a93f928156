"""The sequencer's decision about each row of the dispatchers' requests.

The decision is pure. What rows name is found in columns: their ids, sessions and earlier deletes;
then a kernel decides about one row after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import I64, U8, U64, sealed
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.ports import NamedUpdates
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.sequencer.chunk_kernels import COLUMNS
from ps2stream.sequencer.columns import StringColumn, find_first_rows, take_strings
from ps2stream.sequencer.committed import CommittedRequests
from ps2stream.sequencer.decide_kernels import (
    ASKED,
    ASKED_PAIRS,
    HASHES,
    NUMBER,
    NUMBERS,
    OUT,
    OUT_HANDLE,
    OUT_LSN,
    OUT_PLACE,
    OUT_SESSION,
    OUT_SOURCE,
    STORED_PLACE,
    STORED_SOURCE,
    WANTS_SESSIONS,
    WANTS_SOURCES,
    decide_batch,
    decide_found,
    write_batch,
)
from ps2stream.sequencer.packed_rows import allocate_rows, list_columns
from ps2stream.sequencer.registry import PreparedRows, QueryRegistry
from ps2stream.sequencer.remembered import RememberedUpdates
from ps2stream.sequencer.table_kernels import NONE


class UpdateVerdict(NamedTuple):
    """The decisions about n rows, with final LSNs. `rows` are those to commit, encoded, and
    `room` has them behind the head of a LedgerBatch, which is yet to be written; `prepared` has
    the same with what the registry needs to apply them; `session` and `kind` of each of them;
    `requests` the request ids to remember, None without any, and `durable` those of the rows
    that changed something; `keys` the hashes of `requests`, as recent.find returns them."""

    status: U8
    lsn: I64
    room: U64
    prepared: PreparedRows
    session: I64
    sessions: dict[bytes, int]
    requests: NamedUpdates | None
    durable: NamedUpdates | None
    keys: U64

    @property
    def is_inserted(self) -> NDArray[np.bool_]:
        """Returns bool[n]: which rows made a query, and not merely repeat what made one."""
        source, made = self.prepared.source, np.zeros(len(self.status), np.bool_)
        made[source[source != NONE]] = True
        return made

    @property
    def kind(self) -> U8:
        """The kinds of the rows to commit."""
        return self.prepared.kind

    @property
    def rows(self) -> U8:
        """The rows to commit, as encoded QueryRows."""
        return self.room.view(np.uint8)[LedgerBatch.head_bytes() :]

    @property
    def last(self) -> int:
        """The last LSN of the rows to commit, of which there is one at least."""
        return int(self.prepared.lsn[-1])


def decide(
    rows: QueryRows,
    names: StringColumn,
    request_ids: StringColumn,
    *,
    base: int,
    live: QueryRegistry,
    sessions: Mapping[bytes, int],
    top: int,
    recent: RememberedUpdates,
) -> UpdateVerdict:
    """Decides about the rows in their order, each as if those before it were committed. Nothing
    is changed.

    `names` are the session names of the rows; `base` is the last LSN; `sessions` has the session
    numbers in use, of which `top` is the highest; `recent` has the LSNs of remembered requests.

    An insert of a new id is OK. An insert of the same id, canonical query and session as before
    is OK with the first LSN and changes nothing, even if it is typed differently. Any other one is
    ALREADY_EXISTS, unless it is a REPLACE of the same session: then the live query is deleted and
    the new one inserted at one LSN. A delete is OK if the query is live and of the named session
    (any session, if the name is empty); else it is NOT_FOUND. A delete or REPLACE that repeats a
    remembered (id, request_id) is OK with the LSN of that and changes nothing. Those that are OK
    are remembered, also a REPLACE that finds its query live.
    """
    n = len(rows)
    kind, columns = sealed(rows.kind), list_columns(rows)
    strings = (sealed(names[0]), sealed(names[1])), (sealed(request_ids[0]), sealed(request_ids[1]))
    more = n + int(np.count_nonzero(kind == _REPLACE))
    out = status, lsn, kinds, hashes, numbers, sizes = _make_room(n, more)
    fresh: dict[bytes, int] = {}

    def decide_named(session: int) -> tuple[int, ...]:
        found: tuple[int, ...] = decide_batch(
            base, columns, kind, (*strings[0], session), strings[1], live.keys,
            (live.parts, live.columns), recent.known, out,
        )  # fmt: skip
        return found

    session = _find_one_session(names, kind, sessions)
    counts = decide_named(session) if session != NONE else (WANTS_SESSIONS,)
    if counts[0] == WANTS_SESSIONS:
        numbers[NUMBER, :n], fresh = _number_sessions(names, live, kind, sessions, top)
        counts = decide_named(NONE)
    if counts[0] == WANTS_SOURCES:
        # Sources are compared only if an insert names a live query.
        place = numbers[STORED_PLACE, :n]
        is_live = place != NONE
        numbers[STORED_SOURCE, :n] = np.cumsum(is_live) - 1
        sources = _list_sources(live.take(place[is_live]))
        counts = decide_found(
            base, columns, kind, strings[0][0], strings[1][0], sources, live.columns, out
        )
    count, kept, changing, id_bytes, request_bytes, bad = counts
    if bad != NONE:
        raise ValueError(f"row {bad} has an unknown form or shape, or a negative session")
    room, starts = allocate_rows(count, sizes, LedgerBatch.head_bytes())
    named, named_starts = NamedUpdates.allocate([kept, kept + 1, id_bytes, kept + 1, request_bytes])
    frames = (room, np.array(starts)), (named, np.array(named_starts))
    write_batch(live.columns, columns, strings[1], out, (count, kept), *frames)
    requests = CommittedRequests.view(named) if kept else None
    durable: NamedUpdates | None = requests
    if requests is not None and changing < kept:
        durable = _take_changing(requests, lsn, numbers[ASKED, :kept], base)
    owners = numbers[OUT_SESSION, :count]
    used = set(owners.tolist()) if fresh else set()
    prepared = PreparedRows(
        room.view(np.uint8)[LedgerBatch.head_bytes() :],
        kinds[:count],
        numbers[OUT_LSN, :count],
        numbers[OUT_HANDLE, :count],
        (sealed(numbers[NUMBER]), *columns[1:]),
        numbers[OUT_SOURCE, :count],
        hashes[OUT, :count],
        numbers[OUT_PLACE, :count],
    )
    return UpdateVerdict(
        status,
        lsn,
        room,
        prepared,
        owners,
        {name: k for name, k in fresh.items() if k in used},
        requests,
        durable,
        hashes[ASKED_PAIRS, :kept],
    )


def _make_room(n: int, most: int) -> tuple[U8, I64, U8, U64, I64, I64]:
    """Returns what decide_batch writes into for n rows, and at most so many to commit."""
    return (
        np.empty(n, np.uint8),
        np.empty(n, np.int64),
        np.empty(most, np.uint8),
        np.empty((HASHES, most), np.uint64),
        np.empty((NUMBERS, most), np.int64),
        np.empty((COLUMNS, most + 1), np.int64),
    )


def _find_one_session(names: StringColumn, kind: U8, sessions: Mapping[bytes, int]) -> int:
    """Returns the number of the session of the first row, 0 if rows that are all deletes may name
    one that does not exist; NONE if some row may make it."""
    off, data = names
    known = sessions.get(data[: int(off[1])].tobytes(), 0) if len(off) > 1 else 0
    return known if known or not np.count_nonzero(kind != _DELETE) else NONE


def _number_sessions(
    names: StringColumn,
    live: QueryRegistry,
    kind: U8,
    sessions: Mapping[bytes, int],
    top: int,
) -> tuple[I64, dict[bytes, int]]:
    """Returns (the session number of each row, 0 for one that does not exist; the new sessions).
    Names that an insert uses for the first time get the next numbers."""
    off, data = names
    hashes, insert = live.hash(off, data), kind != _DELETE
    code, _ = find_first_rows(off, data, hashes)
    number = np.zeros(len(hashes), np.int64)
    first = np.flatnonzero(code == np.arange(len(code)))
    used = np.zeros(len(code), np.bool_)
    used[code[insert]] = True
    fresh: dict[bytes, int] = {}
    # In the order in which inserts use them first.
    makes = np.full(len(code), len(code), np.int64)
    at = np.flatnonzero(insert)
    makes[code[at[::-1]]] = at[::-1]
    for row in first[np.argsort(makes[first], kind="stable")].tolist():
        name = data[off[row] : off[row + 1]].tobytes()
        known = sessions.get(name, 0)
        if not known and used[row]:
            known = fresh[name] = top + len(fresh) + 1
        number[row] = known
    return number[code], fresh


def _list_sources(rows: QueryRows) -> tuple[I64, U8, I64]:
    """Returns the fields of QuerySources as a plain tuple."""
    return sealed(rows.source_off), sealed(rows.source), sealed(rows.geom_off)


def _take_changing(requests: NamedUpdates, lsn: I64, at: I64, base: int) -> NamedUpdates | None:
    """Returns those of the requests, of the rows `at`, that changed something: their LSNs are
    above all before; None without any."""
    highest = np.maximum.accumulate(np.concatenate([np.array([base]), lsn[:-1]]))
    rows = np.flatnonzero(lsn[at] > highest[at])
    if not len(rows):
        return None
    ids = take_strings((requests.id_off, requests.id), rows)
    asked = take_strings((requests.request_off, requests.request), rows)
    return NamedUpdates(requests.lsn[rows], *ids, *asked)


# Members of an enumeration compare slowly with a column.
_DELETE, _REPLACE = np.uint8(UpdateKind.DELETE), np.uint8(UpdateKind.REPLACE)
