"""Clusters: the subscriptions of one access predicate and one size, as columns."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np

from ps2stream.experiments.le_subscribe.compiling import kernel
from ps2stream.experiments.le_subscribe.entry_kernels import remove_entry
from ps2stream.experiments.le_subscribe.layout import (
    BASE,
    BM_MAX,
    CAP,
    CLUSTERS,
    COUNT,
    DYNAMIC,
    ENTRY,
    FLAGS,
    FREE_CLUSTER,
    LIMIT,
    MAX_SCHEMA,
    NEXT,
    QUEUE,
    QUEUED,
    ROWS,
)
from ps2stream.experiments.le_subscribe.pool_kernels import FIRST_CAP, free_block, take_block
from ps2stream.experiments.le_subscribe.rows import EQ


@kernel
def take_cluster(a, entry, rows):
    """Returns the cluster of an access predicate for subscriptions with `rows` more predicates:
    the one that exists, or a new one, for which there must be room."""
    number = np.int64(a.entry_head[entry])
    while number >= 0:
        if a.cluster[number, ROWS] == rows:
            return number
        number = a.cluster[number, NEXT]
    number = a.state[FREE_CLUSTER]
    if number >= 0:
        a.state[FREE_CLUSTER] = a.cluster[number, NEXT]
    else:
        number = a.state[CLUSTERS]
        a.state[CLUSTERS] += 1
    # FLAGS stays: the number may still be in the queue, or among the candidates.
    a.cluster[number, BASE] = -1
    a.cluster[number, CAP] = 0
    a.cluster[number, COUNT] = 0
    a.cluster[number, ROWS] = rows
    a.cluster[number, LIMIT] = 0
    a.cluster[number, ENTRY] = entry
    a.cluster[number, NEXT] = a.entry_head[entry]
    a.entry_head[entry] = number
    return number


@kernel
def append_column(a, number, sub, rest):
    """Appends a subscription with its remaining predicates rest[:ROWS]. Returns False, and changes
    nothing, if the pool is too short."""
    count, cap = a.cluster[number, COUNT], a.cluster[number, CAP]
    if count == cap and not resize_cluster(a, number, max(2 * cap, FIRST_CAP)):
        return False
    base, cap, rows = a.cluster[number, BASE], a.cluster[number, CAP], a.cluster[number, ROWS]
    a.pool[base + count] = sub
    for k in range(rows):
        a.pool[base + (k + 1) * cap + count] = rest[k]
    a.cluster[number, COUNT] = count + 1
    a.sub_cluster[sub] = number
    a.sub_column[sub] = count
    a.table_size[a.entry_table[a.cluster[number, ENTRY]]] += 1
    queue_excessive(a, number)
    return True


@kernel
def remove_column(a, number, column):
    """Removes a column: the last one takes its place. An empty cluster goes too, and with the last
    one its access predicate."""
    base, cap, rows = a.cluster[number, BASE], a.cluster[number, CAP], a.cluster[number, ROWS]
    entry, last = a.cluster[number, ENTRY], a.cluster[number, COUNT] - 1
    a.cluster[number, COUNT] = last
    a.table_size[a.entry_table[entry]] -= 1
    if last == 0:
        remove_cluster(a, number)
        return
    if column < last:
        for k in range(rows + 1):
            a.pool[base + k * cap + column] = a.pool[base + k * cap + last]
        a.sub_column[a.pool[base + column]] = column
    if cap > FIRST_CAP and last < cap >> 2:
        resize_cluster(a, number, cap >> 1)


@kernel
def remove_cluster(a, number):
    """Removes an empty cluster."""
    if a.cluster[number, CAP] > 0:
        rows, cap = a.cluster[number, ROWS] + 1, a.cluster[number, CAP]
        free_block(a.pool, a.free, rows, cap, a.cluster[number, BASE])
    entry = a.cluster[number, ENTRY]
    if a.entry_head[entry] == number:
        a.entry_head[entry] = a.cluster[number, NEXT]
    else:
        before = np.int64(a.entry_head[entry])
        while a.cluster[before, NEXT] != number:
            before = a.cluster[before, NEXT]
        a.cluster[before, NEXT] = a.cluster[number, NEXT]
    a.cluster[number, ENTRY] = -1
    a.cluster[number, COUNT] = 0
    a.cluster[number, NEXT] = a.state[FREE_CLUSTER]
    a.state[FREE_CLUSTER] = number
    if a.entry_head[entry] < 0:
        remove_entry(a, entry)


@kernel
def resize_cluster(a, number, cap):
    """Gives a cluster a block of another capacity. Returns False if the pool is too short."""
    rows, count, old = a.cluster[number, ROWS] + 1, a.cluster[number, COUNT], a.cluster[number, CAP]
    base, new = a.cluster[number, BASE], take_block(a.pool, a.free, a.state, rows, cap)
    if new < 0:
        return False
    for k in range(rows):
        for column in range(count):
            a.pool[new + k * cap + column] = a.pool[base + k * old + column]
    if old > 0:
        free_block(a.pool, a.free, rows, old, base)
    a.cluster[number, BASE] = new
    a.cluster[number, CAP] = cap
    return True


@kernel
def gather_predicates(a, number, column, ids):
    """Writes the ids of all predicates of a subscription. Returns how many they are."""
    entry, count = a.cluster[number, ENTRY], 0
    for k in range(MAX_SCHEMA):
        if a.entry_key[entry, k] >= 0:
            ids[count] = a.entry_key[entry, k]
            count += 1
    base, cap = a.cluster[number, BASE], a.cluster[number, CAP]
    for k in range(a.cluster[number, ROWS]):
        ids[count] = a.pool[base + (k + 1) * cap + column]
        count += 1
    return count


@kernel
def queue_excessive(a, number):
    """Queues a cluster whose benefit margin has risen above the limit since it was last examined
    (situation 1)."""
    if a.state[DYNAMIC] == 0 or a.cluster[number, COUNT] <= a.cluster[number, LIMIT]:
        return
    entry = a.cluster[number, ENTRY]
    if entry == 0 or a.entry_nu[entry] * a.cluster[number, COUNT] <= a.limits[BM_MAX]:
        return
    if a.cluster[number, FLAGS] & QUEUED == 0:
        a.cluster[number, FLAGS] |= QUEUED
        a.queue[a.state[QUEUE]] = number
        a.state[QUEUE] += 1


@kernel
def choose_equalities(a, ids, count, chosen):
    """Writes the equality of each attribute that has one, the rarest if there are several, and
    returns the set of those attributes. chosen: all -1."""
    having = np.uint64(0)
    for k in range(count):
        tag = a.pred_tag[ids[k]]
        if tag & 7 == EQ:
            attribute = tag >> 3
            before = chosen[attribute]
            if before < 0 or a.pred_nu[ids[k]] < a.pred_nu[before]:
                chosen[attribute] = ids[k]
            having |= np.uint64(1) << np.uint64(attribute)
    return having


@kernel
def clear_chosen(a, ids, count, chosen):
    """Makes `chosen` all -1 again."""
    for k in range(count):
        chosen[a.pred_tag[ids[k]] >> 3] = -1


@kernel
def split_predicates(a, ids, count, table, chosen, key, rest):
    """Writes the access predicate of a table, int32[3], and the other predicates: equalities, the
    rarest first, then the others. Returns how many others there are."""
    for k in range(MAX_SCHEMA):
        attribute = a.table_attrs[table, k]
        key[k] = chosen[attribute] if attribute >= 0 else -1
    rows = 0
    for k in range(count):
        number = ids[k]
        if number in (key[0], key[1], key[2]):
            continue
        at = rows
        if a.pred_tag[number] & 7 == EQ:
            while at > 0 and (
                a.pred_tag[rest[at - 1]] & 7 != EQ or a.pred_nu[rest[at - 1]] > a.pred_nu[number]
            ):
                rest[at] = rest[at - 1]
                at -= 1
        rest[at] = number
        rows += 1
    return rows
