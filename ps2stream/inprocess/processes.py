"""Batches matched by several processes, each a copy of this one with its index."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeAlias

import pyarrow as pa

from ps2stream.errors import Ps2StreamError
from ps2stream.inprocess.match_columns import MatchedBatch, number_objects
from ps2stream.inprocess.query_index import Pairs, QueryIndex
from ps2stream.protocol.arrow_ipc import to_ipc

_AHEAD = 4
"""Batches for each process that are under way: enough that none waits, few enough to hold."""
_Task: TypeAlias = int | tuple[bytes, int]
"""A batch: its number among those that the process was forked with, or itself as an IPC stream (it
may be a part of a table, which would be pickled as a whole) and the number of its first object."""
_index: QueryIndex | None = None
_batches: Sequence[tuple[pa.RecordBatch, int]] = ()


def count_processes() -> int:
    """Returns how many processes can match: the cores that this one may use; one where a process
    cannot be forked with its index."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return len(os.sched_getaffinity(0))


def match_by_processes(
    index: QueryIndex, batches: Iterable[tuple[pa.RecordBatch, int]], processes: int
) -> Iterator[MatchedBatch]:
    """Yields the batches, which come with the numbers of their first objects, in their order. The
    processes are forked, so that they share the memory of the index, and of the batches if these
    are a sequence; others are sent to them. Raises what matching raises, and Ps2StreamError if a
    process dies."""
    context = multiprocessing.get_context("fork")
    waiting: deque[tuple[pa.RecordBatch, int, Future[Pairs]]] = deque()
    known = batches if isinstance(batches, Sequence) else ()
    with ProcessPoolExecutor(processes, context, _keep_world, (index, known)) as pool:
        try:
            for number, (batch, first) in enumerate(batches):
                task: _Task = number if known else (to_ipc(batch), first)
                waiting.append((batch, first, pool.submit(_match_batch, task)))
                if len(waiting) >= _AHEAD * processes:
                    yield _wait_for_first(waiting)
            while waiting:
                yield _wait_for_first(waiting)
        finally:
            for _, _, future in waiting:
                future.cancel()


def _wait_for_first(waiting: deque[tuple[pa.RecordBatch, int, Future[Pairs]]]) -> MatchedBatch:
    batch, first, future = waiting.popleft()
    try:
        return number_objects(batch, first, future.result())
    except BrokenProcessPool:
        problem = "a process that matched has died, perhaps for want of memory; try processes=1"
        raise Ps2StreamError(problem) from None


def _keep_world(index: QueryIndex, batches: Sequence[tuple[pa.RecordBatch, int]]) -> None:
    """Keeps what this process was forked with, and sees that it does not outlive the process that
    forked it: as it holds both ends of the queue, it would wait for ever."""
    global _index, _batches
    if hasattr(libc := ctypes.CDLL(None), "prctl"):
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    _index, _batches = index, batches


def _match_batch(task: _Task) -> Pairs:
    assert _index is not None
    if isinstance(task, int):
        return _index.match(*_batches[task])
    data, first = task
    return _index.match(pa.ipc.open_stream(data).read_next_batch(), first)
