"""New queries against valid objects: which pairs are found, logged and released, and what a
restart makes of it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from ps2stream.dispatcher import object_log as object_logs
from ps2stream.dispatcher import retro, valid_log, valid_objects
from ps2stream.dispatcher.gathering import gather_retro
from ps2stream.dispatcher.instructions import Instruction, SyncLog
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.retro import RetroMatching, RetroMeans
from ps2stream.dispatcher.retro_queue import RetroQueue
from ps2stream.errors import Unavailable
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.frame import column_to_strings, strings_to_column
from ps2stream.protocol.id_sets import IdSet
from ps2stream.protocol.log_records import RetroRecord, ValidityRecord
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.rows import NEVER, ObjectRows, QueryRows
from ps2stream.protocol.session_map import SessionMap
from ps2stream.protocol.validity import add_validity, stamp_inserts
from ps2stream.routing.tags import QueryTags
from ps2stream.space.grid import Grid
from ps2stream.space.regions import Circle, World
from ps2stream.workers.indexes import INDEXES
from tests import naive
from tests.support.ends import ANALYZER, FREQUENCIES
from tests.support.memory_log import MemoryLog
from tests.support.valid_objects import Thing, objects

GRID = Grid(0, 0)
Pair = tuple[int, int]  # handle, offset of the object


def build_queries(wanted: list[tuple[int, str, int]]) -> tuple[QueryRows, QueryTags]:
    """Inserts with retro: LSN, expression, time. On a grid of one cell their tags are their posting
    terms."""
    compiled = compile_column(
        *strings_to_column([text for _, text, _ in wanted]), ANALYZER, FREQUENCIES
    )
    assert not compiled.errors
    n = len(wanted)
    regions = [World() if i % 2 else Circle(0, 0, 50) for i in range(n)]
    rows = build_rows(strings_to_column([f"q{i}" for i in range(n)]), compiled, regions)
    lsns = np.array([lsn for lsn, _, _ in wanted])
    rows = rows.replace(lsn=lsns, handle=lsns, session=lsns % 3)
    rows = add_validity(rows, np.zeros(n, np.int64), np.ones(n, np.bool_))
    parts = [stamp_inserts(rows.take(np.array([i])), wanted[i][2]) for i in range(n)]
    rows = QueryRows.concat(parts)
    tags = [
        (i, int(rows.term[rows.term_off[i] + k]))
        for i in range(n)
        for k in range(int(rows.term_off[i + 1] - rows.term_off[i]))
        if int(rows.post[i]) >> k & 1
    ]
    count = np.bincount([i for i, _ in tags], minlength=n)
    off = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    terms = np.array([term for _, term in tags], np.uint64)
    nowhere = np.zeros(len(tags), np.uint32)
    owner, place = np.zeros(len(tags), np.uint16), np.zeros(n, np.uint64)
    return rows, QueryTags(off, nowhere, terms, owner, place)


class Router:
    """The router machine, as far as it concerns this."""

    def __init__(self, done: int, offset: int) -> None:
        self.retro = RetroQueue(done)
        self.index = 0
        self.producers = ProducerMap.first(2)
        self.ready = True
        self.offset = offset
        self.reserved_from = NEVER
        self.released: list[tuple[RetroRecord, ObjectRows]] = []

    def reserve_found(self, batch: int, size: int, lsn: int) -> None:
        assert batch == self.offset
        self.offset += size
        self.retro.open_batch(batch, lsn)

    def release_found(self, record: RetroRecord, rows: ObjectRows) -> list[Send]:
        self.released.append((record, rows))
        return []

    @property
    def pairs(self) -> list[Pair]:
        """What was released, in order."""
        found: list[Pair] = []
        for record, rows in self.released:
            assert len(record.offset) == len(rows)
            offsets = record.offset[record.pair_row]
            found += zip(record.handle.tolist(), offsets.tolist(), strict=True)
            gathered = gather_retro(
                record.pair_row, record.handle, record.session, SessionMap.first(2),
                record.offset, record.missed,
            )  # fmt: skip
            if len(record.handle):
                [answer] = gathered.answers
                assert answer.count.sum() == len(record.handle)
                assert (np.diff(answer.session % 2) >= 0).all()
        return found


class Bench:
    """A retro matching over a log that survives it."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.memory = MemoryLog()
        self.limit = limit
        self.start()

    def start(self) -> None:
        self.log = ObjectLog(self.memory)
        self.router = Router(self.log.validity.done, self.log.offset)
        self.out: list[Instruction] = []
        means = RetroMeans(ANALYZER, INDEXES["gi2-radix"], GRID, self.limit)
        self.retro: Any = RetroMatching(self.router, self.log, means, self.out)

    def accept(self, lsn: int, things: list[Thing]) -> int:
        """Accepts objects; returns the offset of the first."""
        rows, offset = objects(things), self.router.offset
        self.log.reserve(offset + len(rows))
        self.log.append(offset, lsn, rows)
        self.router.offset += len(rows)
        self.retro.note_batch(rows, offset, lsn)
        return offset

    def withdraw(self, *ids: str) -> None:
        """Withdraws objects, durably."""
        found = IdSet(id.encode() for id in ids)
        self.log.append_withdrawal(found)
        self.retro.withdraw(found)
        self.sync()

    def work(self) -> None:
        """Works until nothing is left to do but for a sync."""
        while self.retro.has_work:
            self.retro.work()

    def sync(self) -> None:
        end = self.memory.sync()
        self.retro.synced(end)


IDS = "abcdefgh"
TEXTS = ["flood", "flood river", "river", "big flood", "fire 3"]
QUERIES = ["flood", "flood OR fire", "river AND flood", '"big flood"', "fl*", "NOT river"]


@pytest.mark.parametrize("seed", range(20))
def test_pairs_are_those_of_brute_force_whatever_stops_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valid_objects, "CHUNK_ROWS", 4)
    monkeypatch.setattr(valid_log, "REWRITE_BYTES", 500)
    monkeypatch.setattr(valid_log, "PIECE_BYTES", 300)
    monkeypatch.setattr(object_logs, "LEAP", 100)
    if seed % 2:
        monkeypatch.setattr(retro, "MOST_PAIRS", 5)
    rng, bench = random.Random(seed), Bench()
    known: dict[int, tuple[int, str, int]] = {}  # by offset: LSN, text, end
    ids: dict[int, str] = {}  # by offset, of what is not withdrawn
    expected: set[Pair] = set()
    maybe: set[Pair] = set()  # of these what was not found before its object was withdrawn
    got: dict[tuple[int, int], set[Pair]] = {}  # by batch; a merger takes each once
    every: list[tuple[QueryRows, QueryTags]] = []
    lsn = 1

    def collect() -> None:
        for record, _ in bench.router.released:
            offsets = record.offset[record.pair_row].tolist()
            pairs = set(zip(record.handle.tolist(), offsets, strict=True))
            assert len(pairs) == len(record.handle)
            assert got.setdefault((record.batch, record.lsn), pairs) == pairs
            assert not len(record.missed)
        bench.router.retro.close([record.batch for record, _ in bench.router.released])
        bench.router.released.clear()

    def withdraw(names: list[str]) -> None:
        bench.withdraw(*names)
        for offset in [at for at, name in ids.items() if name in names]:
            del known[offset], ids[offset]
        maybe.update(pair for pair in expected if pair[1] not in known)

    for _ in range(40):
        action = rng.random()
        if action < 0.1 and seed % 4 > 1:
            withdraw(rng.sample(IDS, rng.randrange(1, 4)))
        elif action < 0.5:
            things: list[Thing] = [
                (rng.choice(IDS), rng.choice(TEXTS), rng.choice([0, rng.randrange(1, 1_000)]))
                for _ in range(rng.randrange(1, 7))
            ]
            first = bench.accept(lsn, things)
            known |= {first + i: (lsn, text, end) for i, (_, text, end) in enumerate(things)}
            ids |= {first + i: id for i, (id, _, _) in enumerate(things)}
        elif action < 0.75:
            wanted = [
                (lsn + 1 + i, rng.choice(QUERIES), rng.randrange(1_000))
                for i in range(rng.randrange(1, 4))
            ]
            lsn = wanted[-1][0]
            for handle, text, now in wanted:
                query = naive.Query("q", "s", text, retro=True)
                for offset, (at, words, end) in known.items():
                    if (
                        naive.meets(query, handle, now, NEVER, naive.Obj(0, 0, words, {}, end), at)
                        and at < handle
                    ):
                        expected.add((handle, offset))
            every.append(build_queries(wanted))
            bench.router.retro.note(*every[-1])
        elif action < 0.9:
            for _ in range(rng.randrange(20)):
                if bench.retro.has_work:
                    bench.retro.work()
            if rng.random() < 0.6:
                bench.sync()
                collect()
            bench.log.progress(bench.router.retro.find_oldest(bench.router.offset))
            if (spare := bench.log.find_spare(bench.memory.sync())) is not None:
                bench.memory.trim(spare)
        else:  # it dies; its next incarnation is given a state
            bench.memory.sync()
            bench.start()
            for rows, tags in every:
                bench.router.retro.note(rows, tags)
    bench.work()
    while not bench.router.retro.is_idle:
        bench.work()
        bench.sync()
        collect()
    found = [pair for pairs in got.values() for pair in pairs]
    assert len(found) == len(set(found))
    assert expected - maybe <= set(found) <= expected


def test_a_withdrawn_object_is_not_matched_and_a_later_one_of_its_id_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(valid_objects, "CHUNK_ROWS", 1)
    for when in ("before", "during", "restarted"):
        bench = Bench()
        bench.accept(1, [("a", "flood", 500), ("b", "flood", 500)])
        bench.withdraw("a", "unknown")
        bench.accept(1, [("a", "flood", 500)])
        if when == "restarted":
            bench.start()
        bench.router.retro.note(*build_queries([(2, "flood", 10)]))
        if when == "during":
            bench.retro.work()  # it has come to the first object
            bench.withdraw("a")
        bench.work()
        bench.sync()
        assert bench.router.pairs == ([(2, 1)] if when == "during" else [(2, 1), (2, 2)])


def test_objects_that_are_withdrawn_while_they_are_written_again_stay_withdrawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(valid_objects, "CHUNK_ROWS", 2)
    monkeypatch.setattr(valid_log, "REWRITE_BYTES", 1)
    monkeypatch.setattr(valid_log, "PIECE_BYTES", 1)
    bench = Bench()
    for i in range(8):
        bench.accept(1, [(f"{i}", "flood" * 200, 500), (f"{i} too", "flood", 500)])
    begun = bench.log.validity.advance()
    assert begun is not None
    bench.withdraw("0", "5", "6", "6 too")
    position: int | None = begun
    while position == begun:
        position = bench.log.validity.advance()
    assert position is not None
    bench.memory.trim(position)
    bench.start()
    rows = [chunk.rows for chunk in bench.retro.objects.chunks]
    kept = [id for each in rows for id in column_to_strings(each.id_off, each.id)]
    assert sorted(kept) == sorted(
        {f"{i}" for i in range(8)} - {"0", "5", "6"} | {f"{i} too" for i in range(8) if i != 6}
    )


def test_no_more_pairs_are_held_than_one_query_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valid_objects, "CHUNK_ROWS", 4)
    monkeypatch.setattr(retro, "MOST_PAIRS", 30)
    bench = Bench()
    bench.accept(1, [("o", "flood", 500)] * 40)
    wanted = [(2 + i, "flood", 10) for i in range(8)] + [(20 + i, "fire", 10) for i in range(8)]
    bench.router.retro.note(*build_queries(wanted))
    got: list[Pair] = []
    for _ in range(100):
        bench.work()
        assert not bench.retro.has_work  # what was found is not kept
        bench.sync()
        found = bench.router.pairs
        assert len(found) <= 40
        got += found
        bench.router.retro.close([record.batch for record, _ in bench.router.released])
        bench.router.released.clear()
        if bench.router.retro.is_idle:
            break
    assert got == sorted(got, key=lambda pair: pair[0])
    assert sorted(got) == [(2 + i, at) for i in range(8) for at in range(40)]
    assert bench.retro.counters["retro_pairs"] == 320
    assert bench.log.progress(bench.router.retro.find_oldest(bench.router.offset))


def test_objects_that_were_dropped_are_announced_if_they_may_have_matched() -> None:
    bench = Bench(limit=0)
    bench.accept(1, [("a", "flood", 500), ("b", "flood", 0)])
    bench.router.retro.note(*build_queries([(2, "flood", 499), (3, "flood", 500)]))
    bench.work()
    assert any(isinstance(each, SyncLog) for each in bench.out)
    assert not bench.router.released
    bench.sync()
    [(record, rows)] = bench.router.released
    assert (record.missed.tolist(), len(rows), len(record.handle)) == ([2], 0, 0)
    assert bench.retro.gaps == 1


def test_objects_of_dispatchers_that_were_left_out_are_announced_until_they_end() -> None:
    bench = Bench()
    bench.memory.append(ValidityRecord(done=0, horizon=0, parts=0, left_out=500).encode())
    bench.start()
    bench.router.retro.note(*build_queries([(2, "flood", 499), (3, "flood", 500)]))
    bench.work()
    bench.sync()
    assert [record.missed.tolist() for record, _ in bench.router.released] == [[2]]
    position = bench.log.validity.advance()
    assert position is not None
    bench.memory.trim(position)
    bench.start()
    assert bench.log.validity.left_out == 500


def test_queries_wait_for_objects_that_are_reserved() -> None:
    bench = Bench()
    bench.accept(1, [("a", "flood", 500)])
    bench.router.reserved_from = 1
    bench.router.retro.note(*build_queries([(2, "flood", 10)]))
    assert not bench.retro.has_work
    bench.router.reserved_from = 2
    bench.work()
    bench.sync()
    assert bench.router.pairs == [(2, 0)]


def test_a_full_log_is_tried_again_at_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.accept(1, [("a", "flood", 500)])
    bench.router.retro.note(*build_queries([(2, "flood", 10)]))
    append = bench.memory.append

    def refuse(_: bytes) -> int:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(bench.memory, "append", refuse)
    bench.work()
    assert not bench.retro.has_work
    monkeypatch.setattr(bench.memory, "append", append)
    bench.retro.tick(0)
    bench.work()
    bench.sync()
    assert bench.router.pairs == [(2, 0)]
    [(_, rows)] = bench.router.released
    assert column_to_strings(rows.id_off, rows.id) == ["a"]


def test_an_object_that_killed_workers_is_not_matched() -> None:
    bench = Bench()
    first = bench.accept(1, [("a", "flood", 500), ("b", "flood", 500)])
    bench.retro.objects.drop(first)
    bench.router.retro.note(*build_queries([(2, "flood", 10)]))
    bench.work()
    bench.sync()
    assert bench.router.pairs == [(2, first + 1)]
