"""Programs of queries for the tests: drawn, and evaluated where not all terms are known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ps2stream.protocol.rows import PROG_AND, PROG_NOT, PROG_NOTES, PROG_OR


def holds(prog: list[int], known: Mapping[int, bool]) -> bool | None:
    """Whether a program holds where these terms are there or not, or None if that depends on
    others (or seems to, as each use of a term is looked at for itself)."""
    stack: list[bool | None] = []
    for op in prog:
        if op >= 0:
            stack.append(known.get(op))
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


def draw_notes(rng: np.random.Generator, n: int) -> list[int]:
    """The notes of some of n terms as they stand behind a program, or nothing."""
    watched = [i for i in range(n) if rng.random() < 0.3]
    pairs = [v for i in watched for v in (i | int(rng.integers(1, 3)) << 8, 2 + i)]
    return [*pairs, PROG_NOTES - len(watched)] if watched else []
