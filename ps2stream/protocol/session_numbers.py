"""How many pairs the numbers of a session stand for (contract.md 1, Delivery)."""

from __future__ import annotations

LEAP = 1 << 40
"""How many numbers a session skips when it is not known how many pairs were lost: more than
it can have numbered since that was last recorded."""


def count_pairs(first: int, last: int) -> int:
    """Returns how many pairs have the numbers first..last. A LEAP among the numbers, or the rest
    of one that a client has not seen, counts as none."""
    count = (last - first + 1) % LEAP
    return count if count < LEAP // 2 else 0
