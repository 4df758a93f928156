"""The maintenance algorithm of dynamic clustering (algorithms.md 3.4).

Phase 1 moves the subscriptions of a cluster with too much benefit margin to the existing table
that is best for them, and dissolves tables with too few; phase 2 creates the tables that would
relieve enough subscriptions of what is left. Each kernel that is short of room stops where it can
be called again.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np

from ps2stream.experiments.le_subscribe.cluster_kernels import (
    choose_equalities,
    clear_chosen,
    gather_predicates,
    queue_excessive,
    remove_column,
)
from ps2stream.experiments.le_subscribe.compiling import kernel
from ps2stream.experiments.le_subscribe.layout import (
    B_MIN,
    BASE,
    BM_MAX,
    CANDIDATE,
    CANDIDATES,
    CLUSTERS,
    COUNT,
    CREATED,
    DONE,
    DROPPED,
    DROPPING,
    DYNAMIC,
    ENTRY,
    FILLING,
    FIRST_TABLE,
    FLAGS,
    LIMIT,
    MAX_SCHEMA,
    MAX_TABLES,
    MOVED,
    PREDS,
    QUEUE,
    QUEUED,
    RIPE,
    SHORT_OF_POOL,
    TABLES,
)
from ps2stream.experiments.le_subscribe.repair_kernels import (
    MARGIN,
    clear_repairs,
    count_repairs,
    find_strongest,
    recount_repairs,
)
from ps2stream.experiments.le_subscribe.rows import ATTRIBUTES, EQ
from ps2stream.experiments.le_subscribe.selectivity import find_share
from ps2stream.experiments.le_subscribe.update_kernels import (
    choose_table,
    delete_subscription,
    find_shortage,
    insert_subscription,
    place_subscription,
    rate_table,
)

_NO_BITS = np.uint64(0)
_ONE_BIT = np.uint64(1)
AGAIN = 1.25
"""A cluster that nothing could relieve is examined again when it has grown by this factor."""
WORTH = 1 / 64
"""Clusters below this share of BMmax are left alone when a table is filled."""


@kernel
def insert_rows(a, room, known, rows, first, subs):
    """Inserts the subscriptions from `first` on, with the maintenance that follows, and writes
    their numbers. Returns (what there is no room for, the first that is not inserted)."""
    short = settle_clusters(a, room)
    if short != DONE:
        return short, first
    for row in range(first, rows.off.shape[0] - 1):
        short, sub = insert_subscription(
            a, room, known, rows.attribute, rows.operator, rows.value,
            rows.off[row], rows.off[row + 1],
        )  # fmt: skip
        if short != DONE:
            return short, row
        subs[row] = sub
        if a.state[QUEUE] > 0:
            short = settle_clusters(a, room)
            if short != DONE:
                return short, row + 1
    return DONE, rows.off.shape[0] - 1


@kernel
def delete_rows(a, room, subs, first):
    """Deletes live subscriptions from subs[first] on, with the maintenance that follows. Returns
    (what there is no room for, the first that is not deleted)."""
    short = settle_clusters(a, room)
    if short != DONE:
        return short, first
    for k in range(first, subs.shape[0]):
        table = delete_subscription(a, room, subs[k])
        if (
            a.state[DYNAMIC] != 0
            and table >= FIRST_TABLE
            and a.table_mask[table] != _NO_BITS
            and a.table_size[table] < a.limits[B_MIN]
        ):
            a.table_mask[table] = _NO_BITS
            a.state[DROPPING] = table
            a.state[DROPPED] += 1
            short = settle_clusters(a, room)
            if short != DONE:
                return short, k + 1
    return DONE, subs.shape[0]


@kernel
def settle_clusters(a, room):
    """Does all maintenance that is due. Returns what there is no room for, or DONE."""
    while True:
        if a.state[DROPPING] >= 0:
            short = _dissolve_table(a, room)
        elif a.state[FILLING] >= 0:
            short = _fill_table(a, room)
        elif a.state[QUEUE] > 0:
            short = _examine_cluster(a, room)
        elif a.state[RIPE] != 0:
            short = DONE
            recount_repairs(a, room)
            if a.state[RIPE] != 0:
                mask = find_strongest(a)
                if mask == _NO_BITS or create_table(a, mask) < 0:
                    a.state[RIPE] = 0
        else:
            return DONE
        if short != DONE:
            return short


@kernel
def create_table(a, mask):
    """Creates the table of these attributes, to be filled next. Returns its number, or -1 if there
    are as many as there can be."""
    table = FIRST_TABLE
    while table < a.state[TABLES] and (a.table_mask[table] != _NO_BITS or a.table_size[table] > 0):
        table += 1
    if table == MAX_TABLES:
        return -1
    a.state[TABLES] = max(a.state[TABLES], table + 1)
    a.table_mask[table] = mask
    count = 0
    for attribute in range(ATTRIBUTES):
        if mask >> np.uint64(attribute) & _ONE_BIT != _NO_BITS:
            a.table_attrs[table, count] = attribute
            count += 1
    for k in range(count, MAX_SCHEMA):
        a.table_attrs[table, k] = -1
    a.state[FILLING] = table
    a.state[CREATED] += 1
    return table


@kernel
def refresh_shares(a, known):
    """Takes new statistics on events in, and queues the clusters that have too much now."""
    for number in range(a.state[PREDS]):
        tag = np.int64(a.pred_tag[number])
        if a.pred_refs[number] > 0 and tag & 7 == EQ:
            a.pred_nu[number] = find_share(known, tag >> 3, a.pred_value[number])
    for entry in range(1, a.entry_head.shape[0]):
        if a.entry_table[entry] >= 0 and a.entry_key[entry, 0] >= 0 and a.entry_head[entry] >= 0:
            nu = 1.0
            for k in range(MAX_SCHEMA):
                if a.entry_key[entry, k] >= 0:
                    nu *= a.pred_nu[a.entry_key[entry, k]]
            a.entry_nu[entry] = nu
    for number in range(a.state[CLUSTERS]):
        a.cluster[number, FLAGS] &= ~CANDIDATE
        a.cluster[number, LIMIT] = 0
        if a.cluster[number, COUNT] > 0:
            queue_excessive(a, number)
    a.state[CANDIDATES] = 0
    clear_repairs(a)


@kernel
def _move_column(a, room, number, column, count, table):
    """Moves a subscription, whose predicates are in `room`, to another table."""
    short = find_shortage(a)
    if short != DONE:
        return short
    sub = np.int64(a.pool[a.cluster[number, BASE] + column])
    if not place_subscription(a, room, sub, count, table):
        return SHORT_OF_POOL
    remove_column(a, number, column)
    a.state[MOVED] += 1
    return DONE


@kernel
def _examine_cluster(a, room):
    """Redistributes the cluster at the end of the queue; if it still has too much benefit margin
    it becomes a candidate."""
    number = a.queue[a.state[QUEUE] - 1]
    if a.cluster[number, COUNT] > 0:
        nu_here = a.entry_nu[a.cluster[number, ENTRY]]
        for column in range(a.cluster[number, COUNT] - 1, -1, -1):
            count = gather_predicates(a, number, column, room.ids)
            having = choose_equalities(a, room.ids, count, room.chosen)
            table, nu = choose_table(a, having, room.chosen)
            short = DONE
            if nu <= MARGIN * nu_here:
                # What this brings is queued before this one, and is examined after it.
                top = a.state[QUEUE] - 1
                short = _move_column(a, room, number, column, count, table)
                if short == DONE and a.state[QUEUE] - 1 > top:
                    a.queue[top], a.queue[top + 1] = a.queue[top + 1], a.queue[top]
            clear_chosen(a, room.ids, count, room.chosen)
            if short != DONE:
                return short
    a.state[QUEUE] -= 1
    a.cluster[number, FLAGS] &= ~QUEUED
    size = a.cluster[number, COUNT]
    if size == 0:
        return DONE
    if a.entry_nu[a.cluster[number, ENTRY]] * size > a.limits[BM_MAX]:
        first = np.int64(0)
        if a.cluster[number, FLAGS] & CANDIDATE:
            first = min(np.int64(a.cluster[number, LIMIT] / AGAIN), size)
        else:
            a.cluster[number, FLAGS] |= CANDIDATE
            a.candidates[a.state[CANDIDATES]] = number
            a.state[CANDIDATES] += 1
        count_repairs(a, room, number, first)
        a.cluster[number, LIMIT] = np.int64(size * AGAIN)
    return DONE


@kernel
def _fill_table(a, room):
    """Moves to the new table all subscriptions that are far better off there, from every cluster
    that matters."""
    table = a.state[FILLING]
    mask = a.table_mask[table]
    for number in range(a.state[CLUSTERS]):
        if a.cluster[number, COUNT] == 0:
            continue
        nu_here = a.entry_nu[a.cluster[number, ENTRY]]
        if nu_here * a.cluster[number, COUNT] < WORTH * a.limits[BM_MAX]:
            continue
        for column in range(a.cluster[number, COUNT] - 1, -1, -1):
            count = gather_predicates(a, number, column, room.ids)
            having = choose_equalities(a, room.ids, count, room.chosen)
            short = DONE
            if having & mask == mask and rate_table(a, table, room.chosen) <= MARGIN * nu_here:
                short = _move_column(a, room, number, column, count, table)
            clear_chosen(a, room.ids, count, room.chosen)
            if short != DONE:
                return short
    a.state[FILLING] = -1
    if a.state[DYNAMIC] != 0:
        recount_repairs(a, room)
    return DONE


@kernel
def _dissolve_table(a, room):
    """Moves all subscriptions of a dropped table to the best of the others."""
    table = a.state[DROPPING]
    for number in range(a.state[CLUSTERS]):
        if a.cluster[number, COUNT] == 0:
            continue
        if a.entry_table[a.cluster[number, ENTRY]] != table:
            continue
        for column in range(a.cluster[number, COUNT] - 1, -1, -1):
            count = gather_predicates(a, number, column, room.ids)
            having = choose_equalities(a, room.ids, count, room.chosen)
            best, _ = choose_table(a, having, room.chosen)
            short = _move_column(a, room, number, column, count, best)
            clear_chosen(a, room.ids, count, room.chosen)
            if short != DONE:
                return short
    a.state[DROPPING] = -1
    return DONE
