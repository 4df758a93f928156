"""The halves of the rehearsal, each of which a process of its own plays.

More than a third of a compiler's time goes to the index of the workers. So one half is a service
whose index calls no kernel, and the other the index alone. So that both take as long, it splits
text and merges first: that is done before the service comes to it, which then finds these kernels
on disk.
Apart from that they exchange nothing: the few kernels that both call are compiled twice.

`python -m ps2stream.cluster.warm_halves HALF` reads a pickled topology, and prints the name of each
kernel that it has compiled.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import pickle
import sys
from typing import Any

import numpy as np
from numba import types
from numba.core import event
from numba.core.caching import NullCache

from ps2stream.cluster.compiler_shortcuts import take_shortcuts
from ps2stream.cluster.listed_index import ListedIndex
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm import QUERIES, REGIONS, TEXTS, merge_much, warm
from ps2stream.language.batch_tokenizer import split_column
from ps2stream.language.expression import CompiledColumn
from ps2stream.language.query_rows import build_checked_rows
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.rows import QueryRows
from ps2stream.space.grid import Grid
from ps2stream.workers.index import Index, Parts

GARBAGE = 8_000_000
"""New objects between two collections of garbage. With the usual 700 these take a fifth of the
time, as the compiler keeps most of what it makes."""


class UnindexedTopology(Topology):
    """A topology whose workers hold their queries in a list."""

    def new_index(self, grid: Grid, parts: Parts | None = None) -> Index:
        """Returns an index that calls no kernel."""
        return ListedIndex()


def rehearse_service(topology: Topology) -> None:
    """Calls all kernels but those of the index."""
    fields = dataclasses.fields(topology)
    warm(UnindexedTopology(**{f.name: getattr(topology, f.name) for f in fields}))


def rehearse_index(topology: Topology) -> None:
    """Calls the kernels that split text, some of the merger, all of the index, and few others."""
    for _ in split_column(*strings_to_column(list(TEXTS)), np.arange(len(TEXTS))):
        pass
    merge_much()
    grid = topology.plan.grid
    index = topology.new_index(grid)
    rows = _make_rows()
    off, cell = grid.cover(rows.box_off, rows.box)
    term = np.repeat(rows.term, np.diff(off))
    index.insert(rows, off, cell, term)
    index.extend(rows.replace(handle=rows.handle + QUERIES), off, cell, term)
    index = topology.new_index(grid, index.hold())
    # The first rows have regions of all shapes, and a term each.
    terms = np.arange(len(REGIONS) + 1)
    at = np.zeros(len(REGIONS))
    index.match(2 * QUERIES, at, at, terms, rows.term[: len(REGIONS)])
    # What was stored again is alike: a slot is to be swept once both who hold it are deleted.
    both = np.concatenate([rows.handle, rows.handle + QUERIES])
    index.delete(both, np.tile(rows.handle + 2 * QUERIES, 2))
    index.purge(5 * QUERIES // 2)  # of half of what was deleted
    index.sweep(QUERIES)
    for _ in index.census():
        pass
    index.postings(2 * QUERIES)
    some = np.arange(QUERIES) % 2 == 0
    index.drop_shards(lambda cell, _, __: np.resize(some, len(cell)))
    index.drop(lambda cell, _: np.zeros(len(cell), np.bool_))


def _make_rows() -> QueryRows:
    """Returns inserts, each of a term of its own, without a call of the kernels of language."""
    n = QUERIES
    count, none = np.arange(n + 1), np.zeros(n + 1, np.int64)
    compiled = CompiledColumn(
        form=np.zeros(n, np.uint8), post=np.ones(n, np.uint64),
        term_off=count, term=count[1:].astype(np.uint64),
        prog_off=none, prog=np.zeros(0, np.int16),
        canonical_off=none, canonical=np.zeros(0, np.uint8), errors=[],
    )  # fmt: skip
    regions = [REGIONS[i % len(REGIONS)] for i in range(n)]
    rows = build_checked_rows(strings_to_column([""] * n), compiled, regions)
    return rows.replace(lsn=count[1:], handle=count[1:])


class KernelPrinter(event.Listener):
    """Prints the name of each kernel of this package once it is compiled. Before, it leaves out
    what nobody calls: a tenth of the time goes to the functions that Numba puts around a kernel."""

    def __init__(self) -> None:
        self._depth = 0

    def on_start(self, started: event.Event) -> None:
        """Leaves out the function for callers in C, and that for callers in Python if there are
        none: a kernel takes pointers, or is private and called by a kernel, and then no other
        function calls it (tests/unit/test_kernel_arguments.py)."""
        kernel = started.data["dispatcher"]
        if _is_ours(kernel):
            inner = self._depth > 0 and kernel.py_func.__name__.startswith("_")
            kernel.targetoptions["no_cfunc_wrapper"] = True
            if inner or any(map(_has_pointer, started.data["args"])):
                kernel.targetoptions["no_cpython_wrapper"] = True
                kernel._cache = NullCache()  # it has no code of its own
        elif self._depth > 0:  # a part of NumPy, as Numba has it
            kernel.targetoptions["no_cfunc_wrapper"] = True
            kernel.targetoptions["no_cpython_wrapper"] = True
        self._depth += 1

    def on_end(self, ended: event.Event) -> None:
        """Prints the name; ends the process without a word if nobody reads it."""
        self._depth -= 1
        kernel = ended.data["dispatcher"]
        if _is_ours(kernel):
            try:
                sys.stdout.write(f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}\n")
                sys.stdout.flush()
            except BrokenPipeError:
                os._exit(1)  # whoever waited was stopped: a traceback would tell a user nothing


def _is_ours(kernel: Any) -> bool:
    return bool(kernel.py_func.__module__.startswith("ps2stream."))


def _has_pointer(kind: Any) -> bool:
    """Returns whether an argument of this type is a pointer or holds one."""
    members: Any = kind if isinstance(kind, types.BaseTuple) else ()
    return isinstance(kind, types.CPointer) or any(map(_has_pointer, members))


HALVES = {"service": rehearse_service, "index": rehearse_index}

if __name__ == "__main__":
    gc.freeze()
    gc.set_threshold(GARBAGE)
    take_shortcuts()
    with event.install_listener("numba:compile", KernelPrinter()):
        HALVES[sys.argv[1]](pickle.load(sys.stdin.buffer))
