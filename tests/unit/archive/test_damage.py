"""A flipped bit in a file of an archive is told by the file's name, or changes nothing."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ps2stream.archive.layout import HEAD, MARK
from ps2stream.archive.reading import count_rows, read_batches
from ps2stream.errors import InvalidArgument
from tests.support.archived_world import ArchivedWorld

FLIPS = 500
COLUMNS = ["partition", "series", "offset", "lsn", "id", "time", "lon", "lat", "text", "payload"]


def read_all(path: Path) -> tuple[int, list[dict[str, Any]]]:
    rows = [row for part in read_batches(str(path), COLUMNS) for row in part.to_pylist()]
    return count_rows(str(path)), rows


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of one file."""
    path = tmp_path_factory.mktemp("damaged") / "archive"
    world = ArchivedWorld(path)
    for _ in range(5):
        world.append()
    world.sync()
    world.look(is_last=True)
    world.check()
    world.writer.close()
    return path


@pytest.mark.parametrize("name", [HEAD, f"dispatcher-3/{MARK}", "*.parquet"])
def test_no_flipped_bit_is_silent(path: Path, name: str) -> None:
    (file,) = path.rglob(name)
    data, due = file.read_bytes(), read_all(path)
    assert len(due[1]) == 20
    rng, ends = random.Random(1), Counter[str]()
    for at in rng.sample(range(len(data)), min(len(data), FLIPS)):
        bad = bytearray(data)
        bad[at] ^= 1 << rng.randrange(8)
        file.write_bytes(bad)
        try:
            found, problem = read_all(path), ""
        except InvalidArgument as error:
            found, problem = due, str(error)
        assert not problem or str(file) in problem, at
        assert repr(found) == repr(due), at
        ends["told" if problem else "harmless"] += 1
    file.write_bytes(data)
    assert read_all(path) == due
    assert ends["told"] > ends["harmless"]
