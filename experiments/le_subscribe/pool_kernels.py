"""Blocks of the pool: taken from the list of free ones of their form, or from the end."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

from ps2stream.experiments.le_subscribe.compiling import kernel
from ps2stream.experiments.le_subscribe.layout import POOL

FIRST_CAP = 4


@kernel
def _log_of(cap):
    """Returns the logarithm of a power of two."""
    log = 0
    while cap > 1:
        cap >>= 1
        log += 1
    return log


@kernel
def take_block(pool, free, state, rows, cap):
    """Returns the first word of a block of rows * cap words, or -1 if the pool is too short."""
    form = rows * 32 + _log_of(cap)
    base = free[form]
    if base >= 0:
        free[form] = pool[base]
        return base
    base = state[POOL]
    if base + rows * cap > pool.shape[0]:
        return -1
    state[POOL] = base + rows * cap
    return base


@kernel
def free_block(pool, free, rows, cap, base):
    """Gives a block of rows * cap words back."""
    form = rows * 32 + _log_of(cap)
    pool[base] = free[form]
    free[form] = base
