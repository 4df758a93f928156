"""Programs that are conjunctions, as words of bits, against the programs themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.workers.radix.arrays import make_update_scratch
from ps2stream.workers.radix.conjunction_kernels import SPLIT, split_program
from ps2stream.workers.radix.pointers import pointer_to
from tests.support.programs import draw_program, holds, with_comparisons

STACK = make_update_scratch(1).stack
N = 5


@njit
def call_split(prog: Any, stack: Any) -> Any:
    return split_program(pointer_to(prog), 0, prog.shape[0], pointer_to(stack))


@pytest.mark.parametrize("seed", range(3))
def test_words_say_what_the_program_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    split = 0
    for _ in range(1000):
        prog, places = with_comparisons(rng, draw_program(rng, N))
        words = call_split(np.array(prog, np.int16), STACK)
        if not words:
            continue
        split += 1
        needed, barred = int(STACK[SPLIT]), int(STACK[SPLIT + 1])
        counts = int(STACK[SPLIT + 2]) if words > 2 else 0
        clauses = [int(bits) for bits in STACK[SPLIT + 3 : SPLIT + 3 + (counts & 0xFFFF)]]
        assert counts >> 16 == len(places)
        sizes = [1 + -(-prog[at + 2] // 8) for at in places]
        assert words == (3 + len(clauses) + sum(sizes) if clauses or places else 2)
        for has in range(1 << N):
            terms = {i: bool(has >> i & 1) for i in range(N)}
            truth = {at: bool(rng.random() < 0.7) for at in places}
            made = all(truth[at] and terms[prog[at + 1] & 63] for at in places)
            bits = has & needed == needed and not has & barred and all(has & c for c in clauses)
            assert (made and bool(bits)) == holds(prog, terms, truth), prog
    assert split > 100


def test_what_is_no_conjunction_is_none() -> None:
    for prog in ([0, 1, -1, 2, -2], [0, 1, -1, -3], [0, 1, -2, -3], [0, 0, -3, -1]):
        assert call_split(np.array(prog, np.int16), STACK) == 0
