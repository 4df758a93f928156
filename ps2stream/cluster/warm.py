"""Compile the kernels before anyone waits for them.

Numba compiles a kernel at its first call and keeps the code on disk. One query and one
object through a throw-away service in this process call them all, so that the actors
find the code there and the first publisher does not wait for a compiler.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ps2stream.batch import strings_to_column
from ps2stream.cluster.local import LocalRuntime
from ps2stream.cluster.topology import Topology
from ps2stream.expr import compile_column
from ps2stream.queries import build_rows, delete_rows
from ps2stream.rows import ObjectRows
from ps2stream.space import Rect
from ps2stream.store.memory import MemoryStore


def warm(topology: Topology) -> None:
    """One insert, publication, delivery and delete under the topology's plan."""
    small = dataclasses.replace(topology, dispatchers=1, mergers=1)
    edge = LocalRuntime(small, MemoryStore()).edges[0]
    edge.attach("warm", 7, 1, 1 << 20, lambda _: None)
    ids = strings_to_column(["q"])
    compiled = compile_column(
        *strings_to_column(["warm OR (up AND now)"]), edge.analyzer, edge.frequencies
    )
    edge.update(build_rows(ids, compiled, [Rect(-1.0, -1.0, 1.0, 1.0)]), ["warm"], [""])
    text = strings_to_column(["warm"])
    at = np.zeros(1)
    edge.publish(
        ObjectRows(*ids, np.zeros(1, np.int64), at, at, *text, *edge.analyzer.analyse(*text))
    )
    edge.update(delete_rows(ids), ["warm"], [""])
