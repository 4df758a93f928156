"""Long WIDE lists that are divided by the codes of comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.protocol.programs import write_comparison
from ps2stream.protocol.rows import PROG_AND, PROG_NOT, PROG_NOTES, PROG_OR, ExpressionForm
from ps2stream.workers.arrays import MatchedObjects
from ps2stream.workers.index import ALL_TERMS
from ps2stream.workers.radix import arrays as radix_arrays
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.arrays import make_update_scratch
from ps2stream.workers.radix.band_kernels import BUCKETS, describe_posting, mark_bands
from ps2stream.workers.radix.check_kernels import bound_row
from ps2stream.workers.radix.division_kernels import (
    describe_stored,
    find_code,
    list_divided_keys,
    other_list,
)
from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.pointers import (
    list_addresses,
    point_addresses,
    point_objects,
    point_rows,
    point_updated,
    pointer_to,
)
from ps2stream.workers.radix.probe_kernels import place_objects
from tests.support.postings import GRID, Query, columns

WORLD = (-180.0, -90.0, 180.0, 90.0)
MAG, DEPTH, WORD, OTHER = 5, 7, 3, 9
GREATER, UNEQUAL = 2, 4


@njit
def call_stored(fields: Any, slot: int, term: Any) -> Any:
    index = point_updated(fields)
    mode, prints = describe_stored(index, slot, term, np.int64(-1), np.int64(-1))
    return find_code(index, slot, term), mode, prints, other_list(index, slot, term)


@njit
def call_described(fields: Any, r: int, i: int, stack: Any, bands: Any) -> Any:
    rows, room = point_rows(fields), pointer_to(stack)
    return describe_posting(rows, r, bound_row(rows, r, room), i, room, pointer_to(bands))


@njit
def call_keys(addresses: Any, objects: Any, count: int, size: int) -> Any:
    index, scratch, _ = point_addresses(addresses)
    of = point_objects(objects)
    place_objects(0, count, of, scratch)
    mark_bands(0, count, of, index, scratch)
    return list_divided_keys(0, count, True, size, 0, of, index, scratch)


def key_of(number: int) -> bytes:
    return (number << 40).to_bytes(8)


def compare(handle: int, parts: list[Any], terms: tuple[int, ...] = (MAG,)) -> Query:
    """A query of the whole world, posted under MAG: terms by number, comparisons (term, operator,
    number), and operators of a program."""
    prog: list[int] = []
    for part in parts:
        if isinstance(part, int):
            prog.append(part)
        else:
            term, order, number = part
            prog += write_comparison(terms.index(term), order, 1, key_of(number))
    mine = terms.index(MAG)
    notes = [mine | 4 << 8, 0, PROG_NOTES - 1]
    query = Query(handle, ExpressionForm.PROGRAM, list(terms), 1 << mine, [WORLD], 6, prog, notes)
    query.tags = {(6 << 28, MAG)}
    return query


def make_index(monkeypatch: pytest.MonkeyPatch, sampled: int, divided: int) -> RadixGI2:
    monkeypatch.setattr(radix_arrays, "SAMPLED", sampled)
    monkeypatch.setattr(radix_arrays, "DIVIDED", divided)
    return RadixGI2(GRID)


def lists_of(index: RadixGI2) -> list[int]:
    """The number of postings of each list, ascending."""
    arrays, lengths = index._arrays, []
    for bucket in arrays.directory.tolist():
        for word in bucket[layout.ENTRIES :]:
            ref, length = word & 0xFFFFFFFF, 0
            while ref:
                head = int(arrays.nodes[ref])
                ref, length = head & 0xFFFFFFFF, length + (head >> 32 & 255)
            lengths.append(length)
    return sorted(n for n in lengths if n)


def modes_of(index: RadixGI2) -> set[int]:
    """The modes of all postings."""
    arrays, modes = index._arrays, set[int]()
    for bucket in arrays.directory.tolist():
        for word in bucket[layout.ENTRIES :]:
            ref = word & 0xFFFFFFFF
            while ref:
                head = int(arrays.nodes[ref])
                at = 2 * (ref + 1) + int(layout.CAPACITY[head >> 40 & 127])
                words = arrays.n32[at : at + (head >> 32 & 255)]
                modes |= set((words >> np.uint32(layout.SLOT_BITS)).tolist())
                ref = head & 0xFFFFFFFF
    return modes


def match(index: RadixGI2, lsn: int, number: int, words: tuple[int, ...] = ()) -> list[int]:
    """The handles that an object with this MAG, and DEPTH 50, matches."""
    term = np.array(sorted({MAG, DEPTH, *words}), np.uint64)
    value = [MAG, 1 << 32 | 8, number << 40, DEPTH, 1 << 32 | 8, 50 << 40]
    off, of = np.array([0, len(term)]), np.array([0, len(value)])
    found = index.match(
        lsn, np.array([8.5]), np.array([47.4]), off, term, ALL_TERMS, of, np.array(value, np.uint64)
    )
    return sorted(found.handle.tolist())


@pytest.mark.takes_turns
def test_a_long_list_is_divided_and_met_where_codes_may_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = make_index(monkeypatch, 16, 40)
    numbers = dict(enumerate(np.random.default_rng(1).permutation(400).tolist(), 1))
    queries = [compare(h, [(MAG, GREATER, number)]) for h, number in numbers.items()]
    index.insert(*columns(queries[:40]))
    assert lists_of(index) == [40]
    index.insert(*columns(queries[40:]))
    divided = lists_of(index)
    assert sum(divided) == 400
    assert len(divided) == BUCKETS  # what came before is divided too
    assert modes_of(index) == {layout.FREE}  # and has codes, also if there were no bounds then
    index.insert(*columns([compare(401, [(MAG, GREATER, numbers[7])])]))
    assert lists_of(index) == divided  # it shares the posting of the one that it is like
    index.delete(np.array([401], np.int64), np.array([402], np.int64))
    for number in (0, 1, 17, 200, 400, 900):
        want = [h for h, wanted in numbers.items() if number > wanted]
        assert match(index, 500, number) == want
    lists = []
    for number in (0, 200, 900):
        objects = MatchedObjects(
            np.array([8.5]), np.array([47.4]), np.array([0, 1]), np.array([MAG], np.uint64),
            ALL_TERMS, np.array([0, 3]), np.array([MAG, 1 << 32 | 8, number << 40], np.uint64),
        )  # fmt: skip
        addresses = list_addresses(index._arrays, index._scratch, index._room)
        lists.append(call_keys(addresses, tuple(objects), 1, len(index._arrays.directory)))
    assert lists[0] <= 1
    assert 1 < lists[1] < BUCKETS
    assert lists[2] == BUCKETS
    gone = np.array([q.handle for q in queries[::2]], np.int64)
    index.delete(gone, gone + 500)
    index.purge(1000)
    while index.sweep(1000):
        pass
    assert sum(lists_of(index)) == 200
    assert match(index, 1000, 50) == [
        h for h, wanted in numbers.items() if h % 2 == 0 and wanted < 50
    ]


def test_what_cannot_be_divided_stays_in_the_list_of_its_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = make_index(monkeypatch, 1, 0)
    others = [
        compare(1, [(MAG, UNEQUAL, 7)]),
        compare(2, [(MAG, GREATER, 7), (DEPTH, GREATER, 7), PROG_OR], (MAG, DEPTH)),
        compare(3, [0], (MAG,)),
    ]
    index.insert(*columns(others))
    index.insert(*columns([compare(h, [(MAG, GREATER, h)]) for h in range(4, 20)]))
    assert sorted(match(index, 30, 8)) == [1, 2, 3, 4, 5, 6, 7]
    assert 3 in lists_of(index)


def test_a_query_with_a_word_widens_what_its_band_may_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its comparison has no code in the posting, and yet a list."""
    index = make_index(monkeypatch, 16, 20)
    index.insert(*columns([compare(h, [(MAG, GREATER, 100 + h)]) for h in range(1, 41)]))
    index.insert(*columns([compare(41, [0, (MAG, GREATER, 1), PROG_AND], (WORD, MAG))]))
    assert match(index, 50, 2, (WORD,)) == [41]
    assert match(index, 50, 2) == []
    assert match(index, 50, 1, (WORD,)) == []


@pytest.mark.takes_turns(0)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_stored_is_described_like_its_row(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, index = np.random.default_rng(seed), make_index(monkeypatch, 1, 1024)
    terms, seen = (WORD, MAG, DEPTH, OTHER), set[int]()
    for handle in range(1, 200):
        parts: list[Any] = [(MAG, int(rng.integers(0, 5)), int(rng.integers(0, 99)))]
        for _ in range(int(rng.integers(0, 4))):
            way = rng.random()
            if way < 0.6:
                attribute = (MAG, DEPTH)[rng.integers(2)]
                parts.append((attribute, int(rng.integers(0, 5)), int(rng.integers(0, 99))))
            elif way < 0.75:
                parts.append(0)
            elif way < 0.9:
                parts += [3, PROG_NOT]
            else:
                parts += [1, 0, PROG_OR]
            parts.append(PROG_AND)
        query = compare(handle, parts, terms)
        rows, *tags = columns([query])
        index.insert(rows, *tags)
        fields = (
            rows.kind, rows.handle, rows.session, rows.form, rows.post, rows.term_off, rows.term,
            rows.prog_off, rows.prog, rows.box_off, rows.box, rows.shape, rows.geom_off, rows.geom,
        )  # fmt: skip
        stack, bands = make_update_scratch(1).stack, index._arrays.bands
        mode, prints = call_described(fields, 0, 1, stack, bands)
        slots = np.flatnonzero(index._arrays.slots_i[:, layout.HANDLE] == handle)
        if not len(slots):  # it is like another one
            continue
        slot = int(slots[0])
        code, own, codes, other = call_stored(tuple(index._arrays), slot, np.uint64(MAG))
        assert other == MAG
        seen.add(code // BUCKETS)
        if (own, codes) == (-1, -1):  # it has none, or fingerprints of terms that it needs
            assert mode != layout.FREE
            assert mode == layout.ALL or prints == 0 or prints >> 8 == 0
        else:
            assert (own, codes) == (mode, prints)
            seen.add(-mode)
    assert {0, 1, -layout.GENERAL} <= seen
