"""Arrays that hold the predicates and clusters of a matcher, and where things lie in them.

`pool` holds blocks of words, each taken as rows of a power of two: a cluster of size n is a block
of n + 1 rows, the first being the line of subscriptions, the others the columns' references to
predicates; an ordered list of predicates is a block of one row. A freed block holds the number of
the next free block of its form in its first word, or -1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.experiments.le_subscribe.rows import ATTRIBUTES, PREDICATES
from ps2stream.protocol.frame import F64, I64, U8, U64

I32 = NDArray[np.int32]
TAGS = ATTRIBUTES * 8  # attribute << 3 | operator
UNIVERSAL = ATTRIBUTES  # the table of subscriptions without an equality
FIRST_TABLE = ATTRIBUTES + 1  # of several attributes
MAX_TABLES = 1024
MAX_SCHEMA = 3  # attributes of a table
FORMS = (PREDICATES + 2) * 32  # of blocks: rows * 32 + log2 of the capacity
REPAIR_SLOTS = 1 << 16  # more than there are sets of two or three attributes

# Columns of `cluster`.
BASE, CAP, COUNT, ROWS, NEXT, ENTRY, LIMIT, FLAGS = range(8)
QUEUED, CANDIDATE = 1, 2  # bits of FLAGS

# Fields of `state`.
(
    LIVE, SUBS, FREE_SUB, PREDS, FREE_PRED, ENTRIES, FREE_ENTRY, CLUSTERS, FREE_CLUSTER, POOL,
    TABLES, QUEUE, CANDIDATES, SLOTS_USED, ENTRY_SLOTS_USED, DYNAMIC, FILLING, DROPPING, REPAIRS,
    RIPE, CREATED, DROPPED, MOVED,
) = range(23)  # fmt: skip
STATE = 32
BM_MAX, B_MIN, RP_MIN = range(3)  # of `limits`

# What a kernel that stopped is short of.
DONE, SHORT_OF_SUBS, SHORT_OF_PREDS, SHORT_OF_ENTRIES, SHORT_OF_CLUSTERS, SHORT_OF_POOL = range(6)
SHORT_OF_MATCHES = 6
REPEATED = 7  # an event has an attribute twice


class ClusterArrays(NamedTuple):
    """The arrays of a matcher, C-contiguous.

    slots int64[2^k, 2]: a hash of predicates, (value, tag << 32 | id + 1), 0 being free.
    pred_value int64, pred_tag int32, pred_refs int32, pred_entry int32 (the access predicate that
    is this one alone, or -1) and pred_nu float64, by id; bits uint8[preds]: the bit vector.
    ordered int64[TAGS, 3]: base, capacity and length of the ids of a tag in ascending order of
    values. entry_slots int32[2^k, 4]: a hash of access predicates of several attributes, (three
    ids, entry + 1). entry_key int32[entries, 3], entry_table int32, entry_head int32 (the first
    cluster) and entry_nu float64. cluster int64[clusters, 8] (see BASE and on). pool int32[].
    sub_cluster and sub_column int32[subs]: where a subscription is. table_mask uint64[MAX_TABLES]:
    the attributes of a table, 0 = none; table_attrs int32[MAX_TABLES, 3]; table_size int64[]: its
    subscriptions. having int64[ATTRIBUTES]: subscriptions that have an equality of an attribute.
    free int64[FORMS]: first free block. queue and candidates int64[clusters]. repair_mask uint64
    and repair_power int64[REPAIR_SLOTS]. limits float64[3]. state int64[STATE].
    """

    slots: I64
    pred_value: I64
    pred_tag: I32
    pred_refs: I32
    pred_entry: I32
    pred_nu: F64
    bits: U8
    ordered: I64
    entry_slots: I32
    entry_key: I32
    entry_table: I32
    entry_head: I32
    entry_nu: F64
    cluster: I64
    pool: I32
    sub_cluster: I32
    sub_column: I32
    table_mask: U64
    table_attrs: I32
    table_size: I64
    having: I64
    free: I64
    queue: I64
    candidates: I64
    repair_mask: U64
    repair_power: I64
    limits: F64
    state: I64


class UpdateRoom(NamedTuple):
    """The memory of updates: ids int32[PREDICATES] and rest int32[PREDICATES], of a subscription;
    chosen int32[ATTRIBUTES]: its equality of each attribute, or -1; key int32[3]."""

    ids: I32
    rest: I32
    chosen: I32
    key: I32


class SelectivityColumns(NamedTuple):
    """What is known of events: off int64[ATTRIBUTES + 1]; value int64[], ascending within an
    attribute, and share float64[] of the events that have it; presence float64[ATTRIBUTES]: share
    of the events that have the attribute; least float64[1]: the share of a value never seen."""

    off: I64
    value: I64
    share: F64
    presence: F64
    least: F64


def make_arrays(limits: F64, dynamic: bool, first: int = 1024) -> ClusterArrays:
    """Returns the arrays of an empty matcher with room for `first` of everything."""
    state = np.zeros(STATE, np.int64)
    state[[FREE_SUB, FREE_PRED, FREE_ENTRY, FREE_CLUSTER, FILLING, DROPPING]] = -1
    state[DYNAMIC] = dynamic
    state[ENTRIES] = 1  # the universal one
    state[TABLES] = FIRST_TABLE
    arrays = ClusterArrays(
        slots=np.zeros((4 * first, 2), np.int64),
        pred_value=np.zeros(first, np.int64),
        pred_tag=np.zeros(first, np.int32),
        pred_refs=np.zeros(first, np.int32),
        pred_entry=np.full(first, -1, np.int32),
        pred_nu=np.zeros(first),
        bits=np.zeros(first, np.uint8),
        ordered=np.zeros((TAGS, 3), np.int64),
        entry_slots=np.zeros((4 * first, 4), np.int32),
        entry_key=np.full((first, MAX_SCHEMA), -1, np.int32),
        entry_table=np.zeros(first, np.int32),
        entry_head=np.full(first, -1, np.int32),
        entry_nu=np.ones(first),
        cluster=np.zeros((first, 8), np.int64),
        pool=np.zeros(64 * first, np.int32),
        sub_cluster=np.full(first, -1, np.int32),
        sub_column=np.zeros(first, np.int32),
        table_mask=np.zeros(MAX_TABLES, np.uint64),
        table_attrs=np.full((MAX_TABLES, MAX_SCHEMA), -1, np.int32),
        table_size=np.zeros(MAX_TABLES, np.int64),
        having=np.zeros(ATTRIBUTES, np.int64),
        free=np.full(FORMS, -1, np.int64),
        queue=np.zeros(first, np.int64),
        candidates=np.zeros(first, np.int64),
        repair_mask=np.zeros(REPAIR_SLOTS, np.uint64),
        repair_power=np.zeros(REPAIR_SLOTS, np.int64),
        limits=limits,
        state=state,
    )
    arrays.entry_table[0] = UNIVERSAL
    for attribute in range(ATTRIBUTES):
        arrays.table_mask[attribute] = np.uint64(1) << np.uint64(attribute)
        arrays.table_attrs[attribute, 0] = attribute
    return arrays


def make_room() -> UpdateRoom:
    """Returns the memory of updates."""
    return UpdateRoom(
        np.zeros(PREDICATES, np.int32), np.zeros(PREDICATES, np.int32),
        np.full(ATTRIBUTES, -1, np.int32), np.full(MAX_SCHEMA, -1, np.int32),
    )  # fmt: skip
