"""How many commits of query updates a second a ledger makes durable."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import numpy as np

from ps2stream.benchmarks import workload
from ps2stream.benchmarks.engine import query_rows
from ps2stream.benchmarks.kept import fresh
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.protocol.messages.updates import Applied, UpdateDecision
from ps2stream.protocol.ports import Answer, Change, Store
from ps2stream.protocol.rows import QueryRows
from ps2stream.store.places import Place

ROWS = (1, 1000)
"""Inserts of a commit."""
_ANALYSIS = "{}"


def run_store(
    directory: str | None = None, database_url: str | None = None, seconds: float = 3.0
) -> dict[str, Any]:
    """Commit for so long in each shape, as a sequencer does, then read all of it back.

    JSON-able: a list of rates, and how many of the rows read back were wrong.
    """
    analyzer = Analyzer(Analysis(salt=1))
    load = workload.make("synthetic", "q1", max(ROWS), 0, 10_000, 1, analyzer)
    frequencies = Frequencies.of(load.counts, analyzer)
    rows = query_rows(load, analyzer, frequencies, 0, max(ROWS))
    shapes, wrong = [], 0
    for count in ROWS:
        with fresh(directory, database_url) as place:
            found = _measured(place, rows.take(np.arange(count)), seconds)
        wrong += found.pop("wrong")
        shapes.append(found)
    return {"shapes": shapes, "verified": {"wrong": wrong}}


def _measured(place: Place, rows: QueryRows, seconds: float) -> dict[str, Any]:
    store = place.open_ledger(_ANALYSIS)
    took: list[float] = []
    began = time.perf_counter()
    for seq in itertools.count(1):
        now = time.perf_counter()
        if now > began + seconds and took:
            break
        store.commit(_change(rows, seq))
        took.append(time.perf_counter() - now)
    store.close()
    before = time.perf_counter()
    store = place.open_ledger(_ANALYSIS)
    wrong = len(took) * len(rows) - _right(store, rows)
    opened = time.perf_counter() - before
    store.close()
    return {
        "rows_a_commit": len(rows),
        "commits_per_second": len(took) / sum(took),
        "rows_per_second": len(took) * len(rows) / sum(took),
        "commit_milliseconds_median": statistics.median(took) * 1e3,
        "commit_milliseconds_p99": float(np.percentile(took, 99)) * 1e3,
        "bytes_a_row": _change(rows, 1).batch.rows.nbytes / len(rows),  # type: ignore[union-attr]
        "read_rows_per_second": len(took) * len(rows) / opened,
        "wrong": wrong,
    }


def _change(rows: QueryRows, seq: int) -> Change:
    """The seq-th commit: these rows as new queries, and the answer to the one who asked."""
    n = len(rows)
    lsn = np.arange(n) + (seq - 1) * n + 1
    column = np.frombuffer(rows.replace(lsn=lsn, handle=lsn).encode(), np.uint8)
    decision = UpdateDecision(seq, np.zeros(n, np.uint8), lsn)
    batch = Applied(int(lsn[0]), int(lsn[-1]), 0, 0, 0, column)
    return Change(batch, answers=[Answer(0, 1, seq, seq, decision)])


def _right(store: Store, rows: QueryRows) -> int:
    """How many rows of those committed are there."""
    right = 0
    for seq, batch in enumerate(store.replay(), 1):
        want = _change(rows, seq).batch
        right += len(rows) * (want is not None and batch.encode() == want.encode())
    return right
