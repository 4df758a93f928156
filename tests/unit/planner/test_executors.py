"""What an executor does with the batches of its partition, without Spark: the twin's counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ps2stream.errors import InvalidArgument, Violation
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.planner import counting, executors
from ps2stream.planner.hits import ObjectSignatures, UnitHits, Vocabulary
from ps2stream.planner.objects import OBJECTS
from ps2stream.planner.rest import PAIRS, classify_units
from ps2stream.planner.sample import COUNTS, ordered, summed, units_of
from ps2stream.planner.updates import UPDATES, standing
from ps2stream.routing.plan import hash_units
from ps2stream.v1.object_pb2 import Attributes, AttributeValue
from tests.support.samples import GRID, batch, some_sample

ANALYSIS = Analysis(0)
ANALYZER = Analyzer(ANALYSIS)
RECORDS = [
    {"text": "flood", "lon": 1.5, "lat": 2.5, "time": 7, "kind": "quake"},
    {"text": "a river", "lon": -3.0, "lat": 4.0, "time": None, "kind": None},
]


def partitions(table: Any, size: int) -> Iterator[Any]:
    return iter(pa.Table.from_batches([table]).to_batches(max_chunksize=size))


def lines(*texts: str) -> Iterator[Any]:
    return iter([pa.record_batch({"value": [text]}) for text in texts])


def totals(batches: Iterator[Any], schema: Any, keys: list[str], values: tuple[str, ...]) -> Any:
    parts = [pa.Table.from_batches([part]) for part in batches]
    table = summed(parts, schema, keys, values)
    return table.sort_by([(key, "ascending") for key in keys])


def some_queries() -> Any:
    _, rows = some_sample(4)
    return standing(pa.Table.from_batches([batch(rows)], UPDATES)).combine_chunks().to_batches()[0]


# --- rows -------------------------------------------------------------------------------


def read_objects(
    kind: Any, columns: dict[str, str], parts: Iterator[Any], more: dict[str, str] | None = None
) -> Any:
    return executors.read_objects(
        executors.ObjectSource(kind, f"o.{kind}", columns, more or {}), parts
    )


def test_formats_give_the_same_posts() -> None:
    texts = [json.dumps(record) for record in RECORDS]
    as_json = read_objects("jsonl", {}, lines(texts[0], " ", texts[1]))
    as_text = [{k: None if v is None else str(v) for k, v in r.items()} for r in RECORDS]
    parts = [pa.RecordBatch.from_pylist([row]) for row in as_text]
    as_csv = read_objects("csv", {}, iter(parts))
    renamed = [{"text": r["text"], "lng": r["lon"], "lat": r["lat"], "ts": r["time"],
                "kind": r["kind"]} for r in RECORDS]  # fmt: skip
    columns = {"text": "text", "lon": "lng", "lat": "lat", "time": "ts"}
    parts = [pa.RecordBatch.from_pylist(renamed)]
    as_parquet = read_objects("parquet", columns, iter(parts), {"kind": ""})
    attributes = Attributes(values={"kind": AttributeValue(text="quake")}).SerializeToString()
    for batches in (as_json, as_csv, as_parquet):
        table = pa.Table.from_batches(batches, OBJECTS)
        assert table["id"].null_count == len(RECORDS)
        names = ["text", "lon", "lat", "time"]
        known = [{name: record[name] for name in names} for record in RECORDS]
        assert table.select(names).to_pylist() == known
        assert [held or None for held in table["attributes"].to_pylist()] == [attributes, None]


def test_updates_are_read_as_the_twin_reads_them() -> None:
    rows = [
        {"id": "a", "expression": "flood", "region": {"circle": [8.5, 47.4, 9]}, "time": 3},
        {"id": "a", "op": "delete", "time": 5},
    ]
    found = executors.read_updates("jsonl", "q.jsonl", lines(*map(json.dumps, rows)))
    assert pa.Table.from_batches(found) == pa.Table.from_batches([batch(rows)])


@pytest.mark.parametrize(
    ("kind", "part", "message"),
    [
        ("jsonl", {"value": ['{"text": "a", "lon": 999, "lat": 1}']}, "lon: expected degrees"),
        ("jsonl", {"value": ["{"]}, "expected one JSON object per line"),
        ("csv", {"text": ["a"], "lon": ["x"], "lat": ["1"]}, r"row 0 lon: expected"),
    ],
)
def test_a_refused_row_is_found_in_the_text_of_the_error(
    kind: Any, part: dict[str, list[str]], message: str
) -> None:
    """Spark passes on nothing but the text of an executor's exception."""
    with pytest.raises(ValueError, match="<refused>") as raised:
        [*read_objects(kind, {}, iter([pa.record_batch(part)]))]
    found = executors.refused(f"Job aborted: Traceback\n{raised.value}\nat java.lang")
    assert isinstance(found, InvalidArgument)
    with pytest.raises(InvalidArgument, match=message):
        raise found


def test_an_error_without_a_refusal_carries_none() -> None:
    assert executors.refused("Job aborted: out of memory") is None
    text = json.dumps([["a", "b"], ["c", "d"]])
    found = executors.refused(f"x <refused>{text}</refused> y <refused>[]</refused>")
    assert found is not None
    assert [*found.violations] == [Violation("a", "b"), Violation("c", "d")]


# --- counts -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [7, 400])
def test_terms_are_counted_over_the_batches_of_a_partition(size: int) -> None:
    objects, _ = some_sample(4)
    keys: tuple[Any, list[str], tuple[str, ...]] = (counting.TERMS, ["term"], ("objects",))
    found = totals(executors.count_terms(ANALYSIS, partitions(objects, size)), *keys)
    assert found == totals(iter(counting.object_terms(objects, ANALYZER).to_batches()), *keys)


@pytest.mark.parametrize("size", [7, 400])
def test_sides_and_postings_are_those_of_one_batch(size: int) -> None:
    queries = some_queries()
    keys: tuple[Any, list[str], tuple[str, ...]]
    keys = (counting.SIDES, ["axis", "side"], ("queries",))
    found = totals(executors.count_sides(partitions(queries, size)), *keys)
    assert found == totals(iter(counting.sides(queries).to_batches()), *keys)
    frequencies = {"flood": 9, "river": 2}
    keys = (counting.POSTINGS, ["cell", "term"], COUNTS)
    parts = executors.count_postings(
        ANALYSIS, SimpleNamespace(value=frequencies), GRID, partitions(queries, size)
    )
    known = Frequencies.of(frequencies, ANALYZER)
    whole = counting.postings(queries, ANALYZER, known, GRID)
    assert totals(parts, *keys) == totals(iter(whole.to_batches()), *keys)


@pytest.mark.parametrize("rows", [1, 30])
def test_sums_that_do_not_shrink_are_passed_on(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor holds a bounded number of rows; what it yields adds up to the same."""
    objects, _ = some_sample(4)
    run = partial(executors.count_terms, ANALYSIS)
    keys: tuple[Any, list[str], tuple[str, ...]] = (counting.TERMS, ["term"], ("objects",))
    want = totals(run(partitions(objects, 7)), *keys)
    monkeypatch.setattr(executors, "_ROWS", rows)
    found = [*run(partitions(objects, 7))]
    assert (sum(map(len, found)) > len(want)) == (rows == 1)
    assert totals(iter(found), *keys) == want


def test_hits_hold_the_counts_and_the_signatures() -> None:
    objects, _ = some_sample(4)
    known = Frequencies.of({}, ANALYZER)
    postings = ordered(counting.postings(some_queries(), ANALYZER, known, GRID))
    units = units_of(postings, ANALYZER)
    hits = UnitHits(units, ANALYZER, GRID)
    hits.add(objects)
    found = pa.Table.from_batches(
        executors.count_hits(
            ANALYSIS, SimpleNamespace(value=units), GRID, None, partitions(objects, 90)
        )
    )
    assert found.schema == executors.HITS
    cells, of_units = np.zeros_like(hits.cells), np.zeros_like(hits.units)
    signatures = []
    for row in found.to_pylist():
        if row["hash"] is not None:
            signatures.append((row["cell"], row["hash"], row["units"]))
        elif row["unit"] is not None:
            of_units[row["unit"]] += row["objects"]
        else:
            cells[row["cell"]] += row["objects"]
    assert np.array_equal(cells, hits.cells)
    assert np.array_equal(of_units, hits.units)
    least: ObjectSignatures = hits.signatures()
    parts = np.split(least.unit, least.unit_off[1:-1])
    columns = (least.cell.tolist(), least.hash.tolist(), [part.tolist() for part in parts])
    assert sorted(signatures) == sorted(zip(*columns, strict=True))


# --- the rest ---------------------------------------------------------------------------


def test_units_are_keyed_and_classed_as_in_one_process() -> None:
    terms = ["flood", "", '"a river"', "flood", "riv*"]
    rows = [[3, 3, 5, 9, 9], terms, [1, 0, 7, 2, 3], [0, 4, 0, 0, 1], [0, 0, 2, 0, 0]]
    table = pa.table(rows, schema=counting.POSTINGS)
    keyed = pa.Table.from_batches(executors.hash_postings(ANALYSIS, iter(table.to_batches())))
    hashes = hash_units(ANALYZER, terms).view(np.int64)
    assert keyed["hash"].to_pylist() == hashes.tolist()
    assert keyed.select(table.column_names) == table
    (names,) = executors.list_literals(ANALYSIS, iter(table.select(["term"]).to_batches()))
    assert names.column("term").to_pylist() == ['"a river"', "riv*"]
    met = keyed.append_column("objects", pa.array([8, 0, 1, 5, 0]))
    (classed,) = executors.classify_units(iter(met.to_batches()))
    want = classify_units(*(met[name].to_numpy() for name in ("objects", *COUNTS)))
    assert classed.column("class").to_pylist() == want.tolist()


def test_words_of_a_vocabulary_are_counted_and_named() -> None:
    objects, _ = some_sample(4)
    known = Vocabulary.of(["flood", "river", "", '"flood river"'], ANALYZER)
    shared = SimpleNamespace(value=known)
    parts = executors.count_pairs(ANALYSIS, shared, GRID, partitions(objects, 90))
    found = totals(parts, PAIRS, ["cell", "hash"], ("objects",)).to_pylist()
    lon, lat = objects["lon"].to_numpy(), objects["lat"].to_numpy()
    cells = GRID.cells(lon, lat, 0).tolist()
    want: Counter[tuple[int, int]] = Counter()
    for cell, text in zip(cells, objects["text"].to_pylist(), strict=True):
        words = {"", *ANALYZER.tokens(text)} & {"", "flood", "river"}
        words |= {'"flood river"'} if "flood river" in text else set()
        want.update((cell, h) for h in hash_units(ANALYZER, [*words]).view(np.int64).tolist())
    assert {(row["cell"], row["hash"]): row["objects"] for row in found} == want
    numbers = pa.record_batch({"cell": [4, 5], "word": [2, 0]})
    (named,) = executors.hash_words(shared, iter([numbers]))
    assert named.column("hash").to_pylist() == known.words[[2, 0]].view(np.int64).tolist()
