"""The reparation power of tables that do not exist: how many subscriptions of clusters with too
much benefit margin would be checked by far fewer events there."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np

from ps2stream.experiments.le_subscribe.cluster_kernels import (
    choose_equalities,
    clear_chosen,
    gather_predicates,
)
from ps2stream.experiments.le_subscribe.compiling import kernel
from ps2stream.experiments.le_subscribe.layout import (
    BM_MAX,
    CANDIDATE,
    CANDIDATES,
    COUNT,
    ENTRY,
    FIRST_TABLE,
    FLAGS,
    LIVE,
    REPAIR_SLOTS,
    REPAIRS,
    RIPE,
    RP_MIN,
    TABLES,
)
from ps2stream.experiments.le_subscribe.rows import ATTRIBUTES

_NO_BITS = np.uint64(0)
_ONE_BIT = np.uint64(1)
_C1 = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(48)
MARGIN = 0.5
"""A subscription moves if at most this share of the events would still reach it."""
SEEN = 0.01
"""Least share of the subscriptions that have an equality of an attribute of a table."""


@kernel
def count_repairs(a, room, number, first):
    """Adds the columns first.. of a candidate cluster to the power of all tables that could take
    them, and sets RIPE once a table has enough."""
    nu_here = a.entry_nu[a.cluster[number, ENTRY]]
    least = SEEN * a.state[LIVE]
    for column in range(first, a.cluster[number, COUNT]):
        count = gather_predicates(a, number, column, room.ids)
        choose_equalities(a, room.ids, count, room.chosen)
        # The attributes that count, gathered in `rest`.
        some = 0
        for attribute in range(ATTRIBUTES):
            if room.chosen[attribute] >= 0 and a.having[attribute] >= least:
                room.rest[some] = attribute
                some += 1
        for i in range(some):
            one = np.uint64(room.rest[i])
            nu_one = a.pred_nu[room.chosen[room.rest[i]]]
            for j in range(i + 1, some):
                two = np.uint64(room.rest[j])
                nu_two = nu_one * a.pred_nu[room.chosen[room.rest[j]]]
                pair = _ONE_BIT << one | _ONE_BIT << two
                if nu_two <= MARGIN * nu_here:
                    _add_power(a, pair)
                for k in range(j + 1, some):
                    three = np.uint64(room.rest[k])
                    nu = nu_two * a.pred_nu[room.chosen[room.rest[k]]]
                    if nu <= MARGIN * nu_here:
                        _add_power(a, pair | _ONE_BIT << three)
        clear_chosen(a, room.ids, count, room.chosen)


@kernel
def recount_repairs(a, room):
    """Counts all powers anew, over the candidates that still have too much benefit margin."""
    clear_repairs(a)
    kept = 0
    for k in range(a.state[CANDIDATES]):
        number = a.candidates[k]
        entry = a.cluster[number, ENTRY]
        if entry > 0 and a.entry_nu[entry] * a.cluster[number, COUNT] > a.limits[BM_MAX]:
            a.candidates[kept] = number
            kept += 1
            count_repairs(a, room, number, np.int64(0))
        else:
            a.cluster[number, FLAGS] &= ~CANDIDATE
    a.state[CANDIDATES] = kept


@kernel
def clear_repairs(a):
    """Forgets all powers."""
    for slot in range(REPAIR_SLOTS):
        a.repair_mask[slot] = _NO_BITS
        a.repair_power[slot] = 0
    a.state[REPAIRS] = 0
    a.state[RIPE] = 0


@kernel
def find_strongest(a):
    """Returns the attributes of the absent table with the most power, or 0 if none has enough; of
    equal ones the smallest set."""
    best, most = _NO_BITS, np.int64(a.limits[RP_MIN]) - 1
    for slot in range(REPAIR_SLOTS):
        mask, power = a.repair_mask[slot], a.repair_power[slot]
        if mask == _NO_BITS or power < most or (power == most and mask >= best):
            continue
        exists = False
        for table in range(FIRST_TABLE, a.state[TABLES]):
            exists |= a.table_mask[table] == mask
        if not exists:
            best, most = mask, power
    return best


@kernel
def _add_power(a, mask):
    """Adds a subscription to the power of a table."""
    slot = np.int64(mask * _C1 >> _SHIFT)
    while a.repair_mask[slot] != mask:
        if a.repair_mask[slot] == _NO_BITS:
            a.repair_mask[slot] = mask
            a.state[REPAIRS] += 1
        else:
            slot = (slot + 1) & (REPAIR_SLOTS - 1)
    a.repair_power[slot] += 1
    if a.repair_power[slot] >= a.limits[RP_MIN]:
        a.state[RIPE] = 1
