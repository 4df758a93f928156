"""Single bits flipped in the files of a stopped service, of each kind on each kind of node.

Each must be told by an error that names the file, or be harmless: the same queries, the same
undelivered matches, the same archive, and a service that goes on. The controller has no files.
Those of a worker, its snapshots, are damaged by tests/unit/store/test_snapshots.py, and what lies
in PostgreSQL or Kafka by tests/postgres and tests/kafka.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ps2stream.archive.reading import read_batches
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import Ps2StreamError
from tests.chaos.run import Say

QUERIES = 200
OBJECTS = 300
LATE_S = 10.0
QUIET_S = 6.0
DATA, ARCHIVE = "data", "archive"
NODES = {"objects": "dispatcher", "matches": "merger"}
KINDS = {
    "sequencer ledger.db", "sequencer ledger.db-wal", "sequencer mark",
    "dispatcher identity", "dispatcher mark", "dispatcher *.segment",
    "merger identity", "merger mark", "merger *.segment",
    "archive archive.json", "archive mark.json", "archive *.parquet",
}  # fmt: skip
"""What must be among them. The plan is a record of the ledger, tokens are as well."""
Rows = tuple[tuple[str, ...], ...]
Content = tuple[Rows, Rows, Rows]
"""Queries, matches that nobody took, and objects in the archive."""


def flips(count: int, seed: int, say: Say) -> dict[str, Any]:
    """`count` flips, spread over the kinds of files; "held" says whether none was silent."""
    rng = random.Random(seed)
    told: Counter[str] = Counter()
    harmless: Counter[str] = Counter()
    silent: list[str] = []
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as folder:
        copy, images = (
            Path(folder) / "copy",
            [Path(folder) / name for name in ("stopped", "killed")],
        )
        _make(*images)
        dues = []
        for image in images:
            shutil.copytree(image, copy)
            dues.append(_content(copy))
            shutil.rmtree(copy)
        if dues[0][:2] != dues[1][:2]:
            silent.append("a killed service's data are not those of a stopped one")
        files = _list_files(images)
        if missing := KINDS - files.keys():
            silent.append(f"there was no {', '.join(sorted(missing))}")
        kinds = sorted(files)
        for n in range(count):
            kind = kinds[n % len(kinds)]
            image, file = rng.choice(files[kind])
            shutil.copytree(image, copy)
            name = str(file.relative_to(image))
            at, bit = rng.randrange(_used(file)), rng.randrange(8)
            data = bytearray((copy / name).read_bytes())
            data[at] ^= 1 << bit
            (copy / name).write_bytes(data)
            what = f"{image.name} {name}, byte {at}, bit {bit}"
            try:
                found = _content(copy)
            except Ps2StreamError as error:
                told[kind] += 1
                parts = Path(name).parts
                named = parts[1].partition("-")[0] if parts[0] == DATA else parts[-1]
                if named not in str(error):
                    silent.append(f"{what}: the error does not name it: {error}")
            except Exception as error:  # noqa: BLE001
                silent.append(f"{what}: {type(error).__name__}: {error}")
            else:
                harmless[kind] += 1
                if found != dues[images.index(image)]:
                    counts = ", ".join(str(len(part)) for part in found)
                    silent.append(f"{what}: {counts} queries, matches and objects")
            shutil.rmtree(copy)
        say(f"{count} flips: {told.total()} told, {harmless.total()} harmless")
    return {
        "held": not silent,
        "flips": count,
        "told": dict(told),
        "harmless": dict(harmless),
        "silent": len(silent),
        "examples": silent[:10],
    }


def _list_files(images: list[Path]) -> dict[str, list[tuple[Path, Path]]]:
    """By node and kind: the image and the file."""
    found: dict[str, list[tuple[Path, Path]]] = {}
    for image in images:
        for file in sorted(image.rglob("*")):
            if file.is_file() and file.stat().st_size and file.name != "lock":
                found.setdefault(_find_kind(file.relative_to(image)), []).append((image, file))
    return found


def _find_kind(path: Path) -> str:
    """Files whose names have numbers are of one kind."""
    node = (
        ARCHIVE
        if path.parts[0] == ARCHIVE
        else NODES.get(path.parts[1].split("-")[0].split(".")[0])
    )
    is_numbered = any(c.isdigit() for c in path.stem)
    return f"{node or 'sequencer'} {'*' + path.suffix if is_numbered else path.name}"


def _settings(image: Path) -> Settings:
    return Settings(
        runtime="local",
        port=0,
        hot="off",
        adjust="off",
        workers=2,
        dispatchers=2,
        mergers=2,
        data_dir=image / DATA,
        archive=image / ARCHIVE,
        archive_s=0.5,
    )


def _make(stopped: Path, killed: Path) -> None:
    """A service's data, with deletes and with matches that nobody took: as it leaves them
    when it stops, and as a kill at a quiet moment does."""
    rng = random.Random(1)
    with start(_settings(stopped)) as service, Client(service.targets[0]) as client:
        for i in range(QUERIES):
            client.insert(
                f"q{i}", rng.choice(["flood", "fire", "flood OR storm"]), session=f"s{i % 3}"
            )
        for i in range(0, QUERIES, 5):
            client.delete(f"q{i}")
        for i in range(OBJECTS // 10):
            client.publish(
                [
                    {"id": f"o{i}.{k}", "lon": rng.uniform(-9, 9), "lat": 0.0, "text": "flood fire"}
                    for k in range(10)
                ]
            )
        time.sleep(QUIET_S)
        shutil.copytree(stopped, killed)


def _content(image: Path) -> Content:
    """Also proves that one more object is matched."""
    parts = read_batches(str(image / ARCHIVE), ["id", "text"])
    archived = [(row["id"], row["text"]) for part in parts for row in part.to_pylist()]
    pairs: list[tuple[str, str]] = []
    with start(_settings(image)) as service, Client(service.targets[0]) as client:
        queries = sorted((q.id, q.expression) for q in client.list())
        client.publish([{"id": "the end", "lon": 0.0, "lat": 0.0, "text": "flood"}])
        for session in range(3):
            want = sum(q[1] != "fire" for q in queries if int(q[0][1:]) % 3 == session)
            with client.subscribe(f"s{session}") as stream:
                late = threading.Timer(LATE_S, stream.close)
                late.start()
                for match in stream:
                    if match.object_id != "the end":
                        pairs.append((match.query_id, match.object_id))
                    else:
                        want -= 1
                        if not want:
                            break
                late.cancel()
    return tuple(queries), tuple(sorted(pairs)), tuple(sorted(archived))


def _used(file: Path) -> int:
    """Bytes up to the last one that is not 0: segments take their room in advance."""
    return len(file.read_bytes().rstrip(b"\0")) or 1
