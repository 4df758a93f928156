"""Listed queries become the rows that a service makes of them."""

from __future__ import annotations

from ps2stream.language.analyzer import Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows, describe
from ps2stream.planner.migrate.queries import ListedQuery, of_queries, rows_of
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.validity import find_validity
from ps2stream.space.geojson import region_of
from ps2stream.space.regions import World
from tests.support.migrating import ANALYSIS, some_queries

ANALYZER = Analyzer(ANALYSIS)
KNOWN = Frequencies.of({"flood": 9, "river": 3}, ANALYZER)


def test_rows_are_those_of_an_insert() -> None:
    queries = some_queries(1, 40)
    texts = strings_to_column([q.expression for q in queries])
    regions = [World() if q.region is None else region_of("q", q.region) for q in queries]
    expected = build_rows(
        strings_to_column([q.id for q in queries]),
        compile_column(*texts, ANALYZER, KNOWN),
        regions,
        texts,
    )
    assert rows_of(of_queries(queries), ANALYZER, KNOWN).encode() == expected.encode()


def test_an_end_stays_with_its_query() -> None:
    rows = rows_of(
        of_queries([ListedQuery("a", "flood", until=5_000), ListedQuery("b", "flood")]),
        ANALYZER,
        KNOWN,
    )
    assert describe(rows.source[: rows.source_off[1]].tobytes()).until == 5_000
    assert find_validity(rows).row.tolist() == [0]


def test_no_queries_are_no_rows() -> None:
    assert len(of_queries([])) == 0
