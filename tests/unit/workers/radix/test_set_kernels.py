"""The codes of sets of equalities, against the terms of objects themselves."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.protocol.frame import U64
from ps2stream.protocol.rows import PROG_AND, PROG_NOTES, PROG_OR, ExpressionForm
from ps2stream.workers.radix import arrays as radix_arrays
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.arrays import (
    make_arrays,
    make_match_scratch,
    make_room,
    make_update_scratch,
)
from ps2stream.workers.radix.check_kernels import bound_row, describe_check
from ps2stream.workers.radix.pointers import (
    list_addresses,
    point_addresses,
    point_objects,
    point_rows,
    pointer_to,
)
from ps2stream.workers.radix.set_kernels import (
    LAST_CODE,
    TERMS,
    code_set,
    count_sets,
    describe_set,
    has_codes,
    mark_sets,
)
from tests.support.postings import VOCABULARY, columns, random_query

STACK = make_update_scratch(1).stack
EQUAL = 5 << 8  # the kind of a term in notes


@njit
def call_code(bands: Any, terms: Any, bits: Any) -> Any:
    return code_set(pointer_to(bands), pointer_to(terms), 0, bits)


@njit
def call_count(bands: Any) -> Any:
    return count_sets(pointer_to(bands)), has_codes(pointer_to(bands))


@njit
def call_describe(fields: Any, r: int, i: int, stack: Any, bands: Any) -> Any:
    rows, room = point_rows(fields), pointer_to(stack)
    bounds = bound_row(rows, r, room)
    mode, prints = describe_check(rows, r, bounds, i, room)
    return describe_set(rows, r, bounds, i, room, pointer_to(bands), mode, prints)


@njit
def call_mark(addresses: Any, objects: Any, n: int) -> None:
    index, scratch, _ = point_addresses(addresses)
    mark_sets(0, n, point_objects(objects), index, scratch)


def code(bands: U64, terms: list[int]) -> int:
    """The code of the set of these terms, between others that are none of it."""
    column = np.array([1, *terms, 2**64 - 1], np.uint64)
    return int(call_code(bands, column, np.uint64((1 << len(terms)) - 1 << 1)))


def mark(bands: U64, objects: list[list[int]]) -> list[set[int]]:
    """The codes that objects with these terms have."""
    n = len(objects)
    off = np.cumsum([0, *map(len, objects)])
    term = np.array([t for row in objects for t in sorted(row)], np.uint64)
    scratch = make_match_scratch(64, 64, 16, 16, 16)
    scratch.masks[:, [31, 47]] = 1 << 15  # what was left behind
    for i, row in enumerate(objects):
        for t in row:
            print_ = int(layout.fingerprint(np.uint64(t)))
            scratch.prints[i, print_ >> 6] |= np.uint64(1 << (print_ & 63))
    nothing = np.zeros(n + 1, np.int64), np.zeros(0, np.uint64)
    columns_ = np.zeros(0), np.zeros(0), off, term, np.zeros(0, np.uint8), *nothing
    addresses = list_addresses(make_arrays()._replace(bands=bands), scratch, make_room(1))
    call_mark(addresses, columns_, n)
    bits = np.unpackbits(scratch.prints.view(np.uint8).reshape(64, -1), axis=1, bitorder="little")
    may, sure = bits[:n, 256:512], bits[:n, 512:768]
    assert (may[:, 240:] == sure[:, 240:]).all()
    return [set(np.flatnonzero(row[240:]) + 240) for row in may]


@pytest.mark.takes_turns
def test_an_object_has_the_codes_of_the_sets_whose_terms_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(radix_arrays, "SAMPLED", 1)
    rng, bands = np.random.default_rng(1), make_arrays().bands
    assert call_count(bands) == (0, False)
    drawn: U64 = rng.integers(1, 1 << 40, 8).astype(np.uint64)
    sets: dict[int, set[int]] = {}
    for size in [1, 1, 2, 2, 2, 3, 4, 4] * 8:
        terms = sorted(rng.choice(drawn, size, replace=False).tolist())
        found = code(bands, terms)
        if found:
            assert sets.setdefault(found, set(terms)) == set(terms)
        else:
            assert set(terms) not in sets.values()
            assert len(sets) == layout.SETS
    assert set(sets) == set(range(LAST_CODE - layout.SETS + 1, LAST_CODE + 1))
    assert {len(terms) for terms in sets.values()} == {1, 2, 3, TERMS}
    assert call_count(bands) == (layout.SETS, True)
    objects = [
        sorted({*drawn[rng.random(8) < 0.6].tolist(), *rng.integers(0, 1 << 40, n).tolist()})
        for n in rng.integers(0, 20, 60)
    ]
    found_codes = mark(bands, objects)
    for row, codes in zip(objects, found_codes, strict=True):
        assert codes == {c for c, terms in sets.items() if terms <= set(row)}
    assert len({len(codes) for codes in found_codes}) > 3


def test_a_set_has_a_code_once_a_sample_of_queries_had_it() -> None:
    bands = make_arrays().bands
    for _ in range(layout.SAMPLE - 1):
        assert code(bands, [5, 7]) == code(bands, [5]) == 0
    assert [code(bands, [5, 7]), code(bands, [5])] == [LAST_CODE, LAST_CODE - 1]
    assert [code(bands, [5, 7]), code(bands, [5]), code(bands, [7])] == [
        LAST_CODE,
        LAST_CODE - 1,
        0,
    ]


def test_what_few_queries_need_does_not_crowd_out_a_set() -> None:
    """A stream of sets that hardly repeat, of which one query of eight has the same."""
    rng, bands, seen = np.random.default_rng(2), make_arrays().bands, Counter[bool]()
    for k in range(4000):
        common = k % 8 == 0
        terms = [5, 7] if common else sorted(rng.integers(10, 1 << 40, 2).tolist())
        seen[common] += code(bands, terms) > 0
    assert seen[False] == 0
    assert seen[True] > 350


def test_a_term_of_zero_is_in_no_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radix_arrays, "SAMPLED", 1)
    bands = make_arrays().bands
    assert int(call_code(bands, np.array([0, 5], np.uint64), np.uint64(3))) == 0
    assert code(bands, [5]) == LAST_CODE


@pytest.mark.takes_turns
@pytest.mark.parametrize("seed", range(4))
def test_what_a_posting_says_with_a_code_is_true_of_every_object(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radix_arrays, "SAMPLED", 1)
    rng, modes = np.random.default_rng(seed), Counter[int]()
    for k in range(400):
        query = random_query(rng, k + 1)
        equal = [i for i in range(len(query.terms)) if rng.random() < 0.7]
        if k % 2:  # one of some words, and all equalities
            n = int(rng.integers(2, 6))
            drawn = rng.permutation(n).tolist()
            words, equal = drawn[: n // 2 + 1], drawn[n // 2 + 1 :]
            query.form, query.terms = ExpressionForm.PROGRAM, sorted(VOCABULARY[3 : 3 + n])
            query.post = sum(1 << i for i in words)
            query.prog = [words[0], *(v for i in words[1:] for v in (i, PROG_OR))]
            query.prog += [v for i in equal for v in (i, PROG_AND)]
        query.notes = [v for i in equal for v in (i | EQUAL, 0)]
        query.notes += [PROG_NOTES - len(equal)] if equal else []
        posted = [i for i in range(len(query.terms)) if query.post >> i & 1]
        if query.form == ExpressionForm.ALL:
            posted = posted[:1]  # which all that match have
        rows = columns([query])[0]
        fields = (
            rows.kind, rows.handle, rows.session, rows.form, rows.post, rows.term_off, rows.term,
            rows.prog_off, rows.prog, rows.box_off, rows.box, rows.shape, rows.geom_off, rows.geom,
        )  # fmt: skip
        for i in posted:
            bands = make_arrays().bands
            mode, prints = (int(v) for v in call_describe(fields, 0, i, STACK, bands))
            first, second = prints & 255, prints >> 8
            used = int(call_count(bands)[0])
            if not used or LAST_CODE not in (first, second):
                continue
            at = layout.BAND_ROW * layout.BANDS
            terms = {int(t) for t in bands.ravel()[at : at + TERMS] if t}
            modes[mode] += 1
            for has in itertools.product([False, True], repeat=len(query.terms)):
                held = {t for t, there in zip(query.terms, has, strict=True) if there}
                if not has[i]:
                    continue
                emits = query.satisfied(held) and i == next(j for j in posted if has[j])
                if not terms <= held:
                    assert not emits
                elif mode == layout.FREE:
                    assert (emits, second) == (True, 0)
                elif mode == layout.ANY:
                    others = [int(layout.fingerprint(np.uint64(t))) for t in held]
                    assert first < second
                    assert emits or first in others
                else:
                    assert (mode, first, second) == (layout.GENERAL, LAST_CODE, 0)
                    assert emits or any(has[j] for j in posted if j < i)
    assert set(modes) == {layout.FREE, layout.ANY, layout.GENERAL}
