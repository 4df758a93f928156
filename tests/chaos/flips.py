"""Single bits flipped in the files of a stopped service.

Each must be told by an error that names the file, or be harmless: the same queries, the same
undelivered matches, and a service that goes on.
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

from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import Ps2StreamError
from tests.chaos.run import Say

QUERIES = 200
OBJECTS = 300
LATE_S = 10.0
QUIET_S = 4.0
Content = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]


def flips(count: int, seed: int, say: Say) -> dict[str, Any]:
    """`count` flips, spread over the files; "held" says whether none was silent."""
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
        if dues[0] != dues[1]:
            silent.append("a killed service's data are not those of a stopped one")
        files = [
            (image, file)
            for image in images
            for file in sorted(image.rglob("*"))
            if file.is_file() and file.stat().st_size
        ]
        for n in range(count):
            image, file = files[n % len(files)]
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
                told[name] += 1
                if Path(name).parts[0].partition("-")[0] not in str(error):
                    silent.append(f"{what}: the error does not name it: {error}")
            except Exception as error:  # noqa: BLE001
                silent.append(f"{what}: {type(error).__name__}: {error}")
            else:
                harmless[name] += 1
                if found != dues[0]:
                    silent.append(f"{what}: {len(found[0])} queries, {len(found[1])} matches")
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


def _settings(data: Path) -> Settings:
    return Settings(
        runtime="local",
        port=0,
        hot="off",
        adjust="off",
        workers=2,
        dispatchers=2,
        mergers=2,
        data_dir=data,
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


def _content(data: Path) -> Content:
    """Queries and untaken matches, and the proof that one more object is matched."""
    pairs: list[tuple[str, str]] = []
    with start(_settings(data)) as service, Client(service.targets[0]) as client:
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
    return tuple(queries), tuple(sorted(pairs))


def _used(file: Path) -> int:
    """Bytes up to the last one that is not 0: segments take their room in advance."""
    return len(file.read_bytes().rstrip(b"\0")) or 1
