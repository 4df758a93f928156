"""A disk that is full for a while: a small tmpfs and a file that takes what is left of it."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ps2stream.client.client import Client
from ps2stream.errors import Ps2StreamError, ResourceExhausted
from tests import naive
from tests.chaos.clients import end_publication
from tests.chaos.history import History, as_row
from tests.chaos.host import Host
from tests.chaos.run import Crowd, Say, settled

SIZE_MIB = 400
"""Four logs of 64 MiB a segment, the ledger, and some."""
FULL_S = 10.0
BULK = 1000
BACK_S = 30.0


@contextlib.contextmanager
def tmpfs(mib: int) -> Iterator[Path]:
    """A file system of this size. Raises PermissionError where mounting is not allowed."""
    with tempfile.TemporaryDirectory(prefix="chaos-disk-", dir="/tmp") as folder:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", folder],
            capture_output=True, check=False, text=True,
        )  # fmt: skip
        if done.returncode:
            raise PermissionError(f"a tmpfs cannot be mounted: {done.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def fill(path: Path) -> int:
    """Write until nothing fits; the bytes written."""
    size = 0
    with path.open("wb", buffering=0) as file:
        for chunk in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    size += file.write(b"\0" * chunk)
    return size


def disk(seed: int, workers: int, say: Say) -> dict[str, Any]:
    """Fill the disk, write until everything is refused, make room: "held" says whether
    nothing acknowledged got lost and everything went on without a restart."""
    with tmpfs(SIZE_MIB) as folder, tempfile.TemporaryDirectory(dir="/tmp") as logs:
        with Host(folder / "data", Path(logs) / "log", workers=workers) as host:
            host.start()
            before = {name: a.epoch for name, a in host.actors().items()}
            crowd = Crowd(host, seed, rate=6.0)
            time.sleep(5)
            taken = fill(folder / "filler")
            say(f"the disk is full: {taken >> 20} MiB were free")
            refused = _flood(crowd.history, host.targets[0], say)
            full_at = time.monotonic()
            time.sleep(FULL_S)
            late = _late(crowd.history, full_at)
            accepted = crowd.history.accepted
            (folder / "filler").unlink()
            say("there is room again")
            roomy = time.monotonic()
            while crowd.history.accepted <= accepted + 5:
                if time.monotonic() - roomy > BACK_S:
                    crowd.history.recorder.complain("disk", "nothing is accepted again")
                    break
                time.sleep(0.05)
            back = time.monotonic() - roomy
            time.sleep(3)
            verdict = settled(crowd)
            after = {name: a.epoch for name, a in host.actors().items()}
            host.stop()
        text = (Path(logs) / "log").read_text("utf-8", "replace")
    restarted = sorted(name for name in before if after.get(name) != before[name])
    return {
        **verdict,
        "held": verdict["held"] and refused > 0 and not restarted,
        "seed": seed,
        "refused_batches": refused,
        "delivered_while_full": late,
        "back_s": round(back, 2),
        "restarted": restarted,
        "unanswered": dict(sorted(crowd.history.errors.items())),
        "log": [line for line in text.splitlines() if "No space" in line or "full" in line][:5],
    }


def _flood(history: History, target: str, say: Say) -> int:
    """Publish big batches until the logs have no room; how many were refused."""
    refused = serial = 0
    recorder, payload = history.recorder, b"x" * 1000
    with Client(target, timeout=3) as client:
        until = time.monotonic() + 60
        while refused < 3 and time.monotonic() < until:
            names = [f"bulk{i}.{serial}" for i in range(BULK)]
            serial += 1
            call = recorder.begin(
                "flood", "publish", level="durable", producer="", seq=0,
                objects=[as_row(name, naive.Obj(0.0, 0.0, "filler")) for name in names],
            )  # fmt: skip
            columns = {
                "id": names, "lon": [0.0] * BULK, "lat": [0.0] * BULK, "text": ["filler"] * BULK,
                "payload": [payload] * BULK,
            }  # fmt: skip
            try:
                receipt = client.publish(columns)
            except (Ps2StreamError, TimeoutError) as error:
                refused += 1
                is_refused = isinstance(error, ResourceExhausted)
                recorder.end(call, "refused" if is_refused else "unknown")
                history.failed("Publish bulk", type(error).__name__)
                say(f"refused: {error}")
            else:
                end_publication(recorder, call, receipt)
    return refused


def _late(history: History, since: float) -> int:
    """Probes that arrived after this."""
    return sum(at >= since for lane in history.arrivals.values() for _, at in lane)
