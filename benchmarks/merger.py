"""`python -m ps2stream.benchmarks.merger`: the time that a merger takes for a batch, as JSON.

One worker's answer to a batch goes through a merger whose sessions all have streams with credits
and acknowledge in time: dedupe, numbering, the match log, encoding.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.merger.machine import MergerMachine
from ps2stream.protocol.addresses import nothing
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.objects import MatchRelease
from ps2stream.protocol.messages.sessions import StreamAttach, StreamCredit
from ps2stream.protocol.messages.updates import MergerQueries
from ps2stream.protocol.ports import Log
from ps2stream.protocol.rows import UpdateKind, no_offsets
from ps2stream.store.segments import SegmentLog

OBJECTS = 8_192
PAIRS = 78_000
QUERIES = 100_000
TEXT = 70  # bytes


class _DiscardingLog:
    """A log that takes records and keeps none."""

    first = end = 0

    def append(self, record: bytes) -> int:
        self.end += len(record)
        return self.end - len(record)

    def sync(self) -> int:
        return self.end

    @property
    def synced(self) -> int:
        return self.end

    def read(self, position: int) -> bytes:
        raise KeyError(position)

    def scan(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        return iter(())

    def trim(self, before: int) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def problem(self) -> str:
        return ""

    @property
    def bytes(self) -> int:
        return 0


def run(sessions: int, fields: int, batches: int, log: Log, seed: int = 1) -> dict[str, Any]:
    """Returns the milliseconds per batch in `on_many`, also of processor time, and in the sync
    after it, and the `log_bytes` that it adds."""
    rng = np.random.default_rng(seed)
    # No dispatcher reports arrivals here, so none are waited for.
    machine = MergerMachine(0, 1, 1, log, link_bytes=1 << 50)
    owner = rng.integers(0, sessions, QUERIES)
    handles = np.arange(1, QUERIES + 1)
    machine.on(
        MergerQueries(
            1, QUERIES, 0, 0, np.full(QUERIES, UpdateKind.INSERT, np.uint8), handles,
            handles, owner,
            *strings_to_column(f"query-{h}" for h in handles.tolist()),
        )
    )  # fmt: skip
    attach = [StreamAttach(s, 1, 0, fields, 1 << 40, 1 << 50, 0) for s in range(sessions)]
    machine.on_many(attach)
    took, synced, spent, sizes, last = [], [], [], [], [0] * sessions
    for batch in range(batches):
        frame = _make_batch(rng, batch * OBJECTS, owner)
        began, cpu, before = time.perf_counter(), time.process_time(), log.end
        out = machine.on(frame)
        done = time.perf_counter()
        spent.append(time.process_time() - cpu)
        machine.sync()
        synced.append(time.perf_counter() - done)
        took.append(done - began)
        sizes.append(log.end - before)
        assert len(out) > 1
        counts = np.bincount(np.unique(frame.session), minlength=sessions)
        assert counts.sum() <= len(out) - 1
        numbers = np.bincount(frame.session, minlength=sessions).tolist()
        last = [a + b for a, b in zip(last, numbers, strict=True)]
        machine.on_many([StreamCredit(s, 1, 0, 0, 0, last[s]) for s in range(sessions)])
        machine.tick(1_000 * batch)
    return {
        "on_many_ms": round(1e3 * statistics.median(took[2:]), 3),
        "cpu_ms": round(1e3 * statistics.median(spent[2:]), 3),
        "sync_ms": round(1e3 * statistics.median(synced[2:]), 3),
        "log_bytes": int(statistics.median(sizes)),
    }


def _make_batch(rng: np.random.Generator, offset: int, owner: Any) -> MatchRelease:
    """Returns a batch of objects and one worker's matches of it."""
    pair = rng.choice(OBJECTS * 64, PAIRS, replace=False)
    row = np.sort(pair // 64).astype(np.uint32)
    handle = (pair % 64 * 1_499 + row * 7 + 1) % QUERIES + 1
    text = rng.integers(97, 123, OBJECTS * TEXT).astype(np.uint8)
    return MatchRelease(
        0, offset, OBJECTS, 1, 1, offset, QUERIES, QUERIES, 0, 0,
        np.arange(OBJECTS, dtype=np.uint32),
        *strings_to_column(f"object-{offset + i}" for i in range(OBJECTS)),
        np.arange(OBJECTS), rng.random(OBJECTS), rng.random(OBJECTS),
        np.arange(OBJECTS + 1) * TEXT, text, no_offsets(), nothing(),
        row, handle, owner[handle - 1],
    )  # fmt: skip


def main(batches: int = 42) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for sessions in (1_000, 1):
        for fields in (0, 7):
            kind = f"{sessions} sessions, fields {fields}"
            with PrivateFolder() as folder:
                log = SegmentLog.open(folder.path)
                found[kind] = {
                    "segments": run(sessions, fields, batches, log),
                    "nowhere": run(sessions, fields, batches, _DiscardingLog()),
                }
                log.close()
    return {"benchmark": "merger", "objects": OBJECTS, "pairs": PAIRS, **found}


if __name__ == "__main__":
    json.dump(main(), sys.stdout, indent=1)
