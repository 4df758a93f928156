"""Objects by hour and cell, and their words, against a count in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ps2stream.archive.columns import ArchivedBatch, make_table
from ps2stream.archive.layout import (
    COMPACTED,
    MANIFEST,
    ArchivePoint,
    CompactedFile,
    CompactedManifest,
    dispatcher_folder,
    read_manifest,
    read_snapshot,
)
from ps2stream.archive.withdrawn import append_withdrawn, read_archive
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner import archived_terms
from ps2stream.planner.archived_terms import (
    HOUR_MS,
    HOUR_TERMS,
    PLACED,
    ArchiveTerms,
    HourTermCounter,
    count_archive,
    count_hour_terms,
    describe_analysis,
    place_objects,
)
from ps2stream.posts.members import AttributeChoice
from ps2stream.space.grid import Grid
from tests.support.archived import rows_of, some_posts
from tests.support.archived_world import ArchivedWorld

ANALYSIS = Analysis(salt=5)
WORDS = ["flood", "Flood", "river", "東京", "don't", "😀", "a\nb"]


def placed(seed: int, count: int) -> tuple[pa.Table, list[tuple[int, int, str]]]:
    """PLACED of some objects of two hours at few places, and hour, cell and text of each."""
    rng, grid = random.Random(seed), Grid(3, 2)
    posts = [
        post._replace(
            lon=rng.choice([0.0, 1.0, 90.0]), text=" ".join(rng.choices(WORDS, k=rng.randrange(4)))
        )
        for post in some_posts(rng, count)
    ]
    table = make_table([ArchivedBatch(7, 1, rows_of(posts))], 0, 0, 0)
    times = pa.array([rng.choice([5, HOUR_MS - 1, HOUR_MS, 3 * HOUR_MS]) for _ in posts])
    table = table.set_column(table.schema.get_field_index("archived"), "archived", times)
    found = pa.Table.from_batches(place_objects(grid, iter(table.to_batches())), PLACED)
    cells = grid.cells(
        np.array([p.lon for p in posts]), np.array([p.lat for p in posts]), 0
    ).tolist()
    hours = [t // HOUR_MS for t in times.to_pylist()]
    return found, list(zip(hours, cells, [p.text for p in posts], strict=True))


def test_objects_are_placed_and_their_words_counted() -> None:
    analyzer = Analyzer(ANALYSIS)
    for seed in range(4):
        table, rows = placed(seed, 40)
        assert table.select(["hour", "cell", "text"]).to_pylist() == [
            {"hour": hour, "cell": cell, "text": text} for hour, cell, text in rows
        ]
        want: Counter[tuple[int, str]] = Counter()
        for hour, _, text in rows:
            want.update((hour, term) for term in ["", *set(analyzer.tokens(text))])
        found: Counter[tuple[int, str]] = Counter()
        for part in count_hour_terms(ANALYSIS, iter(table.to_batches(max_chunksize=7))):
            assert part.schema == HOUR_TERMS
            for row in part.to_pylist():
                found[row["hour"], row["term"]] += row["objects"]
        assert found == want


def test_no_objects_have_no_words() -> None:
    table, _ = placed(1, 3)
    empty = table.slice(0, 0).combine_chunks()
    none = np.zeros(0, np.int64)
    assert not len(HourTermCounter(Analyzer(ANALYSIS)).count(empty, none))


def test_words_that_were_forgotten_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    texts = [" ".join(f"w{rng.randrange(60)}" for _ in range(5)) for _ in range(200)]
    zeros = np.zeros(20, np.int64)
    sums = []
    for most in (1 << 20, 0, 30):
        monkeypatch.setattr(archived_terms, "_MOST_WORDS", most)
        counter, found = HourTermCounter(Analyzer(ANALYSIS)), Counter[str]()
        for first in range(0, 200, 20):
            part = pa.table({"text": texts[first : first + 20]})
            for row in counter.count(part, zeros).to_pylist():
                found[row["term"]] += row["objects"]
        sums.append(found)
    want = Counter(term for text in texts for term in ["", *set(text.split())])
    assert sums == [want] * 3


def write_compacted(folder: Path) -> CompactedManifest:
    """Writes an archive with two hours of two objects each, whose tables have other words than the
    texts, so that a count tells where it is from; the table of the second is of another analysis.
    Beside them, two objects that are not compacted. Returns the manifest."""
    world = ArchivedWorld(folder, 1)
    world.append(2)
    world.sync()
    world.look(is_last=True)
    world.writer.close()
    ((_, raw),) = read_snapshot(folder).raw
    (folder / COMPACTED / "000001").mkdir(parents=True)
    files, analyses = list[CompactedFile](), dict[str, str]()
    for hour, word, stemmer in ((1, "flood", None), (2, "river", "english")):
        table = pq.read_table(raw)
        place = table.schema.get_field_index("text")
        table = table.set_column(place, "text", pa.array([f"text{hour} dykes"] * 2))
        rows = [{"hour": hour, "term": term, "objects": 2} for term in ("", word)]
        for kind, held in (("objects", table), ("terms", pa.Table.from_pylist(rows, HOUR_TERMS))):
            name = f"000001/{kind}-{hour}.parquet"
            pq.write_table(held, folder / COMPACTED / name)
            files.append(CompactedFile(name, hour, 2, 1, kind))
        analyses[name] = describe_analysis(Analysis(3, stemmer))
    manifest = CompactedManifest(1, {}, tuple(files), (9, 8), analyses=analyses)
    (folder / COMPACTED / MANIFEST).write_bytes(manifest.encode())
    return manifest


def count_words(folder: Path, analysis: Analysis) -> Counter[str]:
    found: Counter[str] = Counter()
    for part in count_archive(str(folder), analysis, AttributeChoice("none")):
        for row in part.to_pylist():
            found[row["term"]] += row["objects"]
    return found


@pytest.mark.parametrize(
    ("stemmer", "words"),
    [
        (None, {"flood": 2, "text2": 2, "dykes": 2}),
        ("english", {"river": 2, "text1": 2, "dyke": 2}),
    ],
)
def test_words_come_from_tables_of_the_same_analysis_and_else_from_texts(
    tmp_path: Path, stemmer: str | None, words: dict[str, int]
) -> None:
    """Whatever the salt, which no table depends on."""
    manifest = write_compacted(tmp_path)
    assert read_manifest(tmp_path) == manifest
    analysis = Analysis(9, stemmer)
    want = Counter(words)
    for batch in pq.read_table(read_snapshot(tmp_path).raw[0][1]).to_pylist():
        want.update(set(Analyzer(analysis).tokens(batch["text"])))
    assert count_words(tmp_path, analysis) == want


def test_an_hour_with_a_withdrawn_object_is_counted_again(tmp_path: Path) -> None:
    write_compacted(tmp_path)
    snapshot, nothing = read_archive(tmp_path)
    ((partition, raw),) = snapshot.raw
    found = ArchiveTerms.of(snapshot, nothing, ANALYSIS)
    assert [path.name for path in found.tables] == ["terms-1.parquet"]
    assert [path.name for path in found.counted] == ["objects-1.parquet"]
    assert [path.name for path in found.others] == ["objects-2.parquet", raw.name]
    id = pq.read_table(raw)["id"].to_pylist()[0]
    append_withdrawn(dispatcher_folder(tmp_path, partition), ArchivePoint(9, 0), [id])
    found = ArchiveTerms.of(*read_archive(tmp_path), ANALYSIS)
    assert (found.tables, found.counted) == ([], [])
    assert found.others == snapshot.files
