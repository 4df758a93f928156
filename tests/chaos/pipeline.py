"""kill -9 of a whole `ps2stream pipeline`, driver, JVM and Python workers, at chosen steps.

Each round adds files, then kills the pipeline amid publishing, then between publishing and commit,
and lets a third run go to its end. The service is killed and started again while the pipeline is
away, or is at work. Every match must then have come once, as brute force has it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ps2stream.client.client import Client
from tests.chaos.host import Host, find_session, send
from tests.chaos.run import Say
from tests.conftest import ROOT
from tests.support.doomed import AMID, BEFORE_COMMIT, FOLDER, HALTED
from tests.support.piped_posts import (
    MAPPING,
    PLAIN,
    draw_rows,
    find_due,
    insert_queries,
    write_rows,
)
from tests.support.spark_options import SETTINGS

FILES = 3
"""New files a round, each a micro-batch."""
ROWS = 400
PATIENCE_S = 300.0
SESSION = "pipeline"


def pipeline(rounds: int, seed: int, say: Say, reader: str = "spark") -> dict[str, Any]:
    """Two kills of the pipeline a round, and two of the service; "held" says whether every match
    came once. The reader `arrow` has a mapping of columns alone."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as name:
        folder = Path(name)
        service = Host(
            folder / "data", folder / "service.log", workers=1, dispatchers=1, mergers=1,
            options=("--runtime=local",),
        )  # fmt: skip
        with service:
            service.start()
            with Client(service.targets[0], timeout=60) as client:
                insert_queries(client, SESSION)
            feed = _Feed(folder, service.targets[0], reader)
            for number in range(rounds):
                for _ in range(FILES):
                    new = draw_rows(rng, len(rows), ROWS)
                    if reader == "arrow":
                        new = [row | {"lang": "en"} for row in new]
                    feed.add_file(new)
                    rows += new
                feed.kill_at(AMID)
                say(f"round {number + 1}: killed amid publishing")
                service.kill()
                service.start()
                say("killed the service, and started it again")
                feed.kill_at(BEFORE_COMMIT)
                say("killed between publishing and commit")
                feed.run_beside_death(service)
                say("killed the service while the pipeline was at work, which then ended")
            due, found = find_due(rows), _read_matches(service.targets[0])
            lost, more = due - found, found - due
            return {
                "held": not lost and not more and due.total() > 0,
                "reader": reader,
                "rounds": rounds,
                "pipeline_kills": 2 * rounds,
                "service_kills": 2 * rounds,
                "due": due.total(),
                "lost": lost.total(),
                "twice_or_false": more.total(),
                "published": feed.published,
                "examples": [str(each) for each in [*lost, *more][:5]],
            }


class _Feed:
    """A pipeline over a folder of files, whose processes are a session of their own."""

    def __init__(self, folder: Path, target: str, reader: str) -> None:
        self._folder = folder
        self._doom = folder / "doom"
        self._files = 0
        self._log = folder / "pipeline.log"
        self.published = 0
        settings = SETTINGS | {"spark.python.daemon.module": "tests.support.doomed_daemon"}
        mapping = PLAIN if reader == "arrow" else MAPPING
        words = [f"--map={n}={e}" for n, e in mapping["posts"].items() if n != "where"]
        words += [f"--where={where}"] if (where := mapping["posts"].get("where")) else []
        words += [f"--attribute={n}={e}" for n, e in mapping["attributes"].items()]
        words += [f"--reader={reader}"]
        words += [f"--spark={n}={e}" for n, e in settings.items()]
        self._command = [
            sys.executable, "-m", "tests.support.doomed_pipeline", "pipeline", "--json",
            f"--from=parquet:{folder / 'posts'}", "--option=maxFilesPerTrigger=1",
            f"--checkpoint={folder / 'position'}", "--partitions=3", "--trigger=once",
            "--skip-bad", f"--server={target}", *words,
        ]  # fmt: skip
        for part in ("posts", "doom"):
            (folder / part).mkdir()

    def add_file(self, rows: list[dict[str, Any]]) -> None:
        self._files += 1
        hidden = self._folder / f"_{self._files}.parquet"
        write_rows(hidden, rows)
        hidden.rename(self._folder / "posts" / f"{self._files}.parquet")

    def kill_at(self, step: str) -> None:
        """Starts the pipeline; kill -9 of all its processes once it halts at the step."""
        with self._halt(step) as process:
            _kill_session(process)

    def run_beside_death(self, service: Host) -> None:
        """Runs the pipeline to its end; the service is killed amid publishing, and started again
        while the pipeline goes on."""
        with self._halt(AMID) as process:
            service.kill()
            self._allow(AMID)
            time.sleep(1)  # the pipeline finds nobody
            service.start()
            code = process.wait(PATIENCE_S)
        told = self._log.read_text().splitlines()
        if code:
            raise RuntimeError(f"the pipeline ended with {code}: {told[-5:]}")
        self.published += max(json.loads(line).get("done", 0) for line in told if line[:1] == "{")

    @contextmanager
    def _halt(self, step: str) -> Iterator[subprocess.Popen[bytes]]:
        """Starts the pipeline, and yields once it halts; nothing of it is left afterwards."""
        self._allow(step)
        (self._doom / step).touch()
        environment = os.environ | {
            FOLDER: str(self._doom), "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable,
        }  # fmt: skip
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._command],
                cwd=self._folder, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not (self._doom / HALTED).exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    said = self._log.read_text()[-2000:]
                    raise RuntimeError(f"the pipeline did not come to {step}: {said}")
                time.sleep(0.05)
            yield process
        finally:
            _kill_session(process)
            self._allow(step)

    def _allow(self, step: str) -> None:
        for name in (step, HALTED):
            (self._doom / name).unlink(missing_ok=True)


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the process and of all that it started; returns when none is left."""
    while pids := list(find_session(process.pid)):
        for pid in pids:
            send(pid, signal.SIGKILL)
        process.poll()
        time.sleep(0.02)
    process.wait()


def _read_matches(target: str) -> Counter[tuple[str, str]]:
    """The matches of the session, up to those of a post that is the last of all."""
    found: Counter[tuple[str, str]] = Counter()
    with Client(target, timeout=60) as client:
        client.publish([{"lon": 0.0, "lat": 0.0, "text": "flood river", "id": "last"}])
        with client.subscribe(SESSION) as matches:
            for match in matches:
                if match.object_id == "last":
                    break
                found[match.query_id, match.object_id] += 1
    return found
