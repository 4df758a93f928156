"""The number of commits of query updates that a ledger makes durable per second."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import numpy as np

from ps2stream.benchmarks import workload
from ps2stream.benchmarks.kept import open_fresh_place
from ps2stream.benchmarks.query_tags import query_rows
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.protocol.messages.updates import LedgerBatch, UpdateDecision
from ps2stream.protocol.ports import LedgerChange, SettledAnswer, Store
from ps2stream.protocol.rows import QueryRows
from ps2stream.store.places import StoragePlace

ROWS = (1, 1000)
"""Inserts per commit."""
_ANALYSIS = "{}"


def run_store(
    directory: str | None = None, database_url: str | None = None, seconds: float = 3.0
) -> dict[str, Any]:
    """Commits for `seconds` in each shape, as a sequencer does, then reads all of it back.

    JSON-able: a list of rates, and how many of the rows read back were wrong.
    """
    analyzer = Analyzer(Analysis(salt=1))
    load = workload.make("synthetic", "q1", max(ROWS), 0, 10_000, 1, analyzer)
    frequencies = Frequencies.of(load.counts, analyzer)
    rows = query_rows(load, analyzer, frequencies, 0, max(ROWS))
    shapes, wrong = [], 0
    for count in ROWS:
        with open_fresh_place(directory, database_url) as place:
            found = _measure_commits(place, rows.take(np.arange(count)), seconds)
        wrong += found.pop("wrong")
        shapes.append(found)
    return {"shapes": shapes, "verified": {"wrong": wrong}}


def _measure_commits(place: StoragePlace, rows: QueryRows, seconds: float) -> dict[str, Any]:
    """Measures commits of these rows; returns their rates."""
    store = place.open_ledger(_ANALYSIS)
    took: list[float] = []
    began = time.perf_counter()
    for seq in itertools.count(1):
        now = time.perf_counter()
        if now > began + seconds and took:
            break
        store.commit(_make_change(rows, seq))
        took.append(time.perf_counter() - now)
    store.close()
    before = time.perf_counter()
    store = place.open_ledger(_ANALYSIS)
    wrong = len(took) * len(rows) - _count_right_rows(store, rows)
    opened = time.perf_counter() - before
    store.close()
    return {
        "rows_a_commit": len(rows),
        "commits_per_second": len(took) / sum(took),
        "rows_per_second": len(took) * len(rows) / sum(took),
        "commit_milliseconds_median": statistics.median(took) * 1e3,
        "commit_milliseconds_p99": float(np.percentile(took, 99)) * 1e3,
        "bytes_a_row": _make_change(rows, 1).batch.rows.nbytes / len(rows),  # type: ignore[union-attr]
        "read_rows_per_second": len(took) * len(rows) / opened,
        "wrong": wrong,
    }


def _make_change(rows: QueryRows, seq: int) -> LedgerChange:
    """Returns the seq-th commit: these rows as new queries, and the answer to their sender."""
    n = len(rows)
    lsn = np.arange(n) + (seq - 1) * n + 1
    column = np.frombuffer(rows.replace(lsn=lsn, handle=lsn).encode(), np.uint8)
    decision = UpdateDecision(seq, np.zeros(n, np.uint8), lsn)
    batch = LedgerBatch(int(lsn[0]), int(lsn[-1]), 0, 0, 0, column)
    return LedgerChange(batch, answers=[SettledAnswer(0, 1, seq, seq, decision)])


def _count_right_rows(store: Store, rows: QueryRows) -> int:
    """Counts the committed rows that are read back as they were written."""
    right = 0
    for seq, batch in enumerate(store.replay(), 1):
        want = _make_change(rows, seq).batch
        right += len(rows) * (want is not None and batch.encode() == want.encode())
    return right
