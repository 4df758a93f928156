"""The watched literals of a dispatcher: counted like its queries, and found in every object."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ps2stream.dispatcher import literal_table
from ps2stream.dispatcher.literal_table import LiteralTable
from ps2stream.dispatcher.object_log import column
from ps2stream.dispatcher.router import RouterMachine
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.area_kernels import AREA_WORDS, find_areas, find_inside
from ps2stream.language.expression import compile_column
from ps2stream.language.literal_kernels import count_up
from ps2stream.language.literals import LiteralKind, WatchedLiterals, size_prefix
from ps2stream.language.object_terms import search_near, search_rows, search_some
from ps2stream.language.query_rows import build_rows
from ps2stream.protocol.addresses import Out
from ps2stream.protocol.frame import I64, U8, column_to_strings, sealed, strings_to_column
from ps2stream.protocol.log_records import ObjectRecord
from ps2stream.protocol.messages.objects import RoutedObjects
from ps2stream.protocol.messages.updates import LedgerBatch, LedgerTip
from ps2stream.protocol.rows import PROG_NOTES, ObjectRows, UpdateKind
from ps2stream.routing.h1 import H1, HashedLeaf
from ps2stream.space.regions import Rect
from tests.naive_predicates import Scalar
from tests.support.attributes import opaque_column
from tests.support.routers import GRID, close, sent
from tests.support.routing import Row, query_rows

ANALYZER = Analyzer(Analysis(salt=3))
ENGLISH = Analyzer(Analysis(salt=3, stemmer="english", stop_words="en"))
SIMPLE = ["rising water", "water level falls", "a b c", "b a"]


def literals(
    *terms: int,
    size: int = 2,
    kind: LiteralKind = LiteralKind.PHRASE,
    areas: int = 2**256 - 1,
) -> WatchedLiterals:
    n = len(terms)
    return WatchedLiterals(
        np.array(terms, np.uint64),
        np.full(n, kind, np.uint8),
        np.full(n, size, np.uint16),
        np.array([[areas >> 64 * i & 2**64 - 1 for i in range(AREA_WORDS)]] * n, np.uint64),
    )


Box = tuple[float, float, float, float]


def boxed(
    term: int, box: Box, kind: LiteralKind = LiteralKind.PHRASE, size: int = 2
) -> WatchedLiterals:
    """A phrase of two words, or another literal, that a query with this box has."""
    row = query_rows([Row((term,), (0,), (box,))])
    note = [kind << 8, size - (size >> 15 << 16), PROG_NOTES - 1]
    return WatchedLiterals.of(row.replace(prog_off=np.array([0, 3]), prog=np.array(note, np.int16)))


def is_in(box: Box, lon: float, lat: float) -> bool:
    return box[0] <= lon <= box[2] and box[1] <= lat <= box[3]


def row_texts(rows: ObjectRows) -> tuple[I64, U8]:
    return rows.text_off, rows.text


def phrases(*texts: str) -> WatchedLiterals:
    return literals(*(ANALYZER.phrase_hash(text.split()) for text in texts))


def objects(*texts: str) -> ObjectRows:
    n = len(texts)
    ids, column = strings_to_column([""] * n), strings_to_column(texts)
    zeros = np.zeros(n)
    terms = ANALYZER.analyse(*column)
    return ObjectRows(*ids, zeros.astype(np.int64), zeros, zeros, *column, *terms)


def held(table: LiteralTable) -> set[int]:
    return set(table.view.term[table.view.term != 0].tolist())


def test_literals_are_counted_as_queries_come_and_go() -> None:
    rng, table, count = random.Random(1), LiteralTable(), Counter[int]()
    for _ in range(3000):
        terms = [rng.randrange(1, 400) * 0x9E3779B97F4A7C15 % 2**64 for _ in range(3)]
        if rng.random() < 0.5:
            table.add(literals(*terms))
            count.update(terms)
        else:
            live = sorted(count.elements())[:3]
            table.retire(literals(*live))
            count.subtract(live)
        count += Counter()
        assert len(table) == len(count)
        assert count.keys() <= held(table)
    assert 2 * len(held(table)) <= len(table.view.term)


def test_others_never_see_a_table_that_lacks_a_literal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a table says it was searched for must be in it: all queries of the version that others
    see are in the table that they see."""
    table, some = LiteralTable(), literals(*range(1, 20))
    table.add(some)
    seen = list[tuple[int, set[int]]]()

    def look_before_counting(*given: Any) -> Any:
        seen.append((table.view.version, held(table)))
        return count_up(*given)

    monkeypatch.setattr(literal_table, "count_up", look_before_counting)
    version, places = table.view.version, len(table.view.term)
    table.add(literals(*(list(range(1, 20)) * 5)))
    assert len(table.view.term) > places
    assert table.view.version == version + 1
    assert seen == [(version, set(range(1, 20)))] * 2


def test_a_table_without_queries_is_made_anew_without_their_literals() -> None:
    table = LiteralTable()
    for i in range(0, 30_000, 10):
        some = literals(*range(i + 1, i + 11))
        table.add(some)
        table.retire(some)
    assert len(table) == 0
    assert table.nbytes < 10_000


def test_a_later_view_holds_what_an_earlier_one_did() -> None:
    table = LiteralTable()
    table.add(literals(5))
    first = table.view
    table.add(literals(6, size=3))
    assert table.view.version > first.version
    assert {5, 6} <= held(table)
    assert table.view.words[:5].tolist() == [3, 0, 1, 1, 0]


def test_objects_are_searched_for_what_is_watched_in_their_area() -> None:
    """Objects at (0, 0) are in the area of one bit; what is watched elsewhere is not found."""
    table, rows = LiteralTable(), objects("rising water")
    term = ANALYZER.phrase_hash(["rising", "water"])
    here = int(find_areas(rows.lon, rows.lat)[0])
    for areas, is_found in ((~(1 << here) % 2**256, False), (1 << here, True)):
        version = table.view.version
        table.add(literals(term, areas=areas))
        assert table.view.version == version + 1
        rows = table.search(rows, ANALYZER)
        assert (term in rows.term.tolist()) is is_found
    for i in range(100, 1000):  # the table is made anew, and has the areas still
        table.add(literals(i, areas=1))
    assert term in table.search(objects("rising water"), ANALYZER).term.tolist()


def test_objects_are_searched_once_for_what_is_watched() -> None:
    table, rows = LiteralTable(), objects("rising water", "water rising")
    assert table.search(rows, None) is rows
    table.add(phrases("rising water"))
    found = table.search(rows, ANALYZER)
    term = ANALYZER.phrase_hash(["rising", "water"])
    assert [term in found.term[a:b] for a, b in ((0, 4), (4, 7))] == [True, False]
    assert table.search(found, None) is found
    table.add(phrases("water rising"))
    both = table.search(found, ANALYZER)
    assert len(both.term) == len(found.term) + 1


@pytest.mark.parametrize("texts", [SIMPLE, [*SIMPLE, "ก ข"]], ids=["simple", "not simple"])
def test_objects_in_a_box_of_a_later_query_alone_are_searched_again(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is searched now and then while queries come. At the end each object has the phrase of
    every query whose box holds it, by brute force, and only those in a box since were searched,
    by one kernel as by steps of their own."""
    named = {ANALYZER.phrase_hash(p.split()): p for p in ("rising water", "level falls", "a b")}
    named[prefix := ANALYZER.prefix_hash("fal")] = "falls"
    notes = {prefix: (LiteralKind.PREFIX, size_prefix("fal"))}
    searched = list[int]()

    def count_rows(rows: ObjectRows, *given: Any) -> ObjectRows:
        searched.append(len(rows))
        return search_rows(rows, *given)

    def compare_near(
        rows: ObjectRows, later: WatchedLiterals, analyzer: Analyzer, version: int
    ) -> ObjectRows:
        found = search_near(rows, later, analyzer, version)
        some = find_inside(sealed(rows.lon), sealed(rows.lat), sealed(later.box.ravel()))
        searched.extend([len(some)] if len(some) else [])
        again = search_some(rows, some, analyzer, later.view())
        assert found.searched == version
        assert found.term_off.tolist() == again.term_off.tolist()
        assert found.term.tolist() == again.term.tolist()
        return found

    monkeypatch.setattr(literal_table, "search_near", compare_near)
    monkeypatch.setattr(literal_table, "search_rows", count_rows)
    for seed in range(20):
        rng, table = random.Random(seed), LiteralTable()
        rows = objects(*(rng.choice(texts) for _ in range(50)))
        lon, lat = (np.array([rng.uniform(0, 9) for _ in range(50)]) for _ in range(2))
        rows = dataclasses.replace(rows, lon=lon, lat=lat)
        queries, later, searched[:] = list[tuple[int, Box]](), list[Box](), []
        for _ in range(12):
            for _ in range(rng.randrange(1, 4)):
                x, y = rng.uniform(-1, 9), rng.uniform(-1, 9)
                queries.append((rng.choice(sorted(named)), (x, y, x + 1.5, y + 1.5)))
                later.append(queries[-1][1])
                table.add(boxed(*queries[-1], *notes.get(queries[-1][0], ())))
            if rng.random() < 0.5:
                met = [i for i in range(50) if any(is_in(b, lon[i], lat[i]) for b in later)]
                rows = table.search(rows, ANALYZER)
                assert searched == ([len(met)] if met else [])
                assert rows.searched == table.view.version
                searched[:], later = [], []
        rows, plain = table.search(rows, ANALYZER), objects(*column_to_strings(*row_texts(rows)))
        for i in range(50):
            got = rows.term[rows.term_off[i] : rows.term_off[i + 1]].tolist()
            own = set(plain.term[plain.term_off[i] : plain.term_off[i + 1]].tolist())
            text = f" {column_to_strings(*row_texts(rows))[i]} "
            held = {term for term, phrase in named.items() if f" {phrase} " in text}
            wanted = {term for term, box in queries if is_in(box, lon[i], lat[i])}
            assert got == sorted(set(got))
            assert own | held & wanted <= set(got) <= own | held


def test_objects_that_are_older_than_the_boxes_are_searched_wherever_they_are() -> None:
    table, rows = LiteralTable(), objects("rising water")
    term = ANALYZER.phrase_hash(["rising", "water"])
    table.add(boxed(term, (-1, -1, 1, 1)))
    for i in range(600):  # more boxes than are kept, which the object is not in
        table.add(boxed(i + 1, (50, 50, 51, 51)))
    assert term in table.search(rows, ANALYZER).term.tolist()
    assert term in table.search(rows.without_terms(), ANALYZER).term.tolist()


def test_objects_are_searched_everywhere_from_the_first_box_that_is_not_kept() -> None:
    """The oldest box is dropped for the last of these inserts at the earliest."""
    term = ANALYZER.phrase_hash(["rising", "water"])
    for others in range(literal_table._RECENT - 2, literal_table._RECENT + 3):
        table = LiteralTable()
        table.add(boxed(1, (50, 50, 51, 51)))
        rows = table.search(objects("rising water"), ANALYZER)
        table.add(boxed(term, (-1, -1, 1, 1)))
        for i in range(others):
            table.add(boxed(i + 2, (50, 50, 51, 51)))
        assert term in table.search(rows, ANALYZER).term.tolist(), others


def test_as_many_literals_of_one_box_are_kept_as_boxes() -> None:
    """A query of many words has one box; to search for what hundreds of them say costs as much as
    to search for all."""
    term = ANALYZER.phrase_hash(["rising", "water"])
    for more, is_found in ((literal_table._RECENT - 1, False), (literal_table._RECENT, True)):
        table = LiteralTable()
        table.add(boxed(1, (50, 50, 51, 51)))
        rows = table.search(objects("rising water"), ANALYZER)
        every = WatchedLiterals.join([boxed(i + 2, (50, 50, 51, 51)) for i in range(more)])
        table.add(boxed(term, (50, 50, 51, 51))._replace(area=boxed(term, (-1, -1, 1, 1)).area))
        table.add(every._replace(box=every.box[:1]))
        assert (term in table.search(rows, ANALYZER).term.tolist()) is is_found


def test_objects_without_terms_are_analysed_while_all_boxes_are_kept() -> None:
    table, rows = LiteralTable(), objects("rising water", "far away")
    table.add(boxed(ANALYZER.phrase_hash(["rising", "water"]), (-1, -1, 1, 1)))
    found = table.search(rows.without_terms(), ANALYZER)
    again = table.search(rows, ANALYZER)
    assert found.term_off.tolist() == again.term_off.tolist()
    assert found.term.tolist() == again.term.tolist()
    assert len(found.term) == len(rows.term) + 1


@pytest.mark.parametrize("prefix", ["fa", "fal", "fallings", "fallingsx"])
def test_a_prefix_of_a_later_query_is_found_if_no_query_has_a_longer_one(prefix: str) -> None:
    table, rows = LiteralTable(), objects("fallingsx", prefix[:-1])
    term = ANALYZER.prefix_hash(prefix)
    table.add(boxed(term, (-1, -1, 1, 1), LiteralKind.PREFIX, size_prefix(prefix)))
    found = table.search(rows, ANALYZER)
    assert [term in found.term[:3].tolist(), len(found.term)] == [True, len(rows.term) + 1]


LATER = [
    '"rising water"',
    '"level falls"',
    "fal*",
    "severity = 3",
    "severity > 2",
    "source exists",
    'severity = 3 AND source = "b"',
]
COUNTED = {  # so that the two equalities are posted as a pair
    "severity EXISTS": 1000,
    "severity = 3": 100,
    "source EXISTS": 1000,
    'source = "b"': 100,
}
THINGS: list[dict[str, Scalar]] = [{}, {"severity": 3}, {"severity": 3, "source": "b"}]


@pytest.mark.parametrize("analyzer", [ANALYZER, ENGLISH], ids=["plain", "english"])
@pytest.mark.parametrize("seed", range(4))
def test_what_later_queries_may_match_is_found_in_texts_and_attributes(
    analyzer: Analyzer, seed: int
) -> None:
    """Objects with attributes, and others, that were searched before most of the queries came: each
    has what a search of all objects finds of the queries whose box holds it."""
    rng, table, n = random.Random(seed), LiteralTable(), 150
    frequencies, kinds = Frequencies.of(COUNTED, analyzer), set[int]()
    texts = strings_to_column([rng.choice([*SIMPLE, "ก falling"]) for _ in range(n)])
    lon, lat = (np.array([rng.uniform(0, 9) for _ in range(n)]) for _ in range(2))
    things = [rng.choice(THINGS) for _ in range(n)]
    opaque = opaque_column(things) if seed else ()
    ids, time = strings_to_column([""] * n), np.zeros(n, np.int64)
    rows = ObjectRows(*ids, time, lon, lat, *texts, *analyzer.analyse(*texts), *opaque)
    plain, queries = rows, list[tuple[Box, list[int]]]()
    for _ in range(100):
        x, y = rng.uniform(-1, 9), rng.uniform(-1, 9)
        expression = strings_to_column([rng.choice(LATER)])
        compiled = compile_column(*expression, analyzer, frequencies)
        box = (x, y, x + 1.5, y + 1.5)
        query = build_rows(strings_to_column(["q"]), compiled, [Rect(*box)])
        table.add(watched := WatchedLiterals.of(query))
        queries.append((box, watched.term.tolist()))
        kinds.update(watched.kind.tolist())
        if rng.random() < 0.4:
            rows = table.search(rows, analyzer)
    assert kinds == {*LiteralKind}
    rows, met = table.search(rows, analyzer), 0
    whole = search_rows(plain, analyzer, table.view)
    for i in range(n):
        got, own, most = (
            each.term[each.term_off[i] : each.term_off[i + 1]].tolist()
            for each in (rows, plain, whole)
        )
        wanted = {t for box, terms in queries if is_in(box, lon[i], lat[i]) for t in terms}
        assert got == sorted(set(got))
        assert {*own} | {*most} & wanted <= {*got} <= {*most}
        met += len({*most} & wanted)
    assert met >= 20


def test_objects_of_several_batches_are_as_old_as_the_oldest() -> None:
    table, rows = LiteralTable(), objects("rising water")
    table.add(phrases("rising water"))
    searched = table.search(rows, ANALYZER)
    joined = ObjectRows.concat([searched, rows])
    assert len(table.search(joined, ANALYZER).term) == len(searched.term) * 2
    assert ObjectRows.decode(searched.encode()).searched == searched.searched
    assert searched.take(np.array([0])).searched == searched.searched
    assert searched.without_terms().searched == 0


def test_what_is_read_again_after_a_state_is_searched_again() -> None:
    table, rows = LiteralTable(), objects("rising water")
    table.add(phrases("rising water"))
    searched = table.search(rows, ANALYZER)
    table.clear()
    assert len(table) == 0
    table.add(phrases("rising water"))
    assert table.search(searched, ANALYZER) is not searched


def test_without_an_analyzer_nothing_is_missed_silently() -> None:
    table = LiteralTable()
    table.add(phrases("rising water"))
    with pytest.raises(TypeError, match="no analyzer"):
        table.search(objects("rising water"), None)


# --- in a router machine --------------------------------------------------


def router(tip: int = 0, **settings: Any) -> RouterMachine:
    h1 = H1(1, np.zeros(1 << 9, np.uint32), [HashedLeaf((0,))])
    made = RouterMachine(0, 1, 1, h1, GRID, 8, analyzer=ANALYZER, **settings)
    made.on(LedgerTip(tip, tip))
    return made


def update(lsn: int, phrase: str, handle: int = 0) -> LedgerBatch:
    """The insert of a query for a phrase, or the delete of the one with this handle."""
    term = ANALYZER.phrase_hash(phrase.split())
    kind = UpdateKind.DELETE if handle else UpdateKind.INSERT
    rows = query_rows([Row((term,), (0,), kind=kind, lsn=lsn, handle=handle or lsn)])
    note = [LiteralKind.PHRASE << 8, len(phrase.split()), PROG_NOTES - 1]
    rows = rows.replace(prog_off=np.array([0, 3]), prog=np.array(note, np.int16))
    return LedgerBatch(lsn, lsn, 0, 0, 0, np.frombuffer(rows.encode(), np.uint8))


def routed_terms(out: Sequence[Out]) -> list[int]:
    return [t for _, frame in sent(out, "worker", RoutedObjects) for t in frame.term.tolist()]


RISING = ANALYZER.phrase_hash(["rising", "water"])


def test_objects_that_were_analysed_before_an_insert_are_searched_before_they_are_routed() -> None:
    machine, rows = router(), objects("rising water")
    assert routed_terms(machine.publish(rows)[2]) == []
    machine.on(update(1, "rising water"))
    assert RISING in routed_terms(machine.publish(rows)[2])


def test_objects_are_searched_for_a_deleted_query_until_none_can_be_matched_with_it() -> None:
    machine, rows = router(), objects("rising water")
    machine.on(update(1, "rising water"))
    machine.publish(rows)  # is under way, and keeps the watermark below the delete
    machine.on(update(2, "rising water", handle=1))
    assert len(machine.literals) == 1
    assert RISING in routed_terms(machine.publish(rows)[2])
    close(machine, 0, 1)
    machine.tick()
    assert len(machine.literals) == 0
    assert routed_terms(machine.publish(rows)[2]) == []


def test_objects_of_an_earlier_incarnation_are_searched_when_they_are_sent_again() -> None:
    left = [ObjectRecord(0, 1, column(objects("rising water")))]
    machine = router(1, epoch=1, replay=left, offset=1)
    assert RISING in routed_terms(machine.on(update(1, "rising water")))


def test_literals_are_described_by_kind_and_size() -> None:
    rng = np.random.default_rng(4)
    table, terms = LiteralTable(), rng.integers(1, 1 << 63, 500, np.uint64)
    terms[::2] &= np.uint64(7 << 40)  # which collide
    terms = np.unique(terms[terms != 0])
    assert [column.tolist() for column in table.describe(terms[:2])] == [[0, 0], [0, 0]]
    held, kinds = terms[::3], rng.integers(1, 7, len(terms[::3])).astype(np.uint8)
    sizes = rng.integers(2, 9, len(held)).astype(np.uint16)
    area = np.full((len(held), AREA_WORDS), ~np.uint64(0))
    for row in range(len(held)):
        some = slice(row, row + 1)
        table.add(WatchedLiterals(held[some], kinds[some], sizes[some], area[some]))
    wanted = dict(zip(held.tolist(), zip(kinds.tolist(), sizes.tolist(), strict=True), strict=True))
    kind, size = table.describe(terms)
    found = [*zip(kind.tolist(), size.tolist(), strict=True)]
    assert found == [wanted.get(term, (0, 0)) for term in terms.tolist()]
    assert [kind.itemsize, size.itemsize] == [1, 2]
