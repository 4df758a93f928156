"""The sequencer's decision about each row of the dispatchers' requests.

The decision is pure. What rows name is found in columns: their ids, sessions and earlier deletes;
then a kernel decides about one row after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import I64, U8, U64, FrameError, sealed
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
    NO_FRAME,
    NUMBER,
    NUMBERS,
    OUT,
    OUT_PLACE,
    OUT_SESSION,
    OUT_SOURCE,
    STORED_PLACE,
    STORED_SOURCE,
    WANTS_ROOM,
    WANTS_SESSIONS,
    WANTS_SOURCES,
    decide_batch,
    decide_found,
    write_batch,
)
from ps2stream.sequencer.registry import PreparedRows, QueryRegistry
from ps2stream.sequencer.remembered import RememberedUpdates
from ps2stream.sequencer.table_kernels import NONE


class UpdateVerdict(NamedTuple):
    """The decisions about n rows, with final LSNs, of which `refused` are not OK. `committed` rows
    are to be committed, up to the LSN `last`: `room` has them as an encoded LedgerBatch, and
    `prepared` with what the registry needs to apply them. `requests`: the `kept` request ids to
    remember, None without any; `durable`: those of the rows that changed something; `out`: what
    decide_batch wrote."""

    status: U8
    lsn: I64
    refused: int
    committed: int
    last: int
    room: U64
    prepared: PreparedRows
    sessions: dict[bytes, int]
    kept: int
    requests: NamedUpdates | None
    durable: NamedUpdates | None
    out: tuple[U8, I64, U8, U64, I64, I64]

    @property
    def is_inserted(self) -> NDArray[np.bool_]:
        """Returns bool[n]: which rows made a query, and not merely repeat what made one."""
        source, made = (
            self.out[4][OUT_SOURCE, : self.committed],
            np.zeros(len(self.status), np.bool_),
        )
        made[source[source != NONE]] = True
        return made

    @property
    def rows(self) -> U8:
        """The rows to commit, as encoded QueryRows; empty without any."""
        return self.prepared.rows

    @property
    def keys(self) -> U64:
        """The hashes of `requests`, as recent.find returns them."""
        return self.out[3][ASKED_PAIRS, : self.kept]


def decide(
    rows: U8,
    names: StringColumn,
    request_ids: StringColumn,
    *,
    base: int,
    live: QueryRegistry,
    sessions: Mapping[bytes, int],
    top: int,
    recent: RememberedUpdates,
    owner: int = 0,
) -> UpdateVerdict:
    """Decides about the rows in their order, each as if those before it were committed. Nothing
    is changed.

    `rows` are encoded QueryRows; `names` are the session names of the rows; `base` is the last LSN;
    `sessions` has the session numbers in use, of which `top` is the highest; `recent` has the LSNs
    of remembered requests; `owner` is that of the LedgerBatch. Raises FrameError for damaged rows,
    and ValueError for one that cannot be kept.

    An insert of a new id is OK. An insert of the same id, canonical query and session as before
    is OK with the first LSN and changes nothing, even if it is typed differently. Any other one is
    ALREADY_EXISTS, unless it is a REPLACE of the same session: then the live query is deleted and
    the new one inserted at one LSN. A REPLACE with a handle is FAILED_PRECONDITION if the query
    with this handle is gone and no equal one lives. A delete is OK if the query is live and of the
    named session (any session, if the name is empty); else it is NOT_FOUND. A delete or REPLACE
    that repeats a remembered (id, request_id) is OK with the LSN of that and changes nothing. Those
    that are OK are remembered, also a REPLACE that finds its query live.
    """
    n = len(names[0]) - 1
    rows, names = sealed(rows), (sealed(names[0]), sealed(names[1]))
    request_ids = sealed(request_ids[0]), sealed(request_ids[1])
    known, found = recent.known, (live.parts, live.columns)
    out = _make_room(n, n)
    fresh: dict[bytes, int] = {}
    session = sessions.get(names[1][: int(names[0][1])].tobytes(), 0) if n else 0
    while True:
        counts = decide_batch(base, rows, names, session, request_ids, live.keys, found, known, out)
        if counts[0] == WANTS_ROOM:
            out = _make_room(n, 2 * n)
        elif counts[0] == WANTS_SESSIONS:
            numbers, fresh = _number_sessions(names, live, _read_kinds(rows), sessions, top)
            out[4][NUMBER, :n], session = numbers, NONE
        else:
            break
    status, lsn, _, hashes, numbers, _ = out
    if counts[0] == WANTS_SOURCES:
        # Sources are compared only if an insert names a live query.
        place = numbers[STORED_PLACE, :n]
        is_live = place != NONE
        numbers[STORED_SOURCE, :n] = np.cumsum(is_live) - 1
        sources = _list_sources(live.take(place[is_live]))
        counts = decide_found(base, rows, names, request_ids, sources, live.columns, out)
    if counts[0] == NO_FRAME:
        raise FrameError(f"{len(QueryRows.decode(rows.data))} rows and {n} names of sessions")
    count, kept, changing, refused, words, named_words, bad = counts
    if bad != NONE:
        raise ValueError(f"row {bad} has an unknown form or shape, or a negative session")
    room, named, last, last_asked = (
        np.empty(words, np.uint64),
        np.empty(named_words, np.uint64),
        0,
        0,
    )
    if count or kept:
        last, last_asked = write_batch(
            owner, live.columns, rows, request_ids, out, (count, kept), room, named
        )
    requests = CommittedRequests.view(named, last_asked) if kept else None
    durable: NamedUpdates | None = requests
    if requests is not None and changing < kept:
        durable = _take_changing(requests, lsn, numbers[ASKED, :kept], base)
    if fresh:
        used = set(numbers[OUT_SESSION, :count].tolist())
        fresh = {name: k for name, k in fresh.items() if k in used}
    encoded = room.view(np.uint8)[_ROWS_AT:] if count else rows[:0]
    encoded.setflags(False)  # type: ignore[call-arg] # not writable, see `sealed`
    prepared = PreparedRows(encoded, hashes[OUT, :count], numbers[OUT_PLACE, :count])
    return UpdateVerdict(
        status, lsn, refused, count, last, room, prepared, fresh, kept, requests, durable, out
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


def _read_kinds(rows: U8) -> U8:
    """Returns the kinds of encoded rows."""
    kinds: U8 = QueryRows.decode(rows.data).kind
    return kinds


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


_DELETE = np.uint8(UpdateKind.DELETE)  # members of an enumeration compare slowly with a column
_ROWS_AT = LedgerBatch.head_bytes()
