"""The sequencer alone: CPU an update, bytes a live query, seconds to its first answer.

The machine runs in process on a ledger in a directory of its own. Queries are loaded, then
batches of BATCH updates, half inserts and half deletes in the order of the workload, are decided,
committed and encoded as for one dispatcher. The CPU is that of this process from the encoded
request to the encoded answers; the commit, with SQLite and the CPU of the sync, is counted apart.
What makes the updates, and the dispatcher's encoding and decoding, are left out. A second process,
`python -m ps2stream.benchmarks.sequencer DIR`, then starts on that ledger.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from ps2stream.benchmarks.kept import open_fresh_place
from ps2stream.benchmarks.workload import Workload, make
from ps2stream.cluster.allocator import return_free_memory
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm import load_kernels
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import RectColumns, build_rows, delete_rows
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import I64, U8, decode, strings_to_column
from ps2stream.protocol.messages.updates import AppliedReport, UpdateDecision, UpdateRequest
from ps2stream.protocol.ports import LedgerChange, Store
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.routing.plan import built_in_plan
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.space.grid import Grid
from ps2stream.store.ledger import Ledger

BATCH = 512  # updates
_ANALYSIS = "{}"
_DISPATCHER = Address("dispatcher", 0)


class TimedStore:
    """A store, and the CPU seconds that its commits took."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, change: LedgerChange) -> None:
        before = time.process_time()
        self._store.commit(change)
        self.seconds += time.process_time() - before


class UpdateCost(NamedTuple):
    """The CPU microseconds per update of one batch: of the machine, and of the store's commit."""

    machine: float
    commit: float


class SequencerLoad:
    """A sequencer under the updates of a workload."""

    def __init__(self, load: Workload, analyzer: Analyzer, store: TimedStore) -> None:
        self._load, self._analyzer, self._store = load, analyzer, store
        self._frequencies = Frequencies.of(load.counts, analyzer)
        self.machine = SequencerMachine([_DISPATCHER], store)
        self._seq = self.wrong = 0
        self.longest_ms = 0.0  # CPU of the machine in one batch
        # A few of the drawn lifetimes are negative.
        birth = np.arange(len(load.interests.death)) - load.start + 1
        death = np.maximum(load.interests.death, birth)
        self._deletes = np.argsort(death, kind="stable")
        self._death = death[self._deletes]
        self._deleted = 0

    def fill(self) -> None:
        """Inserts the first queries."""
        for first in range(0, self._load.start, BATCH):
            self.decide(self._make_inserts(first, min(first + BATCH, self._load.start)))

    def update(self, number: int) -> UpdateCost:
        """Decides the batch of this number."""
        first = self._load.start + number * (BATCH // 2)
        inserts = self._make_inserts(first, first + BATCH // 2)
        # What is due is deleted, like the inserts in batches of half the size.
        inserted = first + BATCH // 2 - self._load.start
        due = int(np.searchsorted(self._death, inserted, "right"))
        end = min(due, self._deleted + BATCH // 2)
        gone = self._deletes[self._deleted : end]
        self._deleted = end
        return self.decide(QueryRows.concat([inserts, delete_rows(make_ids(gone))]))

    def decide(self, rows: QueryRows) -> UpdateCost:
        """Sends these rows as one request, and acknowledges what came of it."""
        self._seq += 1
        raw = make_request(rows, self._seq).encode()
        began, committed = time.process_time(), self._store.seconds
        sends = self.machine.on(decode(raw))
        encoded = [send.frame.encode() for send in sends]
        took = time.process_time() - began
        for answer in map(decode, encoded):
            if isinstance(answer, UpdateDecision):
                self.wrong += int(np.count_nonzero(answer.status))
        lsn = self.machine.lsn
        self.machine.on(AppliedReport(0, lsn, lsn))
        commit = self._store.seconds - committed
        self.longest_ms = max(self.longest_ms, 1e3 * (took - commit))
        return UpdateCost(1e6 * (took - commit) / len(rows), 1e6 * commit / len(rows))

    def _make_inserts(self, first: int, last: int) -> QueryRows:
        """Returns queries first..last - 1 as a dispatcher sends them."""
        interests = self._load.interests
        part = dataclasses.replace(
            interests,
            **{
                f.name: getattr(interests, f.name)[first:last]
                for f in dataclasses.fields(interests)
            },
        )
        texts = dataclasses.replace(self._load, interests=part).expressions()
        column = strings_to_column(texts)
        compiled = compile_column(*column, self._analyzer, self._frequencies)
        west, south, east, north = part.rect.T
        regions = RectColumns(west, south, east, north)
        return build_rows(make_ids(np.arange(first, last)), compiled, regions, column)


def make_ids(numbers: I64) -> tuple[I64, U8]:
    """Returns the ids of these queries."""
    return strings_to_column(f"q{number}" for number in numbers.tolist())


def make_request(rows: QueryRows, seq: int) -> UpdateRequest:
    """Returns the request of these rows, all of one session; the deletes share a request id, as
    those of one call do."""
    n = len(rows)
    name = np.frombuffer(b"session", np.uint8)
    asked = np.frombuffer(b"%032x" % seq, np.uint8)
    deletes = rows.kind == UpdateKind.DELETE
    request_off = np.concatenate([np.zeros(1, np.int64), np.cumsum(deletes * len(asked))])
    return UpdateRequest(
        0, 1, seq, seq,
        np.frombuffer(rows.encode(), np.uint8),
        np.arange(n + 1) * len(name), np.tile(name, n),
        request_off, np.tile(asked, int(deletes.sum())),
    )  # fmt: skip


def run_sequencer(
    queries: int = 1_000_000,
    group: str = "q1",
    workload: str = "synthetic",
    batches: int = 200,
    seed: int = 1,
    directory: str | None = None,
) -> dict[str, Any]:
    """Returns the measured figures with every setting, JSON-able. As many batches again come
    first, unmeasured. `directory` holds the ledger while it is measured."""
    analyzer = Analyzer(Analysis(salt=seed))
    load = make(workload, group, queries, batches * BATCH, 10_000, seed, analyzer)
    # As in the service: no update waits for a kernel to be loaded.
    load_kernels(Topology(built_in_plan(Analysis(salt=seed), Grid(), 2)))
    with open_fresh_place(directory, None) as place:
        ledger = place.open_ledger(_ANALYSIS)
        under = SequencerLoad(load, analyzer, TimedStore(ledger))
        under.fill()
        costs = [under.update(number) for number in range(2 * batches)][batches:]
        live, wrong = under.machine.live, under.wrong
        ledger.close()
        assert place.folder is not None
        restart = _measure_in_new_process(place.folder)
    wrong += live != restart.pop("live")
    machine, commit = zip(*costs, strict=True)
    return {
        "settings": {
            "queries": queries,
            "group": group,
            "workload": workload,
            "batch": BATCH,
            "batches": batches,
            "seed": seed,
        },
        "cpu_us_per_update": {
            "machine": sum(machine) / batches,
            "machine_median": median(machine),
            "commit": sum(commit) / batches,
        },
        "longest_batch_cpu_ms": under.longest_ms,
        "live_queries": live,
        **restart,
        "verified": {"wrong": wrong},
    }


def _measure_in_new_process(folder: Path) -> dict[str, Any]:
    """Starts a sequencer on the ledger in a process of its own; returns what it measures."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "ps2stream.benchmarks.sequencer", str(folder), repr(began)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure_restart(folder: Path, began: float) -> dict[str, Any]:
    """Returns the seconds to the first answer and the memory of a live query. `began`: when this
    process was started, on the clock of time.perf_counter, which all processes share."""
    with open_fresh_place(None, None) as place:
        # Kernels are compiled or loaded, and allocators are warm, before memory is compared.
        ledger = place.open_ledger(_ANALYSIS)
        _answer_update(SequencerMachine([_DISPATCHER], ledger))
        ledger.close()
    empty, start, cpu = _resident_bytes(), time.perf_counter(), time.process_time()
    ledger = Ledger.open(folder, _ANALYSIS)
    opened = time.perf_counter()
    machine = SequencerMachine([_DISPATCHER], ledger)
    live, replayed = machine.live, time.perf_counter()
    return_free_memory()  # as the sequencer's process does
    _answer_update(machine)
    answered, used = time.perf_counter(), time.process_time() - cpu
    full = _resident_bytes()
    ledger.close()
    return {
        "live": live,
        "bytes_per_query": {
            "resident": (full - empty) / max(live, 1),
            "columns": machine.bytes / max(live, 1),
        },
        "seconds_to_first_answer": {
            "from_process_start": answered - began,
            "from_opening": answered - start,
            "opening": opened - start,
            "replaying": replayed - opened,
            "cpu": used,
        },
    }


def _answer_update(machine: SequencerMachine) -> None:
    """Has a machine decide one insert and the delete of it."""
    analyzer = Analyzer(Analysis(salt=1))
    ids, text = strings_to_column(["first"]), strings_to_column(["rain"])
    compiled = compile_column(*text, analyzer, Frequencies.of({}, analyzer))
    side = [np.array([x]) for x in (0.0, 0.0, 1.0, 1.0)]
    rows = [build_rows(ids, compiled, RectColumns(*side), text), delete_rows(ids)]
    sends = machine.on(make_request(QueryRows.concat(rows), 1 << 40))
    answers = [send.frame for send in sends if isinstance(send.frame, UpdateDecision)]
    assert [answer.status.tolist() for answer in answers] == [[0, 0]]


def _resident_bytes() -> int:
    """Returns the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    json.dump(measure_restart(Path(sys.argv[1]), float(sys.argv[2])), sys.stdout)
