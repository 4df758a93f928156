"""Whatever happens, each live subscription is in one column of one cluster, and the counts of
tables, predicates and attributes are those of the live subscriptions."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from ps2stream.experiments.le_subscribe.growth import grow_arrays
from ps2stream.experiments.le_subscribe.layout import (
    BASE,
    CAP,
    COUNT,
    CREATED,
    DONE,
    DROPPED,
    ENTRY,
    FIRST_TABLE,
    LIVE,
    ROWS,
    ClusterArrays,
    make_arrays,
    make_room,
)
from ps2stream.experiments.le_subscribe.maintain_kernels import delete_rows, insert_rows
from ps2stream.experiments.le_subscribe.rows import ATTRIBUTES, EQ
from ps2stream.experiments.le_subscribe.selectivity import assume_uniform
from tests.support.subscriptions import Predicate, draw_subscription, to_rows

pytestmark = pytest.mark.takes_turns(2)


def read_predicate(a: ClusterArrays, number: int) -> Predicate:
    tag = int(a.pred_tag[number])
    return tag >> 3, tag & 7, int(a.pred_value[number])


def read_columns(a: ClusterArrays) -> dict[int, set[Predicate]]:
    """The predicates of each subscription, out of its cluster and its access predicate."""
    out: dict[int, set[Predicate]] = {}
    for number in np.flatnonzero(a.cluster[:, COUNT] > 0):
        base, cap, count, rows = (int(a.cluster[number, k]) for k in (BASE, CAP, COUNT, ROWS))
        entry = int(a.cluster[number, ENTRY])
        key = [int(k) for k in a.entry_key[entry] if k >= 0]
        table = int(a.entry_table[entry])
        having = [k for k in a.table_attrs[table].tolist() if k >= 0]
        assert [read_predicate(a, k)[0] for k in key] == (having if entry else [])
        block = a.pool[base : base + (rows + 1) * cap].reshape(rows + 1, cap)[:, :count]
        for column in range(count):
            sub = int(block[0, column])
            assert sub not in out
            assert (a.sub_cluster[sub], a.sub_column[sub]) == (number, column)
            ids = [*key, *block[1:, column].tolist()]
            assert len(set(ids)) == len(ids)
            out[sub] = {read_predicate(a, k) for k in ids}
            equal = [a.pred_tag[k] & 7 == EQ for k in block[1:, column]]
            assert equal == sorted(equal, reverse=True)
    return out


def check_arrays(a: ClusterArrays, live: dict[int, set[Predicate]]) -> None:
    assert read_columns(a) == live
    assert a.state[LIVE] == len(live)
    refs = collections.Counter(p for each in live.values() for p in each)
    numbers = np.flatnonzero(a.pred_refs > 0).tolist()
    assert {read_predicate(a, k): int(a.pred_refs[k]) for k in numbers} == refs
    assert not a.bits.any()
    sizes = collections.Counter(
        int(a.entry_table[a.cluster[a.sub_cluster[sub], ENTRY]]) for sub in live
    )
    assert {t: int(n) for t, n in enumerate(a.table_size) if n} == sizes
    having = collections.Counter(
        attribute for each in live.values() for attribute in {p[0] for p in each if p[1] == EQ}
    )
    assert {k: int(n) for k, n in enumerate(a.having) if n} == having
    # Tables of one attribute are always there.
    assert (a.table_mask[:ATTRIBUTES] == np.uint64(1) << np.arange(64, dtype=np.uint64)).all()


@pytest.mark.parametrize("seed", range(8))
def test_arrays_hold_what_is_live(seed: int) -> None:
    rng = np.random.default_rng([seed, 4])
    a, room, known = (
        make_arrays(np.array([0.05, 3, 6]), True, 64),
        make_room(),
        assume_uniform(3, 0),
    )
    live: dict[int, set[Predicate]] = {}
    made = dropped = most = 0
    for _ in range(12):
        drawn = [draw_subscription(rng, 6, 3) for _ in range(int(rng.integers(0, 150)))]
        subs, first, short = np.zeros(len(drawn), np.int64), 0, -1
        while short != DONE:
            short, first = insert_rows(a, room, known, to_rows(drawn), first, subs)
            a = grow_arrays(a, short) if short != DONE else a
        live |= {s: set(p) for s, p in zip(subs.tolist(), drawn, strict=True)}
        check_arrays(a, live)
        gone = rng.permutation(list(live)).astype(np.int64)[: int(len(live) * rng.random())]
        first, short = 0, -1
        while short != DONE:
            short, first = delete_rows(a, room, gone, first)
            a = grow_arrays(a, short) if short != DONE else a
        for sub in gone.tolist():
            del live[sub]
        check_arrays(a, live)
        made, dropped = int(a.state[CREATED]), int(a.state[DROPPED])
        tables = int((a.table_mask[FIRST_TABLE:] != 0).sum())
        assert tables == made - dropped
        most = max(most, tables)
    assert most > 3
    assert dropped > 0
