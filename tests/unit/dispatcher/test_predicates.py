"""Predicates in a dispatcher: objects are searched for them, and their values go where they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from ps2stream.dispatcher.estimates import estimate_query, search_sample
from ps2stream.dispatcher.explanations import (
    compared_by,
    expand_query,
    explain_meeting,
    search_objects,
)
from ps2stream.dispatcher.object_log import column
from ps2stream.dispatcher.reservoir import ObjectReservoir
from ps2stream.dispatcher.router import RouterMachine
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import compile_column, hash_literals
from ps2stream.language.object_terms import ComparedValues
from ps2stream.language.query_rows import build_rows
from ps2stream.protocol.addresses import Address, Out
from ps2stream.protocol.frame import U64, column_to_strings, strings_to_column, take_ragged
from ps2stream.protocol.log_records import ObjectRecord
from ps2stream.protocol.messages.objects import RoutedObjects, SuspectBegin
from ps2stream.protocol.messages.updates import LedgerBatch, LedgerTip
from ps2stream.protocol.rows import ObjectRows, QueryRows, UpdateKind
from ps2stream.routing.costs import Costs
from ps2stream.routing.h1 import H1, HashedLeaf
from ps2stream.space.regions import Rect, Region, World
from ps2stream.workers.indexes import INDEXES, IndexName
from tests import naive
from tests.naive_predicates import Scalar
from tests.support.attributes import opaque_column
from tests.support.routers import GRID, close, sent

ANALYZER = Analyzer(Analysis(salt=3))
NONE = Frequencies.of({}, ANALYZER)
Thing = Mapping[str, Scalar]


def router(tip: int = 0, workers: int = 1, **settings: Any) -> RouterMachine:
    """Of one worker, or of two, the first of which has the west."""
    cells = (np.arange(1 << 9) % 32 >= 16).astype(np.uint32) * (workers > 1)
    h1 = H1(workers, cells, [HashedLeaf((0,)), HashedLeaf((workers - 1,))])
    made = RouterMachine(0, 1, 1, h1, GRID, 8, analyzer=ANALYZER, **settings)
    made.on(LedgerTip(tip, tip))
    return made


def objects(*things: Thing, lon: Sequence[float] = ()) -> ObjectRows:
    """Objects without text, in the west unless `lon` says otherwise."""
    n = len(things)
    ids, texts = strings_to_column([f"o{i}" for i in range(n)]), strings_to_column([""] * n)
    at = np.array(lon or [-20.0] * n)
    rows = *ids, np.zeros(n, np.int64), at, np.zeros(n), *texts, *ANALYZER.analyse(*texts)
    return ObjectRows(*rows, *opaque_column(things))


def query(expression: str, lsn: int = 1, region: Region | None = None) -> QueryRows:
    compiled = compile_column(*strings_to_column([expression]), ANALYZER, NONE)
    assert not compiled.errors
    rows = build_rows(strings_to_column([f"q{lsn}"]), compiled, [region or World()])
    return rows.replace(lsn=np.array([lsn]), handle=np.array([lsn]), session=np.array([1]))


def inserted(lsn: int, expression: str, region: Region | None = None) -> LedgerBatch:
    rows = query(expression, lsn, region)
    return LedgerBatch(lsn, lsn, 0, 0, 0, np.frombuffer(rows.encode(), np.uint8))


def deleted(lsn: int, expression: str, handle: int) -> LedgerBatch:
    rows = query(expression, handle).replace(
        kind=np.array([UpdateKind.DELETE], np.uint8), lsn=np.array([lsn])
    )
    return LedgerBatch(lsn, lsn, 0, 0, 0, np.frombuffer(rows.encode(), np.uint8))


def routed(out: Sequence[Out]) -> list[tuple[int, RoutedObjects]]:
    return sent(out, "worker", RoutedObjects)


def term_of(literal: str) -> int:
    return int(hash_literals(ANALYZER, [literal])[0])


def values_in(frame: RoutedObjects) -> list[list[int]]:
    """The first words of the keys of the numbers that each object of a share carries."""
    if not len(frame.value_off):
        return [[]] * len(frame.row)
    assert len(frame.value_off) == len(frame.row) + 1
    ends = zip(frame.value_off[:-1], frame.value_off[1:], strict=True)
    return [frame.value[a + 2 : b : 3].tolist() for a, b in ends]


def key_of(number: int) -> int:
    return int(np.float64(number).view(np.uint64)) | 1 << 63


def test_objects_are_searched_for_what_is_inserted_after_they_were_analysed() -> None:
    machine, rows = router(), objects({"a": 1}, {"a": 2}, {"b": 1}, {})
    assert routed(machine.publish(rows)[2]) == []
    machine.on(inserted(1, "a = 1"))
    ((_, frame),) = routed(machine.publish(rows)[2])
    assert (frame.row.tolist(), term_of("a = 1") in frame.term) == ([0], True)
    assert values_in(frame) == [[]]  # nothing is compared
    machine.on(inserted(2, "a < 2"))
    ((_, frame),) = routed(machine.publish(rows)[2])
    assert frame.row.tolist() == [0, 1]
    assert values_in(frame) == [[key_of(1)], [key_of(2)]]
    machine.on(inserted(3, "b EXISTS"))
    ((_, frame),) = routed(machine.publish(rows)[2])
    assert frame.row.tolist() == [0, 1, 2]
    assert values_in(frame) == [[key_of(1)], [key_of(2)], []]


def test_each_worker_gets_the_values_of_its_own_objects() -> None:
    machine = router(workers=2)
    machine.on(inserted(1, "a > 0", Rect(-20.0, 0.0, -20.0, 0.0)))
    machine.on(inserted(2, "a > 0", Rect(20.0, 0.0, 20.0, 0.0)))
    lon = [20.0, -20.0, 20.0, -20.0]
    out = machine.publish(objects({"a": 1}, {"a": 2}, {"a": 3}, {"c": 4}, lon=lon))[2]
    found = {worker: (frame.row.tolist(), values_in(frame)) for worker, frame in routed(out)}
    assert found == {0: ([1], [[key_of(2)]]), 1: ([0, 2], [[key_of(1)], [key_of(3)]])}


def test_objects_are_searched_for_a_deleted_query_until_none_can_be_matched_with_it() -> None:
    machine, rows = router(), objects({"a": 1})
    machine.on(inserted(1, "a > 0"))
    machine.publish(rows)  # is under way, and keeps the watermark below the delete
    machine.on(deleted(2, "a > 0", 1))
    assert len(machine.literals) == 1
    ((_, frame),) = routed(machine.publish(rows)[2])
    assert values_in(frame) == [[key_of(1)]]
    close(machine, 0, 1)
    machine.tick()
    assert len(machine.literals) == 0
    assert routed(machine.publish(rows)[2]) == []


def test_objects_of_an_earlier_incarnation_have_their_values() -> None:
    left = [ObjectRecord(0, 1, column(objects({"a": 1}, {}, {"a": 3})))]
    machine = router(1, epoch=1, replay=left, offset=3)
    ((_, frame),) = routed(machine.on(inserted(1, "NOT a < 2")))
    assert frame.row.tolist() == [0, 1, 2]
    assert values_in(frame) == [[key_of(1)], [], [key_of(3)]]


def test_the_halves_of_a_split_batch_keep_their_values() -> None:
    machine = router()
    machine.on(inserted(1, "a >= 0"))
    machine.publish(objects(*({"a": n} for n in range(5))))
    sizes = list[int]()
    for _ in range(20):
        for _, frame in routed(machine.joined(Address("worker", 0))):
            first, rows, found = frame.batch, frame.row.tolist(), values_in(frame)
            assert found == [[key_of(first + row)] for row in rows]
            sizes.append(len(rows))
            if frame.suspect:
                machine.on(SuspectBegin(0, first, frame.attempt))
    assert set(sizes) >= {5, 3, 2, 1}


# --- prices and explanations ------------------------------------------------------------

THINGS: list[dict[str, Scalar]] = [
    {"a": 1},
    {"a": 3.5, "source": "usgs"},
    {"a": "1"},
    {"source": "noaa", "tsunami": True},
    {},
]
EXPRESSIONS = [
    *("a = 1", "a > 1", "a != 1", "NOT a = 1", "NOT a >= 2 OR tsunami = true", "a EXISTS"),
    *('source IN ("usgs", "noaa") NOT a > 3', 'source < "usgs"', "source EXISTS -tsunami=true"),
]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_estimates_and_explanations_know_predicates(expression: str, index: IndexName) -> None:
    machine, asked, rows = router(), query(expression), objects(*THINGS)
    expanded = expand_query(machine, asked)
    want = [i for i, x in enumerate(THINGS) if naive.satisfied(expression, "", x)]
    reservoir = ObjectReservoir(100)
    reservoir.add(rows.take(np.array([0, 1])), 1_000)
    reservoir.add(rows.take(np.array([4])), 1_000)  # without anything opaque
    reservoir.add(rows.take(np.array([2, 3])), 1_000)
    sample = search_sample(reservoir.sample(), asked, ANALYZER)
    values = compared_by(asked, (sample.opaque_off, sample.opaque), ANALYZER)
    costs = Costs(1.0, 1.0, 1.0, 1.0)
    found = estimate_query(expanded, INDEXES[index], costs, sample, 2_000, values)
    names = column_to_strings(sample.id_off, sample.id)
    assert sorted(names[i] for i in found.matched.tolist()) == [f"o{i}" for i in want]
    for i in range(len(THINGS)):
        thing = search_objects(rows.take(np.array([i])), asked, ANALYZER)
        values = compared_by(asked, (thing.opaque_off, thing.opaque), ANALYZER)
        meeting = explain_meeting(expanded, INDEXES[index], thing, values)
        assert meeting.matches == (i in want), THINGS[i]


def test_values_are_taken_by_row() -> None:
    word: U64 = np.arange(6, dtype=np.uint64)
    values = ComparedValues(np.array([0, 3, 3, 6]), word)
    for rows in ([0], [1], [2], [0, 2], [0, 1, 2], []):
        off, taken = values.take(np.array(rows, np.int64))
        want = take_ragged(values.off, values.word, np.array(rows, np.int64))
        assert (off.tolist(), taken.tolist()) == tuple(column.tolist() for column in want)
