"""The kernel that decides about the rows of the dispatchers' requests, one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8, U64
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.protocol.pointers import borrow, is_same
from ps2stream.protocol.rows import UpdateKind
from ps2stream.sequencer.chunk_kernels import find_queries, measure_rows, write_rows
from ps2stream.sequencer.encoded_rows import (
    BATCH_HEAD,
    BATCH_ROWS,
    FIELDS,
    HANDLE,
    ID,
    ID_OFF,
    KIND,
    REQUESTS_HEAD,
    REQUESTS_WIDTHS,
    ROWS_HEAD,
    ROWS_WIDTHS,
    count_words,
    find_rows,
    lay_out,
    read_bytes,
    read_columns,
    read_numbers,
    size_rows,
)
from ps2stream.sequencer.kernels import (
    find_first,
    find_repeats,
    has_one_string,
    hash_keys,
    make_slots,
    mix_pair,
    write_requests,
)
from ps2stream.sequencer.table_kernels import NONE

# Rows of the numbers that decide_batch finds; from OUT_LSN on those of the rows to commit.
STORED_PLACE, STORED_HANDLE, STORED_SESSION, STORED_SOURCE, NUMBER, REPEATED = range(6)
REQUEST, ASKED, OUT_LSN, OUT_HANDLE, OUT_SESSION, OUT_PLACE, OUT_SOURCE = range(6, 13)
NUMBERS = 13
# And of the hashes: of the ids, of the pairs of ids and request ids, of the ids to commit, and of
# the pairs to remember.
IDS, PAIRS, OUT, ASKED_PAIRS = range(4)
HASHES = 4
# What decide_batch returns instead of the number of rows to commit.
WANTS_SOURCES, WANTS_SESSIONS, WANTS_ROOM, NO_FRAME = range(NONE, NONE - 4, -1)

_INSERT = np.uint8(UpdateKind.INSERT)
_DELETE = np.uint8(UpdateKind.DELETE)
_REPLACE = np.uint8(UpdateKind.REPLACE)
_OK = np.uint8(UpdateStatus.OK)
_EXISTS = np.uint8(UpdateStatus.ALREADY_EXISTS)
_MISSING = np.uint8(UpdateStatus.NOT_FOUND)
_CHANGED = np.uint8(UpdateStatus.FAILED_PRECONDITION)


class UpdateColumns(NamedTuple):
    """The rows to decide, n each. kind uint8; id_off int64[n + 1], id, hashes uint64[n]: the ids;
    name_off int64[n + 1]: of the session names; the rest int64: session: number; repeated: the LSN
    of the earlier update that a row repeats, else 0; request: the first row with the same id and
    request id, NONE for a plain insert or without one; wanted: the handle that a REPLACE needs."""

    kind: U8
    id_off: I64
    id: U8
    hashes: U64
    name_off: I64
    session: I64
    repeated: I64
    request: I64
    wanted: I64


class StoredColumns(NamedTuple):
    """The live queries that have the ids of the rows, int64[n] each. place: NONE for none; handle;
    session; source: which of the sources it has; none are given where no source is wanted."""

    place: I64
    handle: I64
    session: I64
    source: I64


class QuerySources(NamedTuple):
    """Sources to compare: ragged, with the offsets of the regions that they begin with."""

    off: I64
    data: U8
    geom_off: I64


class VerdictColumns(NamedTuple):
    """The decisions, writable: status uint8[n], lsn int64[n]. And the rows to commit, at most one
    for each row and another for each replacement: kind uint8; hashes uint64: of the id; LSN, handle
    and session; the place of the query that is deleted, NONE for an insert and for the delete of an
    insert of these rows; source: the row that has its columns if there is no place. requests
    int64[n]: the rows whose request is to be remembered. int64 but for those two."""

    status: U8
    lsn: I64
    kind: U8
    hashes: U64
    out_lsn: I64
    handle: I64
    session: I64
    place: I64
    source: I64
    requests: I64


@njit(inline="always")
def _find_canonical_end(sources: tuple[I64, U8, I64], row: int) -> int:
    """Returns where the canonical part of a source ends: at the first NUL of its text."""
    off, data, geom_off = QuerySources(*sources)
    at = min(off[row] + 1 + 8 * (geom_off[row + 1] - geom_off[row]), off[row + 1])
    while at < off[row + 1] and data[at]:
        at += 1
    return int(at)


@njit(inline="always")
def _have_same_source(a: tuple[I64, U8, I64], row: int, b: tuple[I64, U8, I64], other: int) -> bool:
    """Returns whether two sources are the same apart from what was typed."""
    size = _find_canonical_end(a, row) - a[0][row]
    if _find_canonical_end(b, other) - b[0][other] != size:
        return False
    return is_same(a[1], a[0][row], b[1], b[0][other], size)


@njit(cache=True, nogil=True)
def decide_rows(
    base: int,
    update: tuple[Any, ...],
    stored: tuple[Any, ...],
    stored_sources: tuple[I64, U8, I64],
    sources: tuple[I64, U8, I64],
    verdict: tuple[Any, ...],
) -> tuple[int, int]:
    """Decides about the rows one after the other (decide.py); returns how many are to be committed
    and how many requests are to be remembered. LSNs count on from `base`, one for each row that
    changes something. (NONE, 0) means that the sources of the stored queries are wanted: an insert
    names one of them.

    update, stored, verdict: plain tuples of the fields of UpdateColumns, StoredColumns and
    VerdictColumns; the two sources: of QuerySources.
    """
    kind, id_off, id, hashes, name_off, session, repeated, request, wanted = update
    stored_place, stored_handle, stored_session, stored_source = stored
    status, lsn, out_kind, out_hashes, out_lsn, handle, owner, place, source, requests = verdict
    n, has_sources = len(kind), len(stored_sources[0]) > 1
    slots = make_slots(n)
    # By the first row of an id, what is live: that row for a stored query, n + i for an insert of
    # these rows, the i-th of those to commit.
    now = np.empty(n, np.int64)
    done = np.zeros(n, np.int64)  # by the first row of a request: its LSN
    last, count, kept = base, 0, 0
    for i in range(n):
        c = find_first(slots, hashes, id_off, id, i)
        if c == i:
            now[i] = NONE if stored_place[i] == NONE else i
        live, r, earlier = now[c], request[i], repeated[i]
        status[i] = _OK
        if not earlier and r != NONE:
            earlier = done[r]
        if earlier:
            lsn[i] = earlier
            continue
        mine, first = live == NONE, 0
        if not mine:
            mine = (stored_session[live] if live < n else owner[live - n]) == session[i]
        if kind[i] == _DELETE:
            if live == NONE or (not mine and name_off[i + 1] > name_off[i]):
                status[i], lsn[i] = _MISSING, 0
                continue
        elif live != NONE:
            if live < n and not has_sources:
                return NONE, 0
            if live < n:
                same = mine and _have_same_source(stored_sources, stored_source[live], sources, i)
                first = stored_handle[live]
            else:
                same = mine and _have_same_source(sources, source[live - n], sources, i)
                first = handle[live - n]
            if same or not mine or kind[i] == _INSERT:
                status[i] = _OK if same else _EXISTS
                lsn[i] = first if same else 0
                if same and r != NONE:
                    done[r] = first
                    requests[kept] = i
                    kept += 1
                continue
        if kind[i] == _REPLACE and wanted[i] and wanted[i] != first:
            status[i], lsn[i] = _CHANGED, 0
            continue
        # All that this row changes has one LSN: a replacement is a delete and an insert.
        last += 1
        lsn[i] = last
        if live != NONE:
            out_kind[count], out_hashes[count], out_lsn[count] = _DELETE, hashes[i], last
            if live < n:
                handle[count], owner[count] = stored_handle[live], stored_session[live]
                place[count], source[count] = stored_place[live], NONE
            else:
                handle[count], owner[count] = handle[live - n], owner[live - n]
                place[count], source[count] = NONE, source[live - n]
            now[c] = NONE
            count += 1
        if kind[i] != _DELETE:
            out_kind[count], out_hashes[count], out_lsn[count] = _INSERT, hashes[i], last
            handle[count], owner[count] = last, session[i]
            place[count], source[count] = NONE, i
            now[c] = n + count
            count += 1
        if r != NONE:
            done[r] = last
            requests[kept] = i
            kept += 1
    return count, kept


@njit(cache=True, nogil=True)
def decide_found(
    base: int,
    rows: U8,
    names: tuple[I64, U8],
    requests: tuple[I64, U8],
    stored_sources: tuple[I64, U8, I64],
    table: I64,
    out: tuple[U8, I64, U8, U64, I64, I64],
) -> tuple[int, int, int, int, int, int, int]:
    """Decides (decide_rows) about rows of which decide_batch has found what they name, and measures
    those to commit (measure_rows); the rest as decide_batch. stored_sources: of QuerySources, by
    the numbers STORED_SOURCE, or no source."""
    starts = np.empty((2, FIELDS), np.int64)
    if not find_rows(rows, starts):
        return NO_FRAME, 0, 0, 0, 0, 0, NONE
    status, lsn, kinds, hashes, numbers, sizes = out
    kind, columns = read_bytes(rows, starts, KIND), read_columns(rows, starts)
    name_off, request_off = names[0], requests[0]
    update = (
        kind, columns[4], columns[5], hashes[IDS], name_off, numbers[NUMBER], numbers[REPEATED],
        numbers[REQUEST], read_numbers(rows, starts, HANDLE),
    )  # fmt: skip
    stored = (
        numbers[STORED_PLACE], numbers[STORED_HANDLE], numbers[STORED_SESSION],
        numbers[STORED_SOURCE],
    )  # fmt: skip
    verdict = (
        status, lsn, kinds, hashes[OUT], numbers[OUT_LSN], numbers[OUT_HANDLE],
        numbers[OUT_SESSION], numbers[OUT_PLACE], numbers[OUT_SOURCE], numbers[ASKED],
    )  # fmt: skip
    sources = columns[14], columns[15], columns[12]
    count, kept = decide_rows(base, update, stored, stored_sources, sources, verdict)
    if count == NONE:
        return WANTS_SOURCES, 0, 0, 0, 0, 0, NONE
    places = numbers[OUT_PLACE, :count]
    bad = measure_rows(table, places, columns, numbers[OUT_SOURCE], kinds, sizes)
    for i in range(count):
        if places[i] == NONE and numbers[OUT_SESSION, i] < 0 and bad == NONE:
            bad = numbers[OUT_SOURCE, i]
    asked, highest, k, changing, refused = numbers[ASKED], base, 0, 0, 0
    elements = np.zeros(len(REQUESTS_WIDTHS), np.int64)
    for i in range(len(kind)):
        if k < kept and asked[k] == i:
            k += 1
            changing += lsn[i] > highest  # those of what changes nothing are of earlier rows
            elements[2] += columns[4][i + 1] - columns[4][i]
            elements[4] += request_off[i + 1] - request_off[i]
        highest = max(highest, lsn[i])
        refused += status[i] != _OK
    elements[0], elements[1], elements[3] = kept, kept + 1, kept + 1
    named = count_words(REQUESTS_HEAD, REQUESTS_WIDTHS, elements)
    room = len(BATCH_HEAD) + size_rows(count, sizes, np.empty(FIELDS, np.int64))
    return count, kept, changing, refused, room, named, bad


@njit(cache=True, nogil=True)
def decide_batch(
    base: int,
    rows: U8,
    names: tuple[I64, U8],
    session: int,
    requests: tuple[I64, U8],
    keys: U64,
    live: tuple[I64, I64],
    known: tuple[Any, ...],
    out: tuple[U8, I64, U8, U64, I64, I64],
) -> tuple[int, int, int, int, int, int, int]:
    """Finds what n rows name and decides about them: all of a batch in one call, since each call
    costs as much as many rows. Returns (the number of rows to commit; that of requests to remember,
    and of those of them that change something; that of the rows that are not OK; the words of a
    LedgerBatch of the rows and of the requests as encoded NamedUpdates; the first row that cannot
    be packed, or NONE).

    rows: as encoded QueryRows; names: of the sessions; session: the number of the one that all rows
    name, 0 if it does not exist; NONE if numbers[NUMBER] has that of each; requests: the request
    ids; keys: of the hashes; live: the table of the ids' hashes and that of the chunks; known: as
    find_repeats has it. out, writable: status, lsn, n each; kinds uint8[m], hashes uint64[HASHES,
    m], numbers int64[NUMBERS, m] and sizes int64[COLUMNS, m + 1], where m is more than n by the
    replacements: each may be two rows to commit.

    Instead of a number, WANTS_SESSIONS: the rows name several, or make one; WANTS_SOURCES: as in
    decide_rows, for decide_found; WANTS_ROOM: m is too small; NO_FRAME: the rows are damaged.
    """
    rows, names, requests = borrow(rows), borrow(names), borrow(requests)
    keys, live, known, out = borrow(keys), borrow(live), borrow(known), borrow(out)
    n, starts = len(names[0]) - 1, np.empty((2, FIELDS), np.int64)
    if not find_rows(rows, starts) or starts[1, KIND] - starts[0, KIND] != n:
        return NO_FRAME, 0, 0, 0, 0, 0, NONE
    kind = read_bytes(rows, starts, KIND)
    id_off, id = read_numbers(rows, starts, ID_OFF), read_bytes(rows, starts, ID)
    hashes, numbers = out[3], out[4]
    deletes, most = 0, n
    for i in range(n):
        deletes += kind[i] == _DELETE
        most += kind[i] == _REPLACE
    if most > len(out[2]):
        return WANTS_ROOM, 0, 0, 0, 0, 0, NONE
    if session != NONE:
        if (session == 0 and deletes < n) or (n and not has_one_string(names[0], names[1])):
            return WANTS_SESSIONS, 0, 0, 0, 0, 0, NONE
        numbers[NUMBER, :n] = session
    ids, pairs = hashes[IDS, :n], hashes[PAIRS, :n]
    hash_keys(id_off, id, keys, ids)
    place, handle, owner = numbers[STORED_PLACE], numbers[STORED_HANDLE], numbers[STORED_SESSION]
    find_queries(live[0], live[1], ids, id_off, id, place, handle, owner)
    if len(requests[1]):
        hash_keys(requests[0], requests[1], keys, pairs)
        for i in range(n):
            pairs[i] = mix_pair(ids[i], pairs[i])
        find_repeats(
            kind, (id_off, id), requests, pairs, known, numbers[REQUEST], numbers[REPEATED]
        )
    else:
        numbers[REQUEST, :n], numbers[REPEATED, :n] = NONE, 0
    # Fewer offsets than a row has: there are no sources.
    none = requests[0][:1], requests[1][:0], requests[0][:1]
    return decide_found(base, rows, names, requests, none, live[1], out)


@njit(cache=True, nogil=True)
def write_batch(
    owner: int,
    table: I64,
    rows: U8,
    requests: tuple[I64, U8],
    out: tuple[U8, I64, U8, U64, I64, I64],
    counts: tuple[int, int],
    room: U64,
    named: U64,
) -> tuple[int, int]:
    """Writes the rows to commit, if any, as an encoded LedgerBatch, and the requests to remember as
    encoded NamedUpdates, with the hashes of their pairs. counts: of both; room, named: as many
    words as decide_batch says; owner: that of the batch; the rest as decide_batch. Returns the last
    LSN of both, 0 without any."""
    table, rows, requests, out = borrow(table), borrow(rows), borrow(requests), borrow(out)
    room, named = borrow(room), borrow(named)
    starts = np.empty((2, FIELDS), np.int64)
    find_rows(rows, starts)
    columns = read_columns(rows, starts)
    _, lsn, kinds, hashes, numbers, sizes = out
    count, kept = counts
    if count:
        words, elements = len(BATCH_HEAD), np.empty(FIELDS, np.int64)
        for i in range(words):
            room[i] = BATCH_HEAD[i]
        room[3], room[5] = np.uint64(numbers[OUT_LSN, 0]), np.uint64(numbers[OUT_LSN, count - 1])
        room[7] = np.uint64(owner)
        size = 8 * size_rows(count, sizes, elements)
        room[3 + 2 * BATCH_ROWS] = np.uint64(size)
        to = np.empty(FIELDS, np.int64)
        lay_out(room, words, ROWS_HEAD, ROWS_WIDTHS, elements, to)
        heads = (
            kinds[:count], numbers[OUT_LSN, :count], numbers[OUT_HANDLE, :count],
            numbers[OUT_SESSION, :count],
        )  # fmt: skip
        places, source = numbers[OUT_PLACE, :count], numbers[OUT_SOURCE, :count]
        write_rows(table, places, columns, source, heads, sizes, (room, room.view(np.uint8)), to)
    if kept:
        asked, ids, request_off = numbers[ASKED, :kept], columns[4], requests[0]
        few = np.zeros(len(REQUESTS_WIDTHS), np.int64)
        few[0], few[1], few[3] = kept, kept + 1, kept + 1
        for i in range(kept):
            hashes[ASKED_PAIRS, i] = hashes[PAIRS, asked[i]]
            few[2] += ids[asked[i] + 1] - ids[asked[i]]
            few[4] += request_off[asked[i] + 1] - request_off[asked[i]]
        begin = np.empty(len(few), np.int64)
        lay_out(named, 0, REQUESTS_HEAD, REQUESTS_WIDTHS, few, begin)
        write_requests(asked, lsn, (columns[4], columns[5]), requests, named, begin)
    last = numbers[OUT_LSN, count - 1] if count else 0
    return last, lsn[numbers[ASKED, kept - 1]] if kept else 0
