"""The watched literals of a dispatcher: counted like its queries, and found in every object."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from ps2stream.dispatcher.literal_table import LiteralTable
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.literals import LiteralKind, WatchedLiterals
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.rows import ObjectRows

ANALYZER = Analyzer(Analysis(salt=3))


def literals(*terms: int, size: int = 2, kind: LiteralKind = LiteralKind.PHRASE) -> WatchedLiterals:
    n = len(terms)
    return WatchedLiterals(
        np.array(terms, np.uint64), np.full(n, kind, np.uint8), np.full(n, size, np.uint8)
    )


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
    table.add(literals(5))
    assert table.view.version == first.version  # what was searched for it has been searched
    table.add(literals(6, size=3))
    assert table.view.version > first.version
    assert {5, 6} <= held(table)
    assert table.view.words.nonzero()[0].tolist() == [2, 3]


def test_objects_are_searched_once_for_what_is_watched() -> None:
    table, rows = LiteralTable(), objects("rising water", "water rising")
    assert table.search(rows, None) is rows
    table.add(phrases("rising water"))
    found = table.search(rows, ANALYZER)
    term = ANALYZER.phrase_hash(["rising", "water"])
    assert [term in found.term[a:b] for a, b in ((0, 4), (4, 7))] == [True, False]
    assert table.search(found, None) is found
    table.add(phrases("rising water"))
    assert table.search(found, None) is found
    table.add(phrases("water rising"))
    both = table.search(found, ANALYZER)
    assert len(both.term) == len(found.term) + 1


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
