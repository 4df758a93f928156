"""What codes say of comparisons, against the comparisons themselves."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.protocol.frame import U64
from ps2stream.protocol.programs import write_comparison
from ps2stream.protocol.rows import PROG_AND, PROG_NOT, PROG_NOTES, PROG_OR, ExpressionForm
from ps2stream.workers.radix import arrays as radix_arrays
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.arrays import (
    make_arrays,
    make_match_scratch,
    make_room,
    make_update_scratch,
)
from ps2stream.workers.radix.band_kernels import (
    BUCKETS,
    USED,
    code_comparisons,
    describe_posting,
    mark_bands,
)
from ps2stream.workers.radix.check_kernels import bound_row
from ps2stream.workers.radix.pointers import (
    list_addresses,
    point_addresses,
    point_objects,
    point_rows,
    pointer_to,
)
from tests.support.postings import Query, columns

STACK = make_update_scratch(1).stack
BOX = (1.0, 1.0, 2.0, 2.0)
ORDERS = [operator.lt, operator.le, operator.gt, operator.ge, operator.ne]
KEYS = [b"", b"\0", b"a", b"a\0", b"abcdefgh", b"abcdefgh\0", b"abcdefghi", b"\xff" * 9]


@njit
def call_code(prog: Any, terms: Any, bands: Any) -> Any:
    found, without = code_comparisons(
        pointer_to(prog), 0, prog.shape[0], pointer_to(terms), 0, pointer_to(bands)
    )
    return found.one, found.other, without


@njit
def call_mark(addresses: Any, objects: Any, n: int) -> None:
    index, scratch, _ = point_addresses(addresses)
    mark_bands(0, n, point_objects(objects), index, scratch)


@njit
def call_describe(fields: Any, r: int, i: int, stack: Any, bands: Any) -> Any:
    rows, room = point_rows(fields), pointer_to(stack)
    return describe_posting(rows, r, bound_row(rows, r, room), i, room, pointer_to(bands))


def compared(type_: int, key: bytes, order: int, wanted: tuple[int, bytes]) -> bool:
    return type_ == wanted[0] and ORDERS[order](key, wanted[1])


def value_words(values: dict[int, tuple[int, bytes]]) -> list[int]:
    out = []
    for term, (type_, key) in values.items():
        padded = key + bytes(-len(key) % 8)
        out += [term, type_ << 32 | len(key)]
        out += [int.from_bytes(padded[k : k + 8]) for k in range(0, len(padded), 8)]
    return out


def mark(bands: U64, objects: list[dict[int, tuple[int, bytes]]]) -> tuple[list[Any], list[Any]]:
    """The codes of the comparisons that may and that surely do hold for objects, by object."""
    words = [value_words(values) for values in objects]
    off = np.cumsum([0, *map(len, words)])
    value = np.array([w for row in words for w in row], np.uint64)
    n = len(objects)
    nothing = np.zeros(0), np.zeros(0), np.zeros(n + 1, np.int64), np.zeros(0, np.uint64)
    scratch = make_match_scratch(64, 64, 16, 16, 16)
    scratch.prints[:] |= np.uint64(1 << 63)  # what was left behind
    arrays = make_arrays()._replace(bands=bands)
    addresses = list_addresses(arrays, scratch, make_room(1))
    call_mark(addresses, (*nothing, np.zeros(0, np.uint8), off, value), n)
    bits = np.unpackbits(scratch.prints.view(np.uint8).reshape(64, -1), axis=1, bitorder="little")
    return (
        [set(np.flatnonzero(row[256:512]).tolist()) for row in bits[:n]],
        [set(np.flatnonzero(row[512:768]).tolist()) for row in bits[:n]],
    )


def random_value(rng: np.random.Generator) -> tuple[int, bytes]:
    """Doubles, mostly, with some equal ones; texts that differ late."""
    if rng.random() < 0.7:
        return 1, np.uint64(rng.integers(0, 50) << 40).byteswap().tobytes()
    return int(rng.integers(1, 4)), KEYS[rng.integers(len(KEYS))]


@pytest.mark.takes_turns(1)
@pytest.mark.parametrize("sampled", [1, 16, 41, 64])
def test_codes_say_only_what_is_true_of_comparisons(
    sampled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radix_arrays, "SAMPLED", sampled)
    rng, bands = np.random.default_rng(sampled), make_arrays().bands
    terms: U64 = np.array([5, 7, 9], np.uint64)
    objects = [
        {int(t): random_value(rng) for t in rng.permutation([5, 7, 8])[: rng.integers(0, 4)]}
        for _ in range(60)
    ]
    coded, seen = [], []
    for _ in range(4000):
        one = int(rng.integers(3)), int(rng.integers(5)), random_value(rng)
        prog = np.array(write_comparison(one[0], one[1], *one[2]), np.int16)
        code, other, without = (int(v) for v in call_code(prog, terms, bands))
        assert (other, bool(code), code < BUCKETS) == (0, not without, not code)
        if code:
            coded.append((code, one))
    assert int(bands[0, USED]) == layout.BANDS - 1
    may, sure = mark(bands, objects)
    for code, (term, order, wanted) in coded:
        for i, values in enumerate(objects):
            value = values.get(int(terms[term]))
            holds = value is not None and compared(*value, order, wanted)
            assert sure[i] <= may[i]
            assert holds or code not in sure[i]
            assert code in may[i] or not holds
            seen.append((code in may[i], code in sure[i], holds))
    assert len(set(seen)) == 4
    assert len(coded) > 1000
    assert sum(m and not s for m, s, _ in seen) < 0.35 * len(seen)


def test_a_band_of_equal_comparisons_decides_all_but_the_equal_values() -> None:
    bands, terms = make_arrays().bands, np.array([5], np.uint64)
    wanted = 1, (10 << 40).to_bytes(8)
    prog = np.array(write_comparison(0, 2, *wanted), np.int16)
    codes = [call_code(prog, terms, bands)[0] for _ in range(layout.SAMPLE + 1)]
    assert [bool(code) for code in codes] == [False] * layout.SAMPLE + [True]
    objects = [{5: (1, (k << 40).to_bytes(8))} for k in (9, 10, 11)]
    may, sure = mark(bands, objects)
    assert [codes[-1] in of for of in may] == [False, True, True]
    assert [codes[-1] in of for of in sure] == [False, False, True]


def test_the_codes_of_two_are_those_of_the_smallest_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(radix_arrays, "SAMPLED", 16)
    bands, terms = make_arrays().bands, np.array([5, 7, 9], np.uint64)
    for number in range(16):
        for term in range(3):
            key = (number << 40).to_bytes(8)
            call_code(np.array(write_comparison(term, 2, 1, key), np.int16), terms, bands)
    prog: list[int] = []
    for term, number in enumerate((3, 9, 6)):
        prog += write_comparison(term, 2, 1, (number << 40).to_bytes(8))
    one, other, without = call_code(np.array(prog, np.int16), terms, bands)
    assert (one, other, without) == (2 * BUCKETS + 9, 3 * BUCKETS + 6, 1)


def fields_of(query: Query) -> tuple[Any, ...]:
    rows = columns([query])[0]
    return (
        rows.kind, rows.handle, rows.session, rows.form, rows.post, rows.term_off, rows.term,
        rows.prog_off, rows.prog, rows.box_off, rows.box, rows.shape, rows.geom_off, rows.geom,
    )  # fmt: skip


@pytest.mark.takes_turns(1)
@pytest.mark.parametrize(
    ("parts", "posted", "described"),
    [
        ([0, "x", PROG_AND], [0], {0: (layout.FREE, 1, True)}),
        ([0, "x", PROG_AND, "y", PROG_AND], [0], {0: (layout.FREE, 2, True)}),
        ([0, "x", PROG_AND, "y", PROG_AND, "z", PROG_AND], [0], {0: (layout.GENERAL, 2, False)}),
        (["x"], [2], {2: (layout.FREE, 1, True)}),
        ([0, "x", PROG_AND, "!", PROG_AND], [0], {0: (layout.GENERAL, 1, False)}),
        (
            [0, 1, PROG_OR, "x", PROG_AND],
            [0, 1],
            {0: (layout.FREE, 1, True), 1: (layout.GENERAL, 1, True)},
        ),
        ([0, 1, PROG_NOT, PROG_AND, "x", PROG_AND], [0], {0: (layout.GENERAL, 1, False)}),
        ([0, 1, PROG_AND, "x", PROG_AND], [0], {0: (layout.ALL, 2, None)}),
        ([0, "x", PROG_OR], [0, 2], {0: (layout.FREE, 0, None), 2: (layout.GENERAL, 0, None)}),
    ],
    ids=["one", "two", "three", "alone", "unequal", "either", "not", "both", "or"],
)
def test_a_posting_has_codes_where_they_say_most(
    parts: list[Any],
    posted: list[int],
    described: dict[int, tuple[int, int, bool | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the number of its term: the mode, how many codes or fingerprints there are, and whether
    the first is not the lesser."""
    monkeypatch.setattr(radix_arrays, "SAMPLED", 1)
    bands, terms = make_arrays().bands, [3, 4, 5, 7, 9]
    places = {"x": (2, 2), "y": (3, 0), "z": (4, 2), "!": (4, 4)}
    prog: list[int] = []
    for part in parts:
        if isinstance(part, int):
            prog.append(part)
        else:
            term, order = places[part]
            prog += write_comparison(term, order, 1, bytes(8))
    for term, order in places.values():
        own = np.array(write_comparison(term, order, 1, bytes(8)), np.int16)
        call_code(own, np.array(terms, np.uint64), bands)
    post = sum(1 << i for i in posted)
    query = Query(1, ExpressionForm.PROGRAM, terms, post, [BOX], prog=prog)
    query.notes = [2, 4 << 8, 3, 4 << 8, 4, 4 << 8, PROG_NOTES - 3]
    found = {}
    for i in posted:
        mode, codes = (int(v) for v in call_describe(fields_of(query), 0, i, STACK, bands))
        first, second = codes & 255, codes >> 8
        falls = first > second if mode != layout.ALL and codes else None
        found[i] = mode, bool(first) + bool(second), falls
    assert found == described
