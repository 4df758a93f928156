"""Compaction of an archive: readers find each object once, before, after, and if it is killed."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from ps2stream.archive.layout import (
    COMPACTED,
    MANIFEST,
    ArchivePoint,
    CompactedFile,
    read_manifest,
    read_snapshot,
)
from ps2stream.archive.withdrawn import read_archive
from ps2stream.cli import main
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner import compaction
from ps2stream.planner import spark as engine
from ps2stream.planner.archived_terms import HOUR_MS, ArchiveTerms
from ps2stream.planner.compaction import (
    CompactionOptions,
    CompactionReport,
    advance,
    choose_settings,
    compact,
    retain,
)
from ps2stream.planner.job import PlanJob, sample_of
from ps2stream.planner.spark_archive import read_archived
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.log_records import WithdrawalRecord
from ps2stream.store.directory import lock_directory, replace_file
from tests.support.archive_reading import withdraw
from tests.support.archived import Post, archived
from tests.support.archived_world import ArchivedWorld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


class Killed(BaseException):
    """The process was killed."""


def grow(world: ArchivedWorld, files: int) -> None:
    """Lets the dispatcher write so many files, of hours that follow one another."""
    for _ in range(files):
        world.append(6)
        world.sync()
        world.look(is_last=True)
        world.now_ms += HOUR_MS // 2


def die(_: Path, data: bytes) -> None:
    raise Killed


def count_rows(spark: SparkSession, path: Path) -> int:
    snapshot, withdrawn = read_archive(path)
    return read_archived(spark, snapshot.files, withdrawn).count()


def no_spark() -> SparkSession:
    raise AssertionError("no session is needed")


@pytest.mark.takes_turns(0)
def test_each_object_is_there_once_and_words_are_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    world = ArchivedWorld(path, 3)
    left = path / COMPACTED / "000001" / "objects"
    left.mkdir(parents=True)  # by a run that was killed
    (left / "part.parquet").write_text("half a file")

    def run() -> CompactionReport:
        found = compact(
            lambda: spark, path, CompactionOptions(grace_s=60.0), world.now_ms, replace_file
        )
        os.utime(path / COMPACTED / MANIFEST, (0.0, world.now_ms / 1000))
        return found

    grow(world, 3)
    world.check()
    first = run()
    assert (first.objects, first.files, first.hours) == (18, 3, 2)
    world.check()
    assert not read_snapshot(path).raw
    assert len(list(world.writer.folder.glob("*.parquet"))) == 3  # for those who read them
    world.now_ms -= HOUR_MS // 2
    grow(world, 2)  # of which the first is of an hour that is compacted
    world.check()
    second = run()
    assert (second.objects, second.files, second.hours, second.removed) == (12, 2, 2, 3)
    world.check()
    assert len(list(world.writer.folder.glob("*.parquet"))) == 2

    analyzer = Analyzer(Analysis(salt=0))
    want: Counter[str] = Counter()
    for _, post in archived(path).values():
        want.update(["", *set(analyzer.tokens(post.text))])
    found: Counter[str] = Counter()
    for file in second.manifest.files:
        assert (path / COMPACTED / file.path).stat().st_mode & 0o77 == 0
        rows = pq.read_table(path / COMPACTED / file.path).to_pylist()
        assert len(rows) == file.rows
        if file.kind == "terms":
            for row in rows:
                found[row["term"]] += row["objects"]
        else:
            assert {row["archived"] // HOUR_MS for row in rows} == {file.hour}
            assert [row["cell"] for row in rows] == sorted(row["cell"] for row in rows)
    assert found == want

    job = PlanJob(objects=[str(path)], engine="numpy")
    by_spark = engine.take(spark, engine.SampleFiles([str(path)], []), job.analysis)
    by_numpy = sample_of(job)
    assert by_spark.objects == by_numpy.objects == 30
    assert by_spark.frequencies == by_numpy.frequencies
    counted = ArchiveTerms.of(*read_archive(path), job.analysis)
    assert len(counted.counted) == len(counted.tables) > 1
    assert not counted.others  # so the words are those of the tables
    words = {word: count for word, count in want.items() if word}
    assert {t: n for t, n in by_spark.frequencies.items() if t in words} == words

    kept = max(file.hour for file in second.manifest.files)
    hours = (world.now_ms - kept * HOUR_MS) / HOUR_MS
    unchanged = (path / COMPACTED / MANIFEST).read_bytes()
    with pytest.raises(Killed):
        compact(no_spark, path, CompactionOptions(hours=hours), world.now_ms, die)
    assert (path / COMPACTED / MANIFEST).read_bytes() == unchanged
    world.check()
    third = compact(
        no_spark, path, CompactionOptions(hours=hours, grace_s=0.0), world.now_ms, replace_file
    )
    assert third.dropped > 0
    assert {file.hour for file in third.manifest.files} == {kept}
    names = {file.path for file in third.manifest.files}
    os.utime(path / COMPACTED / MANIFEST, (0.0, world.now_ms / 1000))
    last = compact(no_spark, path, CompactionOptions(grace_s=0.0), world.now_ms, replace_file)
    assert last.manifest == third.manifest
    left_files = {str(p.relative_to(path / COMPACTED)) for p in (path / COMPACTED).glob("*/*")}
    assert left_files == names
    assert sum(f.rows for f in last.manifest.files if f.kind == "objects") == len(archived(path))
    world.writer.close()


@pytest.mark.takes_turns(1)
def test_withdrawn_objects_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    world = ArchivedWorld(path, 5)

    def run() -> CompactionReport:
        options = CompactionOptions(grace_s=0.0)
        return compact(lambda: spark, path, options, world.now_ms, replace_file)

    def withdraw(post: Post) -> None:
        ids = strings_to_column([post.id])
        world.log.append(WithdrawalRecord(*ids).encode())
        world.sync()
        world.look(is_last=True)

    def left() -> list[str]:
        return sorted(post.id for _, post in archived(path).values())

    def expected(*gone: Post) -> list[str]:
        names = {post.id for post in gone}
        every = [post.id for _, _, (_, post) in world.logged]
        return sorted(name for name in every if name not in names)

    grow(world, 3)
    first, second = world.logged[0][2][1], world.logged[-1][2][1]
    withdraw(first)  # before its file is compacted
    assert count_rows(spark, path) == len(expected(first))
    run()
    assert left() == expected(first)
    withdraw(second)  # after that
    assert count_rows(spark, path) == len(expected(first, second))
    assert run().files == 0
    assert left() == expected(first, second)
    os.utime(path / COMPACTED / MANIFEST, (1, 1))  # a while ago, by the clock of this world
    done = run()  # removes the files of before
    assert done.manifest.generation == 2
    assert {str(p.relative_to(path / COMPACTED)) for p in (path / COMPACTED).glob("*/*")} == {
        f.path for f in done.manifest.files
    }
    world.writer.close()


@pytest.mark.takes_turns(2)
def test_what_is_withdrawn_of_a_dispatcher_that_has_left_is_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    stays, left = ArchivedWorld(path, 5, partition=0), ArchivedWorld(path, 6)
    for world in (stays, left):
        grow(world, 1)
    left.kill()
    left.writer.close()
    ids = sorted({post.id for _, _, (_, post) in left.logged})[:2]
    for id in ids:  # before its file is compacted, and after that
        withdraw(stays, [id], counted=1, lsn=left.lsn)
        stays.sync()
        stays.look(is_last=True)
        gone = ids[: 1 + ids.index(id)]
        expected = [p.id for _, _, (_, p) in left.logged if p.id not in gone]
        expected += [p.id for _, _, (_, p) in stays.logged if p.id not in gone]
        assert count_rows(spark, path) == len(expected)
        compact(lambda: spark, path, CompactionOptions(), stays.now_ms, replace_file)
        assert sorted(post.id for _, post in archived(path).values()) == sorted(expected)
    stays.writer.close()


def test_nothing_to_compact(tmp_path: Path) -> None:
    world = ArchivedWorld(tmp_path / "archive")
    world.look()
    done = compact(no_spark, world.limits.path, CompactionOptions(), world.now_ms, replace_file)
    assert (done.objects, done.files, done.dropped) == (0, 0, 0)
    assert not (world.limits.path / COMPACTED / MANIFEST).exists()
    assert read_manifest(world.limits.path).generation == 0
    told = CliRunner().invoke(main, ["archive", "compact", str(world.limits.path), "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["objects"] == 0
    with lock_directory(world.limits.path / COMPACTED):
        told = CliRunner().invoke(main, ["archive", "compact", str(world.limits.path)])
    assert "is in use by process" in told.stderr
    world.writer.close()


def test_a_small_archive_is_compacted_by_a_jvm_that_compiles_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ArchivedWorld(tmp_path / "archive")
    grow(world, 1)
    path = world.limits.path
    assert choose_settings(path) == {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    monkeypatch.setattr(compaction, "SMALL_BYTES", 100)
    assert choose_settings(path) == {}
    world.writer.close()


def test_retention_drops_whole_hours_and_keeps_the_newest() -> None:
    files = [CompactedFile(f"{h}{kind}", h, 1, 10, kind) for h in (3, 1, 2)
             for kind in ("objects", "terms")]  # fmt: skip

    def kept(**options: float) -> list[int]:
        found = retain(files, CompactionOptions(**options), 4 * HOUR_MS)  # type: ignore[arg-type]
        return [file.hour for file in found]

    assert kept() == [1, 1, 2, 2, 3, 3]
    assert kept(hours=2.5) == [1, 1, 2, 2, 3, 3]
    assert kept(hours=2.0) == [2, 2, 3, 3]
    assert kept(size_bytes=59) == [2, 2, 3, 3]
    assert kept(size_bytes=40) == [2, 2, 3, 3]
    assert kept(size_bytes=1) == [3, 3]


def test_what_is_compacted_never_goes_back() -> None:
    raw = [
        (0, Path(f"{1:06}-{5:019}-{9:019}.parquet")),
        (2, Path(f"{0:06}-{1:019}-{4:019}.parquet")),
    ]
    found = advance({0: ArchivePoint(0, 70), 1: ArchivePoint(0, 3)}, raw)
    assert found == {0: ArchivePoint(1, 9), 1: ArchivePoint(0, 3), 2: ArchivePoint(0, 4)}
    assert advance({2: ArchivePoint(1, 0)}, raw[1:]) == {2: ArchivePoint(1, 0)}
