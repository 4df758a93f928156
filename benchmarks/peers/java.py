"""Indexes of others that run on Java: compiled here, and run in a process of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ps2stream.benchmarks.figures import summarise_values
from ps2stream.benchmarks.peers.alerts import OwnIndex, PeerFigures, make_searches
from ps2stream.errors import FailedPrecondition, invalid

JavaPeer = Literal["lucene", "fast"]
_HERE = Path(__file__).resolve().parent
_CLASSES = {"lucene": "LucenePeer", "fast": "FastPeer"}
_BATCHES = {"lucene": (1, 32), "fast": (1,)}
"""Objects a call; FAST takes one, and Lucene Monitor gains nothing by more."""
_OBJECTS = {"lucene": 1024, "fast": 40_960}
_MEMORY = "-Xmx12g"
_OWN_BATCHES = (1, 1024)
WARM = 2
"""Passes over the objects before those that count: Java compiles what it runs often."""


def run_java_peer(
    peer: JavaPeer,
    code: Path,
    queries: int = 100_000,
    objects: int = 0,
    runs: int = 3,
    seed: int = 1,
) -> dict[str, Any]:
    """Returns objects per processor second of a peer and of our index, for each number of objects a
    call, JSON-able; verified: the number of results that differ from the first. code: lucene: the
    folder of its jars; fast: a checkout of its code. objects: 0: as many as are worth measuring.
    Raises InvalidArgument and FailedPrecondition where something is not there."""
    objects = objects or _OBJECTS[peer]
    searches = make_searches(queries, objects, seed)
    with tempfile.TemporaryDirectory() as folder:
        classpath = compile_peer(_CLASSES[peer], *_find_code(peer, code), Path(folder))
        paths = [Path(folder) / "queries.tsv", Path(folder) / "objects.tsv"]
        searches.write_queries(paths[0])
        searches.write_objects(paths[1])
        theirs = {
            f"{peer}, {size} a call": run_passes(_CLASSES[peer], classpath, paths, size, runs)
            for size in _BATCHES[peer]
        }
    index = OwnIndex(searches)
    ours = {
        f"ps2stream, {size} a call": [index.run(size) for _ in range(runs + 1)][1:]
        for size in _OWN_BATCHES
    }
    found = ours | theirs
    every = [figures for passes in found.values() for figures in passes]
    return {
        "settings": {"peer": peer, "queries": queries, "objects": objects, "seed": seed},
        "matches_per_object": every[0].matches / objects,
        "objects_per_cpu_second": {
            name: summarise_values([one.rate for one in passes]) for name, passes in found.items()
        },
        "over_peer": _find_best(ours) / _find_best(theirs),
        "verified": {"different": len({(one.matches, one.digest) for one in every}) - 1},
    }


def _find_best(found: Mapping[str, Sequence[PeerFigures]]) -> float:
    return max(float(np.median([one.rate for one in passes])) for passes in found.values())


def _find_code(peer: JavaPeer, code: Path) -> tuple[str, Path | None]:
    """Returns the class path and the folder of sources of a peer's own code."""
    if peer == "lucene":
        if not list(code.glob("lucene-monitor-*.jar")):
            raise invalid("jars", f"there is no lucene-monitor-*.jar in {code}")
        return f"{code}/*", None
    sources = code / "src" / "main" / "java"
    if not (sources / "edu/purdue/cs/fast/baselines/fast/LFAST.java").is_file():
        raise invalid("fast_code", f"{code} is not a checkout of FAST with its baselines")
    return "", sources


def compile_peer(
    name: str, classpath: str, sources: Path | None, folder: Path, own: Path = _HERE
) -> str:
    """Compiles the class `name` of `own` into `folder`, with PeerRun; returns the class path to run
    it with. Raises FailedPrecondition where there is no JDK."""
    if shutil.which("javac") is None or shutil.which("java") is None:
        raise FailedPrecondition("java and javac are not here; install a JDK, 17 or newer")
    path = ":".join(filter(None, (classpath, str(folder))))
    words = ["javac", "-nowarn", "-d", str(folder), "-cp", path]
    words += [] if sources is None else ["-sourcepath", str(sources)]
    words += [str(_HERE / "PeerRun.java"), str(own / f"{name}.java")]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise FailedPrecondition(f"{name} could not be compiled: {done.stderr.strip()}")
    return path


def run_passes(
    name: str, classpath: str, paths: Sequence[Path], size: int, runs: int
) -> list[PeerFigures]:
    """Runs a compiled peer over the files of queries and objects, `size` objects a call."""
    words = ["java", _MEMORY, "-cp", classpath, "PeerRun", name, *map(str, paths)]
    words += [str(size), str(WARM + runs)]
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise FailedPrecondition(f"{name} ended with code {done.returncode}")
    rows = [json.loads(line) for line in done.stdout.splitlines()][WARM:]
    return [PeerFigures(r["objects"], r["cpu_s"], r["matches"], r["digest"]) for r in rows]
