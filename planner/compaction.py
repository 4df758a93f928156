"""Compaction of an archive by Spark: its objects by hour and cell, term statistics, retention.

What counts is what `compacted/manifest.json` names, which is replaced as a whole at the end. So a
reader sees the archive as before or as after, and a run that is killed changed nothing; the next
one removes what it left.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ps2stream.archive.columns import SCHEMA
from ps2stream.archive.layout import (
    COMPACTED,
    MANIFEST,
    ArchivePoint,
    ArchiveSnapshot,
    CompactedFile,
    CompactedManifest,
    RawFile,
    describe_missing,
    read_snapshot,
)
from ps2stream.archive.withdrawn import WithdrawnObjects, read_withdrawn
from ps2stream.language.analyzer import Analysis
from ps2stream.planner.archived_terms import (
    HOUR_MS,
    HOUR_TERMS,
    PLACED,
    TEXTS,
    count_hour_terms,
    describe_analysis,
    place_objects,
)
from ps2stream.planner.spark import describe_error
from ps2stream.planner.spark_archive import leave_out_withdrawn
from ps2stream.posts.post import bad
from ps2stream.space.grid import Grid

FILE_BYTES = 128 << 20
"""About how many bytes of a dispatcher's files become one file."""
SMALL_BYTES = 64 << 20
"""Bytes of dispatchers' files below which the JVM's second compiler costs more than it saves."""
_PLACE = ("hour", "cell", "partition", "series", "offset")


@dataclasses.dataclass(frozen=True)
class CompactionOptions:
    """What compaction keeps: files of objects that were archived in the last `hours`, and of these
    the newest of at most `size_bytes`; both None for all. What no longer counts is removed once
    that is known for `grace_s`. analysis: of the term statistics."""

    hours: float | None = None
    size_bytes: int | None = None
    grace_s: float = 600.0
    analysis: Analysis = dataclasses.field(default_factory=lambda: Analysis(salt=0))


@dataclasses.dataclass(frozen=True)
class CompactionReport:
    """What a run did: objects and files that it took from dispatchers, hours that it wrote, files
    that retention dropped, files of earlier runs that it removed; the manifest after it."""

    objects: int
    files: int
    hours: int
    dropped: int
    removed: int
    manifest: CompactedManifest


def choose_settings(path: Path) -> dict[str, str]:
    """Returns the settings of a session that compacts this archive."""
    size = 0
    for _, file in read_snapshot(path).raw:
        with suppress(FileNotFoundError):  # its dispatcher has removed it meanwhile
            size += file.stat().st_size
    little = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    return little if size < SMALL_BYTES else {}


def compact(
    spark: Callable[[], SparkSession],
    path: Path,
    options: CompactionOptions,
    now_ms: int,
    replace: Callable[[Path, bytes], None],
    progress: Callable[[str], None] = lambda what: None,
) -> CompactionReport:
    """Compacts the archive, by one process at a time. spark: returns a session, if one is needed;
    replace: replaces a file as a whole, durably. Raises InvalidArgument, OSError."""
    snapshot = read_snapshot(path)
    removed = _remove_unneeded(snapshot, now_ms - options.grace_s * 1000)
    manifest = snapshot.manifest
    generation = manifest.generation + 1
    if not manifest.generation:
        grid = Grid()
        manifest = dataclasses.replace(manifest, bits=(grid.lon_bits, grid.lat_bits))
    made: list[CompactedFile] = []
    withdrawn = read_withdrawn(snapshot)
    written = {_hour_of(file) for _, file in snapshot.raw} | {
        f.hour
        for f in manifest.files
        if f.kind == "objects" and withdrawn.touches(path / COMPACTED / f.path)
    }
    if written:
        again = [f for f in manifest.files if f.hour in written and f.kind == "objects"]
        inputs = [file for _, file in snapshot.raw] + [path / COMPACTED / f.path for f in again]
        progress(f"Spark: {len(snapshot.raw):,} files of {len(written):,} hours")
        folder = path / COMPACTED / f"{generation:06}"
        grid = Grid(*manifest.bits)
        _write_files(spark(), inputs, folder, grid, options.analysis, withdrawn)
        made = _collect_files(folder)
    files = [f for f in manifest.files if f.hour not in written] + made
    kept = retain(files, options, now_ms)
    taken = sum(f.rows for f in made if f.kind == "objects") - sum(
        f.rows for f in manifest.files if f.hour in written and f.kind == "objects"
    )
    dropped = len(files) - len(kept)
    if written or dropped or manifest.withdrawn != withdrawn.counts:
        settings = describe_analysis(options.analysis)
        analyses = {**manifest.analyses} | {f.path: settings for f in made if f.kind == "terms"}
        names = {f.path for f in kept}
        manifest = dataclasses.replace(
            manifest,
            generation=generation,
            through=advance(manifest.through, snapshot.raw),
            files=tuple(kept),
            withdrawn=withdrawn.counts,
            analyses={path: by for path, by in analyses.items() if path in names},
        )
        replace(path / COMPACTED / MANIFEST, manifest.encode())
    taken = max(taken, 0)  # of rewritten hours, less what was withdrawn
    return CompactionReport(taken, len(snapshot.raw), len(written), dropped, removed, manifest)


def retain(
    files: Sequence[CompactedFile], options: CompactionOptions, now_ms: int
) -> list[CompactedFile]:
    """Returns the files that retention keeps, by hour: whole hours, of which the newest stays
    whatever its bytes."""
    ordered = sorted(files, key=lambda f: (f.hour, f.kind, f.path))
    if options.hours is not None:
        oldest = now_ms - options.hours * HOUR_MS
        ordered = [f for f in ordered if (f.hour + 1) * HOUR_MS > oldest]
    if options.size_bytes is not None:
        total = sum(f.size_bytes for f in ordered)
        for hour in sorted({f.hour for f in ordered})[:-1]:
            if total <= options.size_bytes:
                break
            total -= sum(f.size_bytes for f in ordered if f.hour == hour)
            ordered = [f for f in ordered if f.hour != hour]
    return ordered


def advance(
    through: Mapping[int, ArchivePoint], raw: Sequence[tuple[int, Path]]
) -> dict[int, ArchivePoint]:
    """Returns up to where each dispatcher's objects are compacted once these files are."""
    found = dict(through)
    for partition, path in raw:
        if (file := RawFile.parse(path.name)) is not None:
            found[partition] = max(found.get(partition, file.reaches), file.reaches)
    return found


def _remove_unneeded(snapshot: ArchiveSnapshot, before_ms: float) -> int:
    """Removes what a run that was killed has left, and, if the manifest is older than `before_ms`,
    what it made superfluous. Returns how many files."""
    folder = snapshot.path / COMPACTED
    generation = snapshot.manifest.generation
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name.isdecimal() and int(path.name) > generation:
            shutil.rmtree(path)
    manifest = folder / MANIFEST
    if not generation or manifest.stat().st_mtime * 1000 > before_ms:
        return 0
    needed = {f.path for f in snapshot.manifest.files}
    gone = [p for p in folder.glob("*/*.parquet") if str(p.relative_to(folder)) not in needed]
    for path in (*gone, *snapshot.superseded):
        path.unlink(missing_ok=True)
    for path in folder.iterdir():
        if path.name.isdecimal() and not any(path.iterdir()):
            path.rmdir()
    return len(gone) + len(snapshot.superseded)


def _hour_of(path: Path) -> int:
    """Returns the hour in which a dispatcher's file was written."""
    try:
        group = pq.read_metadata(path).row_group(0)
    except FileNotFoundError:
        raise describe_missing(path) from None
    statistics = group.column(SCHEMA.get_field_index("archived")).statistics
    return int(statistics.min) // HOUR_MS


def _write_files(
    spark: SparkSession,
    inputs: Sequence[Path],
    folder: Path,
    grid: Grid,
    analysis: Analysis,
    withdrawn: WithdrawnObjects,
) -> None:
    """Writes objects and terms of these files below `folder`, by hour, without what is
    withdrawn."""
    try:
        rows = spark.read.schema(from_arrow_schema(SCHEMA)).parquet(*map(str, inputs))
        parts = 1 + sum(path.stat().st_size for path in inputs) // FILE_BYTES
        _write_tables(leave_out_withdrawn(rows, withdrawn), parts, folder, grid, analysis)
    except (PySparkException, Py4JJavaError) as error:
        raise bad("spark", describe_error(error)) from error


def _write_tables(
    rows: DataFrame, parts: int, folder: Path, grid: Grid, analysis: Analysis
) -> None:
    placed = rows.mapInArrow(partial(place_objects, grid), from_arrow_schema(PLACED))
    objects = placed.repartitionByRange(parts, *_PLACE).sortWithinPartitions(*_PLACE)
    _write_table(objects, folder / "objects")
    terms = rows.select(*TEXTS).mapInArrow(
        partial(count_hour_terms, analysis), from_arrow_schema(HOUR_TERMS)
    )
    keys = ("hour", "term")
    summed = terms.groupBy(*keys).agg(F.sum("objects").alias("objects"))
    _write_table(
        summed.repartitionByRange(parts, *keys).sortWithinPartitions(*keys), folder / "terms"
    )


def _write_table(rows: DataFrame, folder: Path) -> None:
    rows.write.partitionBy("hour").option("compression", "zstd").parquet(str(folder))


def _collect_files(folder: Path) -> list[CompactedFile]:
    """Gives the files that Spark wrote their names in `folder`, makes them durable and closes them
    to others. Returns them."""
    found = []
    for kind in ("objects", "terms"):
        parts = sorted((folder / kind).glob("hour=*/*.parquet"))
        for number, part in enumerate(parts):
            hour = int(part.parent.name.removeprefix("hour="))
            path = folder / f"{kind}-{hour:08}-{number:05}.parquet"
            part.rename(path)
            path.chmod(0o600)
            with path.open("rb") as file:
                os.fsync(file.fileno())
            rows = int(pq.read_metadata(path).num_rows)
            name = str(path.relative_to(folder.parent))
            found.append(CompactedFile(name, hour, rows, path.stat().st_size, kind))
        shutil.rmtree(folder / kind)
    folder.chmod(0o700)
    for each in (folder, folder.parent):
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    return found
