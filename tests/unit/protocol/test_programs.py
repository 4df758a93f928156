"""The end of a program, against rows that are put together of a program and notes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.protocol.programs import find_program_end
from ps2stream.protocol.rows import PROG_AND, PROG_NOT, PROG_NOTES, PROG_OR


@njit
def call_find_end(prog: Any, first: int, last: int) -> Any:
    return find_program_end(prog, first, last)


PROGRAMS = [[], [0], [0, 1, PROG_AND], [63, PROG_NOT], [2, 1, PROG_NOT, PROG_OR]]


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
@pytest.mark.parametrize("notes", [0, 1, 2, 64])
def test_notes_are_behind_a_program(program: list[int], notes: int) -> None:
    pairs = [value for i in range(notes) for value in (i | 1 + i % 2 << 8, 2 + i)]
    row = program + ([*pairs, PROG_NOTES - notes] if notes else [])
    before, behind = [0, PROG_NOTES - 1], [PROG_NOTES - 5]
    prog = np.array(before + row + behind, np.int16)
    end = call_find_end(prog, 2, 2 + len(row))
    assert prog[2:end].tolist() == program
