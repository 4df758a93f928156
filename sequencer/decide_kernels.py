"""The kernel that decides about the rows of the dispatchers' requests, one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8, U64
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.protocol.rows import UpdateKind
from ps2stream.sequencer.kernels import NONE, find_first, is_same, make_slots

_INSERT = np.uint8(UpdateKind.INSERT)
_DELETE = np.uint8(UpdateKind.DELETE)
_OK = np.uint8(UpdateStatus.OK)
_EXISTS = np.uint8(UpdateStatus.ALREADY_EXISTS)
_MISSING = np.uint8(UpdateStatus.NOT_FOUND)


class UpdateColumns(NamedTuple):
    """The rows to decide, n each. kind uint8; id_off int64[n + 1], id, hashes uint64[n]: the ids;
    name_off int64[n + 1]: of the session names; the rest int64: session: number; repeated: the LSN
    of the earlier delete that a delete repeats, else 0; request: the first row with the same id
    and request id, NONE without a request id."""

    kind: U8
    id_off: I64
    id: U8
    hashes: U64
    name_off: I64
    session: I64
    repeated: I64
    request: I64


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
    """The decisions, writable: status uint8[n], lsn int64[n]. And the rows to commit, at most n:
    kind uint8; hashes uint64: of the id; LSN, handle and session; the place of the query that is
    deleted, NONE for an insert and for the delete of an insert of these rows; source: the row that
    has its columns if there is no place. requests: the deletes with a request id among them, by
    the rows that decided. int64 but for those two."""

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
    and how many requests of deletes are to be remembered. LSNs count on from `base`, those of rows
    that are not committed left out. (NONE, 0) means that the sources of the stored queries are
    wanted: an insert names one of them.

    update, stored, verdict: plain tuples of the fields of UpdateColumns, StoredColumns and
    VerdictColumns; the two sources: of QuerySources.
    """
    kind, id_off, id, hashes, name_off, session, repeated, request = update
    stored_place, stored_handle, stored_session, stored_source = stored
    status, lsn, out_kind, out_hashes, out_lsn, handle, owner, place, source, requests = verdict
    n, has_sources = len(kind), len(stored_sources[0]) > 1
    slots = make_slots(n)
    # By the first row of an id, what is live: that row for a stored query, n + i for an insert of
    # these rows, the i-th of those to commit.
    now = np.empty(n, np.int64)
    done = np.zeros(n, np.int64)  # by the first row of a request: the LSN of its delete
    count = kept = 0
    for i in range(n):
        c = find_first(slots, hashes, id_off, id, i)
        if c == i:
            now[i] = NONE if stored_place[i] == NONE else i
        live = now[c]
        status[i] = _OK
        if kind[i] == _INSERT:
            if live == NONE:
                source[count] = i
                out_kind[count], out_hashes[count] = _INSERT, hashes[i]
                lsn[i] = out_lsn[count] = handle[count] = base + count + 1
                owner[count] = session[i]
                place[count] = NONE
                now[c] = n + count
                count += 1
                continue
            if live < n and not has_sources:
                return NONE, 0
            if live < n:
                same = stored_session[live] == session[i]
                same = same and _have_same_source(stored_sources, stored_source[live], sources, i)
                first = stored_handle[live]
            else:
                same = owner[live - n] == session[i]
                same = same and _have_same_source(sources, source[live - n], sources, i)
                first = handle[live - n]
            status[i] = _OK if same else _EXISTS
            lsn[i] = first if same else 0
            continue
        r = request[i]
        earlier = repeated[i]
        if not earlier and r != NONE:
            earlier = done[r]
        if earlier:
            lsn[i] = earlier
            continue
        lost = live == NONE
        if not lost and name_off[i + 1] > name_off[i]:
            lost = (stored_session[live] if live < n else owner[live - n]) != session[i]
        if lost:
            status[i] = _MISSING
            lsn[i] = 0
            continue
        out_kind[count], out_hashes[count] = _DELETE, hashes[i]
        lsn[i] = out_lsn[count] = base + count + 1
        if live < n:
            handle[count], owner[count] = stored_handle[live], stored_session[live]
            place[count], source[count] = stored_place[live], NONE
        else:
            handle[count], owner[count] = handle[live - n], owner[live - n]
            place[count], source[count] = NONE, source[live - n]
        if r != NONE:
            done[r] = lsn[i]
            requests[kept] = i
            kept += 1
        now[c] = NONE
        count += 1
    return count, kept
