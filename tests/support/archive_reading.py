"""What readers of an archive find, withdrawals, and a compaction without Spark, for tests."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.archive.layout import (
    COMPACTED,
    MANIFEST,
    CompactedFile,
    RawFile,
    read_snapshot,
)
from ps2stream.archive.reading import count_rows, read_batches
from ps2stream.archive.withdrawn import read_withdrawn
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.log_records import WithdrawalRecord
from ps2stream.store.directory import lock_directory, replace_file
from tests.support.archived import Key
from tests.support.archived_world import ArchivedWorld


def withdraw(world: ArchivedWorld, ids: list[str], counted: int = 0, lsn: int = 0) -> int:
    """Logs a withdrawal; returns its position."""
    return world.log.append(WithdrawalRecord(*strings_to_column(ids), counted, lsn).encode())


def read_keys(path: Path) -> set[Key]:
    """What a reader finds now; fails if an object is there twice."""
    found: list[Key] = []
    for part in read_batches(str(path), ["offset", "series", "partition"], 7):
        assert part.schema.names == ["offset", "series", "partition"]
        found += [(r["partition"], r["series"], r["offset"]) for r in part.to_pylist()]
    assert len(found) == len(set(found)) == count_rows(str(path))
    return set(found)


class Compaction:
    """What `archive compact` does, without Spark: it reads when it begins, and the manifest is
    replaced when it ends. `hours` of what retention keeps."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = lock_directory(path / COMPACTED)
        self._snapshot = read_snapshot(path)
        self._withdrawn = read_withdrawn(self._snapshot)

    def read(self) -> None:
        """Reads the objects, if they are still there."""
        parts = [self._withdrawn.keep(pq.read_table(file)) for file in self._snapshot.files]
        self._rows = pa.concat_tables(parts) if parts else None

    def end(self, keeps: bool) -> None:
        old = self._snapshot.manifest
        generation, through = old.generation + 1, dict(old.through)
        for partition, path in self._snapshot.raw:
            file = RawFile.parse(path.name)
            assert file is not None
            through[partition] = max(through.get(partition, file.reaches), file.reaches)
        files: tuple[CompactedFile, ...] = ()
        if self._rows is not None and keeps:
            name = f"{generation}.parquet"
            pq.write_table(self._rows, self._path / COMPACTED / name)
            files = (CompactedFile(name, 0, self._rows.num_rows, 1, "objects"),)
        manifest = dataclasses.replace(
            old, generation=generation, through=through, files=files,
            withdrawn=self._withdrawn.counts,
        )  # fmt: skip
        replace_file(self._path / COMPACTED / MANIFEST, manifest.encode())

    def close(self) -> None:
        self._lock.close()
