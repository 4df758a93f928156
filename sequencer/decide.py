"""The sequencer's decision about each row of the dispatchers' requests.

The decision is pure, and columnar except for dictionary look-ups: rows of different ids are
decided together, rows of one id one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import compress, repeat
from operator import eq, itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.language.query_rows import canonical_sources
from ps2stream.protocol.frame import I64, U8
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.sequencer.registry import QueryRegistry, split

Key = tuple[bytes, bytes]  # (query id, request id)


class UpdateVerdict(NamedTuple):
    """The decisions about n rows, with final LSNs. `rows` are those to commit."""

    status: U8
    lsn: I64
    rows: QueryRows
    sessions: dict[bytes, int]
    requests: dict[Key, int]


def decide(
    rows: QueryRows,
    names: list[bytes],
    request_ids: list[bytes],
    *,
    base: int,
    live: QueryRegistry,
    sessions: Mapping[bytes, int],
    top: int,
    recent: Mapping[Key, int],
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
    ids = split(rows.id_off, rows.id)
    insert = rows.kind == UpdateKind.INSERT
    fresh: dict[bytes, int] = {}
    number = _number_sessions(names, insert, sessions, top, fresh)
    named = np.fromiter(map(len, names), np.int64, n) > 0
    code, rounds = _split_rounds(ids)
    # `state`: the live handle of each id, by the first row that names it. A handle above
    # `base` is provisional: base + 1 + its row, until all rows are decided.
    known = live.handles(ids)
    state = known.copy()
    stored = np.flatnonzero(known)
    old = live.rows(known[stored])
    pool = QueryRows.concat([old, rows.replace(session=number)])
    where = np.zeros(n, np.int64)
    where[stored] = np.arange(len(stored))

    status = np.zeros(n, np.uint8)
    lsn = np.zeros(n, np.int64)
    source = np.full(n, -1, np.int64)  # row of `pool` to commit; -1: nothing
    handle = np.zeros(n, np.int64)
    done: dict[Key, int] = {}
    for at in rounds:
        mine, now = code[at], state[code[at]]
        own = base + 1 + at
        before = np.where(now > base, len(old) + now - base - 1, where[mine])
        adds, is_live = insert[at], now != 0
        lsn[at] = own

        again = np.flatnonzero(adds & is_live)
        if len(again):
            same = _compare_queries(pool, before[again], len(old) + at[again])
            status[at[again]] = np.where(same, UpdateStatus.OK, UpdateStatus.ALREADY_EXISTS)
            lsn[at[again]] = np.where(same, now[again], 0)

        drops = ~adds
        if drops.any():
            repeated = _find_repeated_deletes(at, drops, ids, request_ids, recent, done)
            lsn[at] = np.where(repeated, repeated, lsn[at])
            drops &= repeated == 0
            foreign = named[at]
            foreign[is_live] &= pool.session[before[is_live]] != number[at[is_live]]
            lost = at[drops & (foreign | ~is_live)]
            status[lost], lsn[lost] = UpdateStatus.NOT_FOUND, 0
            drops &= is_live & ~foreign
            done.update(_collect_requests(at[drops], own[drops], ids, request_ids))

        takes = adds & ~is_live
        source[at[takes]] = len(old) + at[takes]
        source[at[drops]] = before[drops]
        handle[at[takes]] = own[takes]
        handle[at[drops]] = now[drops]
        state[mine[takes]] = own[takes]
        state[mine[drops]] = 0

    accepted = np.flatnonzero(source >= 0)
    final = base + np.cumsum(source >= 0)

    def finalize(value: I64) -> I64:
        return np.where(value > base, final[np.maximum(value - base - 1, 0)], value)

    out = pool.take(source[accepted])
    out = _clear_sources(out, insert[accepted]).replace(
        kind=rows.kind[accepted], lsn=final[accepted], handle=finalize(handle[accepted])
    )
    used = set(out.session.tolist())
    return UpdateVerdict(
        status,
        finalize(lsn),
        out,
        {name: k for name, k in fresh.items() if k in used},
        {
            key: int(final[value - base - 1])
            for key, value in sorted(done.items(), key=itemgetter(1))
        },
    )


def _number_sessions(
    names: list[bytes],
    insert: NDArray[np.bool_],
    sessions: Mapping[bytes, int],
    top: int,
    fresh: dict[bytes, int],
) -> I64:
    """Returns the session number of each row, 0 for one that does not exist. Names that an insert
    uses for the first time get the next numbers, in `fresh`."""
    for name in dict.fromkeys(compress(names, insert.tolist())):
        if name not in sessions:
            fresh[name] = top + len(fresh) + 1
    both = sessions if not fresh else {**sessions, **fresh}
    return np.fromiter(map(both.get, names, repeat(0)), np.int64, len(names))


def _find_repeated_deletes(
    at: I64,
    drops: NDArray[np.bool_],
    ids: list[bytes],
    request_ids: list[bytes],
    recent: Mapping[Key, int],
    done: dict[Key, int],
) -> I64:
    """Returns for each row of `at` the LSN of the delete that it repeats, else 0."""
    if not recent and not done:
        return np.zeros(len(at), np.int64)
    rows = at.tolist()
    keys = list(zip(map(ids.__getitem__, rows), map(request_ids.__getitem__, rows), strict=True))
    first = map(recent.get, keys, map(done.get, keys, repeat(0)))
    return np.where(drops, np.fromiter(first, np.int64, len(keys)), 0)


def _split_rounds(ids: list[bytes]) -> tuple[I64, Iterator[I64]]:
    """Returns (for each row the first row with the same id, the groups of rows to decide
    together). The k-th group has the k-th row of each id; there is nearly always one group."""
    n = len(ids)
    first: dict[bytes, int] = {}
    code = np.fromiter(map(first.setdefault, ids, range(n)), np.int64, n)
    if len(first) == n:
        return code, iter([np.arange(n)])
    order = np.argsort(code, kind="stable")
    group = code[order]
    start = np.searchsorted(group, group)
    turn = np.empty(n, np.int64)
    turn[order] = np.arange(n) - start
    return code, (np.flatnonzero(turn == k) for k in range(int(turn.max()) + 1))


def _compare_queries(pool: QueryRows, a: I64, b: I64) -> NDArray[np.bool_]:
    """Returns bool[n]: whether rows a and b of the pool are one query of one session."""
    left, right = canonical_sources(pool, a), canonical_sources(pool, b)
    same = np.fromiter(map(eq, left, right), np.bool_, len(a))
    same &= pool.session[a] == pool.session[b]
    return same


def _clear_sources(rows: QueryRows, keep: NDArray[np.bool_]) -> QueryRows:
    """Returns the rows, with an empty source where it is not to be kept."""
    if keep.all():
        return rows
    size = np.diff(rows.source_off)
    off = np.zeros_like(rows.source_off)
    np.cumsum(np.where(keep, size, 0), out=off[1:])
    return rows.replace(source_off=off, source=rows.source[np.repeat(keep, size)])


def _collect_requests(
    at: I64, lsn: I64, ids: list[bytes], request_ids: list[bytes]
) -> dict[Key, int]:
    """Returns what to remember of these deletes: the LSNs of those that have a request id."""
    rows = at.tolist()
    carried = map(request_ids.__getitem__, rows)
    keys = zip(map(ids.__getitem__, rows), carried, strict=True)
    found = dict(zip(keys, lsn.tolist(), strict=True))
    return {key: value for key, value in found.items() if key[1]}
