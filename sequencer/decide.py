"""The sequencer's decision about each row of the dispatchers' requests.

The decision is pure. What rows name is found in columns: their ids, sessions and earlier deletes;
then a kernel decides about one row after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64, U8, U64, sealed, take_ragged
from ps2stream.protocol.ports import DeleteRequests
from ps2stream.protocol.rows import QueryRows, UpdateKind, no_queries
from ps2stream.sequencer import kernels
from ps2stream.sequencer.columns import StringColumn, find_first_rows
from ps2stream.sequencer.kernels import NONE
from ps2stream.sequencer.packed_rows import PackedRows
from ps2stream.sequencer.registry import PreparedRows, QueryRegistry
from ps2stream.sequencer.remembered import RememberedDeletes

_NO_QUERIES = no_queries()


class UpdateVerdict(NamedTuple):
    """The decisions about n rows, with final LSNs. `rows` are those to commit, and `prepared`
    what the registry needs to apply them; `requests` the request ids of the deletes among them,
    None without any."""

    status: U8
    lsn: I64
    rows: QueryRows
    prepared: PreparedRows
    sessions: dict[bytes, int]
    requests: DeleteRequests | None


def decide(
    rows: QueryRows,
    names: StringColumn,
    request_ids: StringColumn,
    *,
    base: int,
    live: QueryRegistry,
    sessions: Mapping[bytes, int],
    top: int,
    recent: RememberedDeletes,
) -> UpdateVerdict:
    """Decides about the rows in their order, each as if those before it were committed. Nothing
    is changed.

    `names` are the session names of the rows; `base` is the last LSN; `sessions` has the session
    numbers in use, of which `top` is the highest; `recent` has the LSN of each remembered delete.

    An insert of a new id is OK. An insert of the same id, canonical query and session as before
    is OK with the first LSN and changes nothing, even if it is typed differently. Any other one is
    ALREADY_EXISTS. A delete is OK if the query is live and of the named session (any session, if
    the name is empty), or if it repeats a remembered (id, request_id); else it is NOT_FOUND.
    """
    n = len(rows)
    insert = rows.kind == UpdateKind.INSERT
    number, fresh = _number_sessions(names, live.hash(*names), insert, sessions, top)
    hashes = live.hash(rows.id_off, rows.id)
    code, _ = find_first_rows(rows.id_off, rows.id, hashes)
    found = live.find(rows.id_off, rows.id, hashes)
    repeated, request = recent.find(rows, request_ids)
    # Sources are compared only if an insert names a live query.
    compared = (insert & (found.at != NONE)).any()
    old = found.rows.take(np.arange(len(found.rows))) if compared else _NO_QUERIES

    status, lsn = np.empty(n, np.uint8), np.empty(n, np.int64)
    handle, source = np.zeros(n, np.int64), np.empty(n, np.int64)
    kernels.decide_rows(
        base,
        (insert.astype(np.int64), (np.diff(names[0]) > 0).astype(np.int64), number, code,
         repeated, request),
        (found.at, found.handle, found.rows.read_sessions()),
        _list_sources(old),
        _list_sources(rows),
        (status, lsn, handle, source),
    )  # fmt: skip

    accepted = np.flatnonzero(source != NONE)
    kept = insert[accepted]
    rows = rows.replace(session=number)
    packed = PackedRows.pack(rows, np.arange(n))
    m = len(found.rows)
    if kept.all():
        out = rows if len(accepted) == n else rows.take(accepted)
        gone = accepted[:0]
    else:
        out = PackedRows.join(found.rows, packed).take(source[accepted], kept)
        gone = source[accepted[~kept]]
        gone = np.where(gone < m, np.append(found.place, NONE)[np.minimum(gone, m)], NONE)
    out = out.replace(kind=rows.kind[accepted], lsn=lsn[accepted], handle=handle[accepted])
    used = set(out.session.tolist()) if fresh else set()
    return UpdateVerdict(
        status,
        lsn,
        out,
        PreparedRows(hashes[accepted], packed.select(accepted[kept]), gone),
        {name: k for name, k in fresh.items() if k in used},
        _collect_requests(accepted[~kept & (request[accepted] != NONE)], lsn, rows, request_ids),
    )


def _number_sessions(
    names: StringColumn, hashes: U64, insert: np.ndarray, sessions: Mapping[bytes, int], top: int
) -> tuple[I64, dict[bytes, int]]:
    """Returns (the session number of each row, 0 for one that does not exist; the new sessions).
    Names that an insert uses for the first time get the next numbers."""
    off, data = names
    code, count = find_first_rows(off, data, hashes)
    if count == 1 and (known := sessions.get(data[off[0] : off[1]].tobytes())):
        return np.full(len(hashes), known, np.int64), {}
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


def _collect_requests(
    at: I64, lsn: I64, rows: QueryRows, request_ids: StringColumn
) -> DeleteRequests | None:
    """Returns what to remember of the deletes `at`, which have a request id; None without any."""
    if not len(at):
        return None
    ids = take_ragged(rows.id_off, rows.id, at)
    return DeleteRequests(lsn[at], *ids, *take_ragged(*request_ids, at))
