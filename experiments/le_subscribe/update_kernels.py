"""Inserts and deletes of subscriptions."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np

from ps2stream.experiments.le_subscribe.cluster_kernels import (
    append_column,
    choose_equalities,
    clear_chosen,
    gather_predicates,
    remove_cluster,
    remove_column,
    split_predicates,
    take_cluster,
)
from ps2stream.experiments.le_subscribe.compiling import kernel
from ps2stream.experiments.le_subscribe.entry_kernels import take_entry
from ps2stream.experiments.le_subscribe.layout import (
    CAP,
    CLUSTERS,
    COUNT,
    DONE,
    ENTRIES,
    ENTRY,
    FIRST_TABLE,
    FREE_CLUSTER,
    FREE_ENTRY,
    FREE_SUB,
    LIVE,
    MAX_SCHEMA,
    PREDS,
    SHORT_OF_CLUSTERS,
    SHORT_OF_ENTRIES,
    SHORT_OF_POOL,
    SHORT_OF_PREDS,
    SHORT_OF_SUBS,
    SUBS,
    TABLES,
    UNIVERSAL,
)
from ps2stream.experiments.le_subscribe.predicate_kernels import add_predicate, release_predicate
from ps2stream.experiments.le_subscribe.rows import EQ, PREDICATES
from ps2stream.experiments.le_subscribe.selectivity import find_share

_NO_BITS = np.uint64(0)
_ONE_BIT = np.uint64(1)


@kernel
def choose_table(a, having, chosen):
    """Returns (the table whose access predicate the fewest events satisfy, their share): of equal
    ones that with the smallest number. having, chosen: equalities of the subscription."""
    best, least = UNIVERSAL, 1.0
    for attribute in range(UNIVERSAL):
        if having >> np.uint64(attribute) & _ONE_BIT != _NO_BITS:
            nu = a.pred_nu[chosen[attribute]]
            if best == UNIVERSAL or nu < least:
                best, least = attribute, nu
    for table in range(FIRST_TABLE, a.state[TABLES]):
        mask = a.table_mask[table]
        if mask != _NO_BITS and mask & having == mask:
            nu = rate_table(a, table, chosen)
            if nu < least:
                best, least = table, nu
    return best, least


@kernel
def rate_table(a, table, chosen):
    """Returns the share of events that satisfy the subscription's access predicate in a table."""
    nu = 1.0
    for k in range(MAX_SCHEMA):
        attribute = a.table_attrs[table, k]
        if attribute >= 0:
            nu *= a.pred_nu[chosen[attribute]]
    return nu


@kernel
def find_shortage(a):
    """Returns what there is no room for one more of, or DONE."""
    s = a.state
    if s[FREE_ENTRY] < 0 and s[ENTRIES] == a.entry_head.shape[0]:
        return SHORT_OF_ENTRIES
    if s[FREE_CLUSTER] < 0 and s[CLUSTERS] == a.cluster.shape[0]:
        return SHORT_OF_CLUSTERS
    return DONE


@kernel
def place_subscription(a, room, sub, count, table):
    """Puts a subscription with the predicates room.ids[:count] into a table. room.chosen must be
    its equalities. Returns False, and changes nothing, if the pool is too short."""
    rows = split_predicates(a, room.ids, count, table, room.chosen, room.key, room.rest)
    number = take_cluster(a, take_entry(a, room.key, table), rows)
    if append_column(a, number, sub, room.rest):
        return True
    if a.cluster[number, COUNT] == 0 and a.cluster[number, CAP] == 0:
        remove_cluster(a, number)
    return False


@kernel
def insert_subscription(a, room, known, attribute, operator, value, first, end):
    """Inserts the subscription whose predicates are first..end - 1 of the columns. Returns (what
    there is no room for, its number)."""
    s = a.state
    sub = s[FREE_SUB]
    if sub < 0 and s[SUBS] == a.sub_cluster.shape[0]:
        return SHORT_OF_SUBS, -1
    if s[PREDS] + PREDICATES > a.pred_value.shape[0]:
        return SHORT_OF_PREDS, -1
    short = find_shortage(a)
    if short != DONE:
        return short, -1
    count, enough = np.int64(0), True
    for k in range(first, end):
        tag = np.int64(attribute[k]) << 3 | np.int64(operator[k])
        nu = find_share(known, np.int64(attribute[k]), value[k]) if operator[k] == EQ else 1.0
        number = add_predicate(a, value[k], tag, nu)
        if number < 0:
            enough = False
            break
        new = True
        for other in range(count):
            new &= room.ids[other] != number
        if new:
            room.ids[count] = number
            count += 1
        else:
            release_predicate(a, number)
    if enough:
        having = choose_equalities(a, room.ids, count, room.chosen)
        table, _ = choose_table(a, having, room.chosen)
        new_sub = sub if sub >= 0 else s[SUBS]
        link = a.sub_column[new_sub]
        enough = place_subscription(a, room, new_sub, count, table)
        clear_chosen(a, room.ids, count, room.chosen)
        if enough:
            if sub >= 0:
                s[FREE_SUB] = link
            else:
                s[SUBS] += 1
            s[LIVE] += 1
            count_attributes(a, room.ids, count, np.int64(1))
            return DONE, new_sub
    for k in range(count):
        release_predicate(a, np.int64(room.ids[k]))
    return SHORT_OF_POOL, -1


@kernel
def delete_subscription(a, room, sub):
    """Deletes a live subscription. Returns the table that it was in."""
    number = np.int64(a.sub_cluster[sub])
    column = np.int64(a.sub_column[sub])
    count = gather_predicates(a, number, column, room.ids)
    table = np.int64(a.entry_table[a.cluster[number, ENTRY]])
    remove_column(a, number, column)
    count_attributes(a, room.ids, count, np.int64(-1))
    for k in range(count):
        release_predicate(a, np.int64(room.ids[k]))
    a.sub_cluster[sub] = -1
    a.sub_column[sub] = a.state[FREE_SUB]
    a.state[FREE_SUB] = sub
    a.state[LIVE] -= 1
    return table


@kernel
def count_attributes(a, ids, count, by):
    """Adds `by` to the attributes that a subscription has equalities of."""
    seen = _NO_BITS
    for k in range(count):
        tag = a.pred_tag[ids[k]]
        bit = _ONE_BIT << np.uint64(tag >> 3)
        if tag & 7 == EQ and seen & bit == _NO_BITS:
            seen |= bit
            a.having[tag >> 3] += by
