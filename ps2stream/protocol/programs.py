"""Where the postfix program of a query ends (see rows.py), for kernels of several rooms."""

# mypy: allow-untyped-decorators, allow-untyped-defs
from __future__ import annotations

from numba import njit

from ps2stream.protocol.rows import PROG_NOTES


@njit(inline="always")
def find_program_end(prog, first, last):
    """Returns where the program of a row ends, whose values are prog[first:last], an array or a
    pointer: its notes are behind that, if it has any. A row of notes alone ends at `first`."""
    if last > first and prog[last - 1] <= PROG_NOTES:
        return last - 1 - 2 * (PROG_NOTES - prog[last - 1])
    return last
