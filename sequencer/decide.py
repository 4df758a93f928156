"""The sequencer's decision about each row of the dispatchers' requests.

The decision is pure. What rows name is found in columns: their ids, sessions and earlier deletes;
then a kernel decides about one row after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import I64, U8, U64, sealed
from ps2stream.protocol.ports import NamedUpdates
from ps2stream.protocol.rows import QueryRows, UpdateKind, no_queries
from ps2stream.sequencer import decide_kernels
from ps2stream.sequencer.columns import StringColumn, find_first_rows, take_strings
from ps2stream.sequencer.kernels import has_one_string
from ps2stream.sequencer.packed_rows import encode_rows, list_columns
from ps2stream.sequencer.registry import PreparedRows, QueryRegistry
from ps2stream.sequencer.remembered import RememberedUpdates
from ps2stream.sequencer.table_kernels import NONE


class UpdateVerdict(NamedTuple):
    """The decisions about n rows, with final LSNs. `encoded` are the rows to commit, and `prepared`
    the same with what the registry needs to apply them; `session` and `kind` of each of them;
    `requests` the request ids to remember, None without any, and `durable` those of the rows
    that changed something; `keys` the hashes of `requests`, as recent.find returns them."""

    status: U8
    lsn: I64
    encoded: U8
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
    n, kind = len(rows), sealed(rows.kind)
    number, fresh = _number_sessions(names, live, kind, sessions, top)
    hashes = live.hash(rows.id_off, rows.id)
    found = live.find(rows.id_off, rows.id, hashes)
    repeated, request, keys = recent.find(rows, hashes, request_ids)

    room = 2 * n  # a replacement is two rows
    status, kinds = np.empty(n, np.uint8), np.empty(room, np.uint8)
    out_hashes = np.empty(room, np.uint64)
    lsn, (*heads, place, source, asked) = np.empty(n, np.int64), np.empty((6, room), np.int64)
    columns = list_columns(rows, number)
    update: tuple[Any, ...]
    update = (kind, *columns[4:6], hashes, sealed(names[0]), number, repeated, request)
    sources = columns[14], columns[15], columns[12]
    verdict: tuple[Any, ...] = (status, lsn, kinds, out_hashes, *heads, place, source, asked)
    stored = (*found, found.place), _NO_SOURCES
    count, kept = decide_kernels.decide_rows(base, update, *stored, sources, verdict)
    if count == NONE:
        # Sources are compared only if an insert names a live query.
        is_live = found.place != NONE
        stored = (*found, np.cumsum(is_live) - 1), _list_sources(live.take(found.place[is_live]))
        count, kept = decide_kernels.decide_rows(base, update, *stored, sources, verdict)
    place, source, session = place[:count], source[:count], heads[2][:count]
    head = kinds[:count], heads[0][:count], heads[1][:count], session
    encoded = encode_rows(live.columns, place, columns, source, head)
    used = set(session.tolist()) if fresh else set()
    requests = durable = _collect_requests(asked[:kept], lsn, rows, request_ids)
    if kept and len(changing := _list_changing(asked[:kept], lsn, base)) < kept:
        durable = _collect_requests(changing, lsn, rows, request_ids)
    return UpdateVerdict(
        status,
        lsn,
        encoded,
        PreparedRows(encoded, *head[:3], columns, source, out_hashes[:count], place),
        session,
        {name: k for name, k in fresh.items() if k in used},
        requests,
        durable,
        keys[asked[:kept]],
    )


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
    n, size = len(off) - 1, int(off[1] - off[0]) if len(off) > 1 else 0
    first_name = data[:size].tobytes()
    # Most often there is one session, which is known, and deletes name none.
    known = sessions.get(first_name, 0)
    is_plain = known or not np.count_nonzero(kind != _DELETE)
    if n and is_plain and has_one_string(sealed(off), sealed(data)):
        return np.full(n, known, np.int64), {}
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


def _list_changing(at: I64, lsn: I64, base: int) -> I64:
    """Returns those of the rows `at` that changed something: their LSNs are above all before."""
    if lsn[-1] == base + len(lsn):  # each row has
        return at
    highest = np.maximum.accumulate(np.concatenate([np.array([base]), lsn[:-1]]))
    return at[lsn[at] > highest[at]]


def _collect_requests(
    at: I64, lsn: I64, rows: QueryRows, request_ids: StringColumn
) -> NamedUpdates | None:
    """Returns what to remember of the rows `at`, which have a request id; None without any."""
    if not len(at):
        return None
    ids = take_strings((rows.id_off, rows.id), at)
    return NamedUpdates(lsn[at], *ids, *take_strings(request_ids, at))


_DELETE = np.uint8(UpdateKind.DELETE)  # a member of an enumeration compares slowly with a column
_NO_SOURCES = _list_sources(no_queries())
