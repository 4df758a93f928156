"""The benefit of each table that does not exist, over the subscriptions."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np

from ps2stream.experiments.le_subscribe.compiling import kernel
from ps2stream.experiments.le_subscribe.rows import ATTRIBUTES

_NO_BITS = np.uint64(0)
_ONE_BIT = np.uint64(1)
_C1 = np.uint64(0x9E3779B97F4A7C15)


@kernel
def find_group(groups, mask):
    """Returns the slot of a set of attributes in a hash, or the free one where it belongs."""
    last = groups.shape[0] - 1
    slot = np.int64((mask * _C1) >> np.uint64(32)) & last
    while groups[slot] != mask and groups[slot] != _NO_BITS:
        slot = (slot + 1) & last
    return slot


@kernel
def rate_groups(off, attribute, share, allowed, cost, groups, benefit, members, chosen):
    """Adds up, for each group of two or three allowed attributes, the share of events that would
    check a subscription less often in its table than they do at cost[row], and how many
    subscriptions would be there. attribute and share: of the equalities of each row. groups uint64,
    benefit float64, members int64: a hash, all 0. chosen float64[ATTRIBUTES]: all -1."""
    for row in range(off.shape[0] - 1):
        some = np.uint64(0)
        for k in range(off[row], off[row + 1]):
            bit = _ONE_BIT << np.uint64(attribute[k])
            if allowed & bit != _NO_BITS:
                if some & bit == _NO_BITS or share[k] < chosen[attribute[k]]:
                    chosen[attribute[k]] = share[k]
                some |= bit
        for i in range(ATTRIBUTES):
            one = _ONE_BIT << np.uint64(i)
            if some & one == _NO_BITS:
                continue
            for j in range(i + 1, ATTRIBUTES):
                two = _ONE_BIT << np.uint64(j)
                if some & two == _NO_BITS:
                    continue
                nu = chosen[i] * chosen[j]
                _add_benefit(groups, benefit, members, one | two, cost[row] - nu)
                for k in range(j + 1, ATTRIBUTES):
                    three = _ONE_BIT << np.uint64(k)
                    if some & three != _NO_BITS:
                        gain = cost[row] - nu * chosen[k]
                        _add_benefit(groups, benefit, members, one | two | three, gain)


@kernel
def lower_costs(off, attribute, share, mask, cost, chosen):
    """Puts each subscription that is better off there into the table of these attributes."""
    for row in range(off.shape[0] - 1):
        having, nu = _NO_BITS, 1.0
        for k in range(off[row], off[row + 1]):
            bit = _ONE_BIT << np.uint64(attribute[k])
            if mask & bit != _NO_BITS:
                if having & bit == _NO_BITS or share[k] < chosen[attribute[k]]:
                    chosen[attribute[k]] = share[k]
                having |= bit
        if having == mask:
            for i in range(ATTRIBUTES):
                if mask >> np.uint64(i) & _ONE_BIT != _NO_BITS:
                    nu *= chosen[i]
            cost[row] = min(cost[row], nu)


@kernel
def _add_benefit(groups, benefit, members, mask, gain):
    """Adds what a subscription gains by a table, if it does."""
    if gain > 0:
        slot = find_group(groups, mask)
        groups[slot] = mask
        benefit[slot] += gain
        members[slot] += 1
