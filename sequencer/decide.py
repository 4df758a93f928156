"""What becomes of each row of the dispatchers' requests: the sequencer's judgement.

Pure, and columnar but for dictionary look-ups: rows of different ids are judged together,
rows of one id one after the other.
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
from ps2stream.protocol.messages.updates import Status
from ps2stream.protocol.rows import Kind, QueryRows
from ps2stream.sequencer.registry import Registry, split

Key = tuple[bytes, bytes]  # (query id, request id)


class Verdict(NamedTuple):
    """Decisions about n rows, LSNs final. `rows` are those to commit."""

    status: U8
    lsn: I64
    rows: QueryRows
    sessions: dict[bytes, int]
    requests: dict[Key, int]


def decide(
    rows: QueryRows,
    names: list[bytes],
    asked: list[bytes],
    *,
    base: int,
    live: Registry,
    sessions: Mapping[bytes, int],
    top: int,
    recent: Mapping[Key, int],
) -> Verdict:
    """Judge the rows in their order, earlier ones counting for later ones; nothing changes.

    names the session name of each row, asked its request id; base the last LSN; sessions the
    numbers in use, the highest being `top`; recent the LSN of each remembered delete.

    Insert: a new id is OK; the same id, canonical query and session again is OK with the first
    LSN, and changes nothing, though it be typed otherwise; else ALREADY_EXISTS. Delete: OK when
    live and of the named session (any, with an empty name) or when it repeats a remembered
    (id, request_id); else NOT_FOUND.
    """
    n = len(rows)
    ids = split(rows.id_off, rows.id)
    insert = rows.kind == Kind.INSERT
    fresh: dict[bytes, int] = {}
    number = _numbers(names, insert, sessions, top, fresh)
    named = np.fromiter(map(len, names), np.int64, n) > 0
    code, rounds = _rounds(ids)
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
            same = _same(pool, before[again], len(old) + at[again])
            status[at[again]] = np.where(same, Status.OK, Status.ALREADY_EXISTS)
            lsn[at[again]] = np.where(same, now[again], 0)

        drops = ~adds
        if drops.any():
            repeated = _repeated(at, drops, ids, asked, recent, done)
            lsn[at] = np.where(repeated, repeated, lsn[at])
            drops &= repeated == 0
            foreign = named[at]
            foreign[is_live] &= pool.session[before[is_live]] != number[at[is_live]]
            lost = at[drops & (foreign | ~is_live)]
            status[lost], lsn[lost] = Status.NOT_FOUND, 0
            drops &= is_live & ~foreign
            done.update(_requests(at[drops], own[drops], ids, asked))

        takes = adds & ~is_live
        source[at[takes]] = len(old) + at[takes]
        source[at[drops]] = before[drops]
        handle[at[takes]] = own[takes]
        handle[at[drops]] = now[drops]
        state[mine[takes]] = own[takes]
        state[mine[drops]] = 0

    accepted = np.flatnonzero(source >= 0)
    final = base + np.cumsum(source >= 0)

    def settle(value: I64) -> I64:
        return np.where(value > base, final[np.maximum(value - base - 1, 0)], value)

    out = pool.take(source[accepted])
    out = _without_source(out, insert[accepted]).replace(
        kind=rows.kind[accepted], lsn=final[accepted], handle=settle(handle[accepted])
    )
    used = set(out.session.tolist())
    return Verdict(
        status,
        settle(lsn),
        out,
        {name: k for name, k in fresh.items() if k in used},
        {
            key: int(final[value - base - 1])
            for key, value in sorted(done.items(), key=itemgetter(1))
        },
    )


def _numbers(
    names: list[bytes],
    insert: NDArray[np.bool_],
    sessions: Mapping[bytes, int],
    top: int,
    fresh: dict[bytes, int],
) -> I64:
    """The session number of each row, 0 for one that does not exist; names that an insert
    brings for the first time get the next numbers in `fresh`."""
    for name in dict.fromkeys(compress(names, insert.tolist())):
        if name not in sessions:
            fresh[name] = top + len(fresh) + 1
    both = sessions if not fresh else {**sessions, **fresh}
    return np.fromiter(map(both.get, names, repeat(0)), np.int64, len(names))


def _repeated(
    at: I64,
    drops: NDArray[np.bool_],
    ids: list[bytes],
    asked: list[bytes],
    recent: Mapping[Key, int],
    done: dict[Key, int],
) -> I64:
    """For each row of `at` the LSN of the delete that it repeats, else 0."""
    if not recent and not done:
        return np.zeros(len(at), np.int64)
    rows = at.tolist()
    keys = list(zip(map(ids.__getitem__, rows), map(asked.__getitem__, rows), strict=True))
    first = map(recent.get, keys, map(done.get, keys, repeat(0)))
    return np.where(drops, np.fromiter(first, np.int64, len(keys)), 0)


def _rounds(ids: list[bytes]) -> tuple[I64, Iterator[I64]]:
    """(the first row with the same id, for each row; groups of rows to decide together:
    the k-th has the k-th row of each id). Nearly always one group."""
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


def _same(pool: QueryRows, a: I64, b: I64) -> NDArray[np.bool_]:
    """Whether rows a and b of the pool are the same query of the same session."""
    left, right = canonical_sources(pool, a), canonical_sources(pool, b)
    same = np.fromiter(map(eq, left, right), np.bool_, len(a))
    same &= pool.session[a] == pool.session[b]
    return same


def _without_source(rows: QueryRows, keep: NDArray[np.bool_]) -> QueryRows:
    """The rows, with the source of those not to keep made empty."""
    if keep.all():
        return rows
    size = np.diff(rows.source_off)
    off = np.zeros_like(rows.source_off)
    np.cumsum(np.where(keep, size, 0), out=off[1:])
    return rows.replace(source_off=off, source=rows.source[np.repeat(keep, size)])


def _requests(at: I64, lsn: I64, ids: list[bytes], asked: list[bytes]) -> dict[Key, int]:
    """What to remember of these deletes: those that carry a request id."""
    rows = at.tolist()
    carried = map(asked.__getitem__, rows)
    keys = zip(map(ids.__getitem__, rows), carried, strict=True)
    found = dict(zip(keys, lsn.tolist(), strict=True))
    return {key: value for key, value in found.items() if key[1]}
