"""Scans of a cluster (algorithms.md 3.2): every column whose predicates all hold is a match.

The paper's loop, with its slips put right: the inner index is that of the column, and the arrays
hold references to entries of the bit vector. UNFOLD columns' references fill a cache line. What is
fetched ahead are the first rows alone: the others are read where those hold. There is a loop for
each size up to ten, which the compiler unrolls, and one for all above.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

from ps2stream.experiments.le_subscribe.compiling import kernel
from ps2stream.space.prefetch import prefetch

UNFOLD = 16
LOOKAHEAD = 16 * UNFOLD
SPECIALISED = 10


def make_scanner(size):
    """Returns the kernel for clusters of this size, or of any if it is 0.

    scan(pool, base, cap, count, rows, bits, ahead, out, m) appends the matching subscriptions to
    out[m:] and returns how many there are then; ahead: true to fetch ahead.
    """
    fetched = min(size, 2) if size else 2

    @kernel
    def scan_columns(pool, base, cap, count, rows, bits, ahead, out, m):
        more = size or rows
        first = base + cap
        for j in range(0, count, UNFOLD):
            if ahead:
                for row in range(fetched):
                    prefetch(pool, first + row * cap + min(j + LOOKAHEAD, cap - 1))
            for k in range(first + j, first + min(j + UNFOLD, count)):
                if bits[pool[k]]:
                    holds = True
                    for row in range(1, more):
                        if not bits[pool[k + row * cap]]:
                            holds = False
                            break
                    if holds:
                        out[m] = pool[k - cap]
                        m += 1
        return m

    return scan_columns


_scan_any = make_scanner(0)
_scan_1 = make_scanner(1)
_scan_2 = make_scanner(2)
_scan_3 = make_scanner(3)
_scan_4 = make_scanner(4)
_scan_5 = make_scanner(5)
_scan_6 = make_scanner(6)
_scan_7 = make_scanner(7)
_scan_8 = make_scanner(8)
_scan_9 = make_scanner(9)
_scan_10 = make_scanner(10)


@kernel
def scan_cluster(pool, base, cap, count, rows, bits, ahead, out, m):
    """Appends the matching subscriptions of a cluster of `rows` remaining predicates to out[m:],
    which has room for `count`. Returns how many there are then."""
    if rows == 0:
        for k in range(base, base + count):
            out[m] = pool[k]
            m += 1
        return m
    if rows == 1:
        return _scan_1(pool, base, cap, count, rows, bits, ahead, out, m)
    if rows == 2:
        return _scan_2(pool, base, cap, count, rows, bits, ahead, out, m)
    if rows == 3:
        return _scan_3(pool, base, cap, count, rows, bits, ahead, out, m)
    if rows == 4:
        return _scan_4(pool, base, cap, count, rows, bits, ahead, out, m)
    if rows == 5:
        return _scan_5(pool, base, cap, count, rows, bits, ahead, out, m)
    if rows == 6:
        return _scan_6(pool, base, cap, count, rows, bits, ahead, out, m)
    if rows == 7:
        return _scan_7(pool, base, cap, count, rows, bits, ahead, out, m)
    if rows == 8:
        return _scan_8(pool, base, cap, count, rows, bits, ahead, out, m)
    if rows == 9:
        return _scan_9(pool, base, cap, count, rows, bits, ahead, out, m)
    if rows == SPECIALISED:
        return _scan_10(pool, base, cap, count, rows, bits, ahead, out, m)
    return _scan_any(pool, base, cap, count, rows, bits, ahead, out, m)
