"""Programs of queries for the tests: drawn, and evaluated where not all terms are known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ps2stream.protocol.programs import write_comparison
from ps2stream.protocol.rows import PROG_AND, PROG_COMPARE, PROG_NOT, PROG_NOTES, PROG_OR

_NOTHING: Mapping[int, bool] = {}


def holds(
    prog: list[int], known: Mapping[int, bool], compared: Mapping[int, bool] = _NOTHING
) -> bool | None:
    """Whether a program holds where these terms are there or not, or None if that depends on
    others (or seems to, as each use of a term is looked at for itself). compared: by the place of
    a comparison in the program, whether it holds where its term is there."""
    stack: list[bool | None] = []
    behind = 0
    for at, op in enumerate(prog):
        if at < behind:
            continue
        if op >= 0:
            stack.append(known.get(op))
            continue
        if op == PROG_COMPARE:
            behind = at + 3 + 4 * -(-prog[at + 2] // 8)
            there, truth = known.get(prog[at + 1] & 63), compared.get(at)
            stack.append(False if False in (there, truth) else truth if there else None)
            continue
        b = stack.pop()
        if op == PROG_NOT:
            stack.append(None if b is None else not b)
            continue
        a, decides = stack.pop(), op == PROG_OR
        if decides in (a, b):
            stack.append(decides)
        else:
            stack.append(None if None in (a, b) else not decides)
    (found,) = stack
    return found


def conjunction_of(prog: list[int], n: int) -> tuple[set[int], set[int], bool]:
    """The terms of n that a program needs, those that it must not have, and whether these say
    all."""
    needed = {i for i in range(n) if holds(prog, {i: False}) is False}
    barred = {i for i in range(n) if holds(prog, {i: True}) is False}
    known = dict.fromkeys(needed, True) | dict.fromkeys(barred, False)
    return needed, barred, not needed & barred and holds(prog, known) is True


def draw_program(rng: np.random.Generator, n: int) -> list[int]:
    """A program of n terms, in any order, some more than once: a conjunction, one with NOTs, one of
    NOTs alone, or anything."""
    kind = rng.choice(["literals", "NOTs", "any"], p=[0.4, 0.1, 0.5])
    negated = {"literals": 0.4, "NOTs": 1.0, "any": 0.3}[kind]
    used = rng.permutation(n).tolist()
    if kind == "any":
        used += rng.integers(0, n, int(rng.integers(0, 3))).tolist()
    prog: list[int] = []
    depth = 0
    for term in used:
        prog += [term, PROG_NOT] if rng.random() < negated else [term]
        depth += 1
        while depth > 1 and rng.random() < 0.6:
            prog.append(PROG_AND if kind != "any" else int(rng.choice([PROG_AND, PROG_OR])))
            depth -= 1
            if kind == "any" and rng.random() < 0.1:
                prog.append(PROG_NOT)
    while depth > 1:
        prog.append(PROG_AND)
        depth -= 1
    return prog


def with_comparisons(rng: np.random.Generator, prog: list[int]) -> tuple[list[int], list[int]]:
    """A program some of whose terms are compared with values instead; and where it says so."""
    out: list[int] = []
    places = []
    for op in prog:
        if op < 0 or rng.random() < 0.5:
            out.append(op)
            continue
        places.append(len(out))
        key = rng.integers(0, 256, int(rng.choice([0, 1, 7, 8, 9, 17])), np.uint8).tobytes()
        out += write_comparison(op, int(rng.integers(5)), int(rng.integers(1, 5)), key)
    return out, places


def draw_notes(rng: np.random.Generator, n: int) -> list[int]:
    """The notes of some of n terms as they stand behind a program, or nothing."""
    watched = [i for i in range(n) if rng.random() < 0.3]
    pairs = [v for i in watched for v in (i | int(rng.integers(1, 3)) << 8, 2 + i)]
    return [*pairs, PROG_NOTES - len(watched)] if watched else []
