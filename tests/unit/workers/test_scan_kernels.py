"""An index while units come and go: a query is found under the tags that it was given, less those
that were dropped, whatever else happens in between; and nothing is left of what went."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from ps2stream.protocol.frame import U32, U64
from ps2stream.protocol.rows import NEVER
from ps2stream.workers import gi2, scan_kernels
from ps2stream.workers import layout as kl
from ps2stream.workers.gi2 import GI2
from ps2stream.workers.index import Index, StoredCensus
from ps2stream.workers.indexes import IndexFactory
from ps2stream.workers.radix import layout as rl
from ps2stream.workers.radix.gi2 import RadixGI2
from tests.support.postings import (
    GRID,
    VOCABULARY,
    Query,
    check,
    columns,
    draw_query,
    objects,
    plain_queries,
    random_query,
)
from tests.support.programs import conjunction_of
from tests.support.shards import place_of
from tests.support.shortening import choose_first

Tag = tuple[int, int]


class Twin:
    """An index, and what should be in it: queries with the tags that they stand under here.
    `elsewhere` are the others."""

    def __init__(self, seed: int, new_index: IndexFactory) -> None:
        self.rng = np.random.default_rng(seed)
        self.new_index = new_index
        self.index = new_index(GRID)
        self.queries: list[Query] = []
        self.drawn: list[Query] = []
        self.elsewhere: dict[int, set[Tag]] = {}
        self.sizes: dict[int, int] = {}
        self.lsn = self.watermark = 0

    def some(self, queries: list[Query], share: float) -> list[Query]:
        return [q for q in queries if self.rng.random() < share]

    def give(self, query: Query) -> Query:
        """The query, with some tags that it does not stand under yet."""
        share = self.rng.choice([0.0, 0.3, 1.0], p=[0.1, 0.5, 0.4])
        there = sorted(self.elsewhere[query.handle])
        given = {t for t in there if self.rng.random() < share}
        self.elsewhere[query.handle] -= given
        query.tags |= given
        return dataclasses.replace(query, deleted=NEVER, tags=given)

    def insert(self) -> None:
        new = []
        for _ in range(int(self.rng.integers(0, 15))):
            self.lsn += 1
            query = draw_query(self.rng, self.lsn, self.drawn)
            self.elsewhere[query.handle], query.tags = query.tags, set()
            new.append(query)
        self.queries += new
        # What was deleted up to the watermark may be gone, or go with any sweep.
        there = [q for q in self.some(self.queries, 0.1) if q.tags]
        repeated = [q for q in there if q.deleted > self.watermark]
        again = [
            dataclasses.replace(q, tags=q.tags | self.elsewhere[q.handle]) for q in repeated
        ]  # stays as it is
        self.index.insert(*columns([self.give(q) for q in self.some(new, 0.8)] + again))

    def extend(self) -> None:
        """Also what was never here, what waits, and what is long dead: it dies again."""
        chosen = self.some(self.queries, 0.2)
        self.index.extend(*columns([self.give(q) for q in chosen]))
        self.end([q for q in chosen if q.deleted < NEVER], 0)

    def delete(self) -> None:
        gone = self.some([q for q in self.queries if q.deleted == NEVER], 0.2)
        for query in gone:
            self.lsn += 1
            query.deleted = self.lsn
        self.end(gone, 0)
        self.end(self.some([q for q in self.queries if q.deleted < NEVER], 0.3), 7)
        self.end([Query(10**12, gone[0].form, [], 0, [])] if gone else [], 0)

    def end(self, queries: list[Query], later: int) -> None:
        """later: added to the LSNs of those that have ended already, which is not heard."""
        both = queries + self.some(queries, 0.2)
        self.index.delete(
            np.array([q.handle for q in both], np.int64),
            np.array([min(q.deleted, NEVER - later) + later for q in both], np.int64),
        )

    def purge(self) -> None:
        self.watermark = int(self.rng.integers(self.watermark, self.lsn + 1))
        self.let_go()

    def let_go(self) -> None:
        self.index.purge(self.watermark)
        for query in self.queries:
            if query.deleted <= self.watermark:
                self.elsewhere[query.handle] |= query.tags
                query.tags = set()

    def sweep(self) -> None:
        self.index.sweep(int(self.rng.integers(0, 300)))

    def drop(self) -> None:
        share, by = self.rng.choice([0.0, 0.5, 0.9, 1.0], p=[0.1, 0.3, 0.5, 0.1]), VOCABULARY
        cells = self.rng.random(1 << 9) < share
        terms = dict(zip(by, (self.rng.random(len(by)) < share).tolist(), strict=True))
        asked: list[Tag] = []

        def keep(cell: U32, term: U64) -> NDArray[np.bool_]:
            assert cell.dtype == np.uint32
            assert term.dtype == np.uint64
            asked.extend(zip(cell.tolist(), term.tolist(), strict=True))
            return np.array(
                [bool(cells[c % 512] or terms[t]) for c, t in zip(cell, term, strict=True)], bool
            )

        self.index.drop(keep)
        held = {tag for q in self.queries if q.deleted > self.watermark for tag in q.tags}
        assert len(set(asked)) == len(asked) or isinstance(self.index, RadixGI2)
        assert held <= set(asked)
        for query in self.queries:
            gone = {(c, t) for c, t in query.tags if not (cells[c % 512] or terms[t])}
            query.tags -= gone
            self.elsewhere[query.handle] |= gone

    def drop_shards(self) -> None:
        """Some of the postings of all units, by the places of their queries."""
        turn, asked = int(self.rng.integers(0, 3)), set()

        def keep(cell: U32, term: U64, place: U64) -> NDArray[np.bool_]:
            assert place.dtype == np.uint64
            rows = list(zip(cell.tolist(), term.tolist(), place.tolist(), strict=True))
            asked.update(rows)
            return np.array([is_kept(*row) for row in rows], bool)

        def is_kept(cell: int, term: int, place: int) -> bool:
            return (cell + term + place) % 3 != turn

        self.index.drop_shards(keep)
        for query in self.queries:
            place = place_of(query.boxes[0])
            held = query.tags if query.deleted > self.watermark else set()
            assert {(c, t, place) for c, t in held} <= asked
            gone = {(c, t) for c, t in query.tags if not is_kept(c, t, place)}
            query.tags -= gone
            self.elsewhere[query.handle] |= gone

    def restart(self) -> None:
        """Go on from a snapshot."""
        parts = {name: np.array(part) for name, part in self.index.hold().items()}
        self.index = self.new_index(GRID, parts)

    def match(self) -> int:
        as_of = int(self.rng.integers(self.watermark, self.lsn + 1))
        return check(self.index, self.queries, as_of, objects(self.rng, 10))

    def check_sizes(self) -> None:
        live = [q for q in self.queries if q.deleted == NEVER and q.tags]
        assert self.index.stats().live == len(live)
        assert self.index.postings(self.lsn) == sum(len(q.tags) for q in live)
        as_of = int(self.rng.integers(self.watermark, self.lsn + 1))
        then = [q for q in self.queries if q.handle <= as_of < q.deleted]
        assert self.index.postings(as_of) == sum(len(q.tags) for q in then)
        level = int(self.rng.integers(0, 4))
        queries, held = Counter[int](), Counter[int]()
        for query in live:
            if query.handle not in self.sizes:
                flat = isinstance(self.index, GI2)
                self.sizes[query.handle] = flat_bytes(query) if flat else radix_bytes(query)
            size = self.sizes[query.handle]
            for cell, _ in query.tags:
                queries[above(cell, level)] += 1
                held[above(cell, level)] += size
        census = counted(self.index.census(1 + self.lsn % 8, level))
        assert len(set(census.cell.tolist())) == len(census.cell)
        assert dict(zip(census.cell.tolist(), census.queries.tolist(), strict=True)) == queries
        assert dict(zip(census.cell.tolist(), census.bytes.tolist(), strict=True)) == held
        if self.rng.random() < 0.3:
            self.let_go()
            self.index.sweep(1 << 20)
            here = [q for q in self.queries if q.tags]
            postings = sum(len(q.tags) for q in here)
            assert self.index.stats()[:3] == (len(live), len(here) - len(live), postings)


def counted(census: Iterator[StoredCensus | None]) -> StoredCensus:
    *steps, last = census
    assert not any(steps)
    assert last is not None
    return last


def above(cell: int, level: int) -> int:
    own, line = cell >> 28, cell & (1 << 28) - 1
    if own >= level:
        return cell
    row, column = divmod(line, GRID.columns(own))
    for _ in range(own, level):
        row, column = row // 4, column // 4
    return level << 28 | row * GRID.columns(level) + column


def flat_bytes(query: Query) -> int:
    """What a flat GI2 that holds nothing else keeps of a query with one posting."""
    index = GI2(GRID)
    before = index._state[kl.POOL_TOP]
    index.insert(*columns([dataclasses.replace(query, tags={min(query.tags)})]))
    return 64 + 20 + 8 * int(index._state[kl.POOL_TOP] - before)


def radix_bytes(query: Query) -> int:
    """The slot and a posting, the words of a long expression, and those of a geometry."""
    size, n, words = 64 + 16, len(query.terms), len(query.prog)
    if n > 2 or words:
        if words and conjunction_of(query.prog, n)[2]:
            words = 2
        size += 8 * (1 + n + words)
    if query.circle or query.ring or len(query.boxes) > 1:
        size += columns([query])[0].geom.nbytes
    return size


STEPS = ("insert", "extend", "delete", "purge", "sweep", "drop", "restart", "drop_shards")


def nothing_leaks(index: Index) -> None:
    """All slots and blocks that were ever taken are free, each once."""
    assert isinstance(index, GI2 | RadixGI2)
    if isinstance(index, GI2):
        nothing_leaks_flat(index)
    else:
        nothing_leaks_radix(index)


def nothing_leaks_radix(index: RadixGI2) -> None:
    state, arrays = index._state, index._arrays
    slots, free = set(), int(state[rl.SLOT_FREE])
    while free >= 0:
        assert free not in slots
        slots.add(free)
        free = -2 - int(arrays.slots_i[free, rl.HANDLE])
    assert slots == set(range(int(state[rl.SLOT_TOP])))
    words = 0
    for cls, at in enumerate(arrays.pool_free.tolist()):
        while at:
            words += rl.POOL_UNIT << cls
            at = int(arrays.pool[at])
    assert words == state[rl.POOL_TOP] - rl.POOL_UNIT
    words = 0
    for cls, at in enumerate(arrays.node_free.tolist()):
        while at:
            words += int(rl.BLOCK_WORDS[cls])
            at = int(arrays.nodes[at])
    assert words == state[rl.NODE_TOP] - 1 - state[rl.NODE_GAPS]
    assert not arrays.places.any()
    assert not arrays.dead.any()
    assert not arrays.counts.any()
    assert not (arrays.directory[:, rl.ENTRIES :] & rl.LOW).any()


def nothing_leaks_flat(index: GI2) -> None:
    state, slots, free = index._state, set(), int(index._state[kl.SLOT_FREE])
    while free >= 0:
        assert free not in slots
        slots.add(free)
        free = int(index._arrays.slots_i[free, kl.HANDLE])
    assert slots == set(range(int(state[kl.SLOT_TOP])))
    words = 0
    for cls, at in enumerate(index._arrays.pool_free.tolist()):
        while at:
            words += kl.POOL_UNIT << cls
            at = int(index._arrays.pool[at])
    assert words == state[kl.POOL_TOP] - kl.POOL_UNIT
    words = 0
    for cls, at in enumerate(index._arrays.run_free.tolist()):
        while at:
            words += 1 + (kl.POSTING << cls)
            at = int(index._arrays.runs[at])
    assert words == state[kl.RUN_TOP] - 1
    assert not index._arrays.places.any()
    assert not index._arrays.dead.any()
    assert not index._arrays.left.any()
    assert not index._arrays.level_postings.any()
    assert not index._arrays.table[:, kl.BUCKET :].any()


@pytest.mark.parametrize("seed", choose_first(range(16), 4))
def test_equals_the_definition_while_units_come_and_go(
    seed: int, new_index: IndexFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gi2, "_SLICE", 1 << 5)
    twin, pairs = Twin(seed, new_index), 0
    for _ in range(60):
        step = twin.rng.choice(STEPS, p=[0.22, 0.22, 0.16, 0.1, 0.1, 0.1, 0.05, 0.05])
        getattr(twin, step)()
        pairs += twin.match()
        twin.check_sizes()
    assert pairs > 50
    twin.index.drop(lambda cell, term: np.zeros(len(cell), bool))
    assert twin.index.stats()[:3] == (0, 0, 0)
    twin.index.purge(twin.lsn)
    twin.index.sweep(1 << 20)
    assert len(counted(twin.index.census()).cell) == 0
    nothing_leaks(twin.index)


def test_a_census_goes_on_while_the_index_grows_and_shrinks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gi2, "_SLICE", 1 << 5)
    rng, index = np.random.default_rng(3), GI2(GRID)
    stay, go, come = np.split(np.arange(1, 4001), [600, 1000])
    queries = {
        name: [random_query(rng, handle) for handle in part.tolist()]
        for name, part in (("stay", stay), ("go", go), ("come", come))
    }
    index.insert(*columns([*queries["stay"], *queries["go"]]))
    census = index.census(8)
    for _ in range(11):  # in the middle of its second half
        assert next(census) is None
    size = len(index._arrays.table)
    index.delete(go, go + 10**6)
    index.purge(10**7)
    index.sweep(1 << 20)
    index.insert(*columns(queries["come"]))
    assert len(index._arrays.table) > size
    found = counted(census)
    assert (np.diff(found.cell.astype(np.int64)) > 0).all()
    held = {name: Counter(c for q in of for c, _ in q.tags) for name, of in queries.items()}
    most = held["stay"] + held["go"] + held["come"]
    told = dict(zip(found.cell.tolist(), found.queries.tolist(), strict=True))
    assert all(told.get(cell, 0) >= n for cell, n in held["stay"].items())
    assert all(n <= most[cell] for cell, n in told.items())


def test_any_number_of_deletes_may_wait_and_come_again(new_index: IndexFactory) -> None:
    rng, index, handles = np.random.default_rng(1), new_index(GRID), np.arange(1, 3001)
    for part in np.split(handles, 5):
        index.insert(*columns(plain_queries(rng, part.tolist())))
        index.delete(part, part + 10**6)
    index.delete(handles, handles)
    assert index.stats()[:3] == (0, 3000, 3000)
    index.purge(10**6)
    assert index.sweep(1 << 20) == 0
    index.purge(10**6 + 3000)
    assert index.sweep(1 << 20) == 3000
    assert index.stats()[:3] == (0, 0, 0)


def test_all_units_are_listed() -> None:
    rng = np.random.default_rng(3)
    queries = [random_query(rng, handle) for handle in range(1, 60)]
    index = GI2(GRID)
    index.insert(*columns(queries))
    table, wanted = index._arrays.table, {tag for query in queries for tag in query.tags}
    for size in (256, 4096):
        cell, term = np.empty(size, np.uint32), np.empty(size, np.uint64)
        run = np.empty(size, np.uint32)
        bucket = 0
        found: list[tuple[int, int]] = []
        while bucket < len(table):
            bucket, n = scan_kernels.list_units(table, bucket, cell, term, run)
            found += zip(cell[:n].tolist(), term[:n].tolist(), strict=True)
        assert (len(found), set(found)) == (len(wanted), wanted)
