"""The rehearsal that compiles the kernels before anyone waits for them.

Numba compiles a kernel at its first call and keeps the code on disk. A throw-away service in this
process receives some thousand queries, so that tables grow, with regions of every shape, and two
objects. That calls all kernels of a service: so the actors find the code on disk, and the first
publisher does not wait for a compiler. Where no code is on disk yet, two processes have compiled
nearly all of it before (`kernel_compiler`).

`python -m ps2stream.cluster.warm [INDEX]` does this for a host whose actors others will start.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import shapely

from ps2stream.cluster.kernel_cache import KernelCache
from ps2stream.cluster.kernel_compiler import compile_in_halves
from ps2stream.cluster.local_runtime import LocalRuntime
from ps2stream.cluster.topology import Topology
from ps2stream.config import load
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.expression import compile_column
from ps2stream.language.literals import LiteralKind, WatchedLiterals
from ps2stream.language.object_terms import search_near
from ps2stream.language.query_rows import RectColumns, build_rows, delete_rows
from ps2stream.log import configure
from ps2stream.merger.kernels import (
    copy_rows,
    count_fitting,
    count_slice_bytes,
    distinct_pairs,
)
from ps2stream.planner.adjust.scale import scaled
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.protocol.frame import sealed, strings_to_column
from ps2stream.protocol.messages.plan import PlanAction
from ps2stream.protocol.opaque import split_opaque
from ps2stream.protocol.rows import ObjectRows, QueryRows
from ps2stream.routing.plan import built_in_plan
from ps2stream.service.calls import OBJECT_ROWS, check_batch
from ps2stream.service.objects import read_objects
from ps2stream.service.peek import read_level_and_rows
from ps2stream.space.grid import Grid
from ps2stream.space.regions import Circle, Polygon, Rect
from ps2stream.store.memory import MemoryStore
from ps2stream.v1 import object_pb2, pubsub_pb2
from ps2stream.workers.indexes import IndexName

log = logging.getLogger("ps2stream.cluster")
_LOADED: set[frozenset[str]] = set()
"""The kinds of leaves and the index of what was rehearsed in this process."""
ALL_FIELDS = 31
TICKS = 20
QUERIES = 3_000
"""More queries than the first tables of gridt and GI2 have room for."""
TEXTS = ("up now", "up w\u00e4rm 1\ufe0f\u20e3", "calm")
"""Text that is not ASCII takes other kernels, and so does a batch of which not all match."""
REGIONS = (
    Rect(-1.0, -1.0, 1.0, 1.0),
    Circle(0.0, 0.0, 50.0),
    Polygon(shapely.Polygon([(-1.0, -1.0), (1.0, -1.0), (0.0, 0.1)])),
)
"""The objects at (0, 0) are so near to a corner of the polygon that its raster does not decide."""


def compile_kernels(topology: Topology) -> None:
    """Rehearses, unless an earlier rehearsal has left the code of all kernels on disk."""
    cache = KernelCache(_kinds_of(topology))
    if not cache.complete:
        cache.discard_stale()
        if cache.make_folder():
            compile_in_halves(_on_small_grid(topology))
        warm(topology)
        _LOADED.add(_kinds_of(topology))
        cache.mark()


def load_kernels(topology: Topology) -> None:
    """Rehearses, unless an earlier rehearsal has loaded all kernels into this process."""
    kinds = _kinds_of(topology)
    if kinds not in _LOADED:
        warm(topology)
        _LOADED.add(kinds)


def prepare_host(index: IndexName) -> None:
    """Compiles the kernels of services with this index and the built-in plan, unless they are
    here."""
    compile_kernels(_make_usual_topology(index))


def is_host_prepared(index: IndexName) -> bool:
    """Returns whether `prepare_host` would have nothing to compile."""
    return KernelCache(_kinds_of(_make_usual_topology(index))).complete


def _make_usual_topology(index: IndexName) -> Topology:
    return Topology(built_in_plan(Analysis(salt=0), Grid(), 2), index=index)


def _on_small_grid(topology: Topology) -> Topology:
    """Returns the topology with a plan of the same leaves on at most as many cells as the default
    grid has: no kernel depends on their number, and the rehearsal changes the plan, which takes
    minutes with a map of 2^24 cells."""
    plan, default = topology.plan, Grid()
    bits = min(plan.grid.lon_bits, default.lon_bits), min(plan.grid.lat_bits, default.lat_bits)
    small = Grid(*bits, plan.grid.max_cells)
    if small == plan.grid:
        return topology
    down, right = plan.grid.rows() // small.rows(), plan.grid.columns() // small.columns()
    cells = plan.cells.reshape(plan.grid.rows(), -1)[::down, ::right].ravel()
    replicas = tuple(unit for unit in plan.replicas if unit.cell is None)
    return dataclasses.replace(
        topology, plan=dataclasses.replace(plan, grid=small, cells=cells, replicas=replicas)
    )


def _kinds_of(topology: Topology) -> frozenset[str]:
    """Returns what decides which kernels are called: the kinds of leaves, and the index."""
    return frozenset(type(leaf).__name__ for leaf in topology.plan.leaves) | {topology.index}


def warm(topology: Topology) -> None:
    """Runs an insert, publication, delivery and delete under the topology's plan, and a plan
    change to another number of workers."""
    topology = _on_small_grid(topology)
    policy = dataclasses.replace(topology.policy, period_ticks=TICKS)
    small = dataclasses.replace(
        topology, dispatchers=1, mergers=1, policy=policy, sample_objects=QUERIES
    )
    runtime = LocalRuntime(small, MemoryStore())
    edge = runtime.edges[0]
    edge.attach("warm", ALL_FIELDS, 1, 1 << 20, lambda _: None)
    # Nested ones are not for a kernel, and take long.
    nested = '(up AND now AND NOT "now up" AND NOT no* AND NOT warm = 2 AND NOT warm > 1)'
    expressions = [f"warm{i} OR {'now' if i % 50 else nested}" for i in range(QUERIES)]
    ids = strings_to_column([str(i) for i in range(QUERIES)])
    compiled = compile_column(*strings_to_column(expressions), edge.analyzer, edge.frequencies)
    regions = [REGIONS[i % len(REGIONS)] for i in range(QUERIES)]
    sessions, no_requests = ["warm"] * QUERIES, [""] * QUERIES
    edge.update(build_rows(ids, compiled, regions), sessions, no_requests)
    objects = _make_objects(edge.analyzer)
    edge.publish(objects)
    split_opaque(objects.opaque_off, objects.opaque, len(objects))  # as for the archive
    router = edge.machine.router
    router.hot_units.count(router.gridt, _make_objects(edge.analyzer), [])
    router.gridt.count_stored(np.zeros(1, np.uint32), np.zeros(1, np.uint64))
    phrase = (
        np.ones(1, np.uint64),
        np.full(1, LiteralKind.PHRASE, np.uint8),
        np.full(1, 2, np.uint16),
    )
    later = WatchedLiterals.everywhere_of(*phrase)
    search_near(_make_texts(edge.analyzer), later, edge.analyzer, router.literals.view.version)
    _read_request()
    merge_much()
    plan = topology.plan
    plan = scaled(plan, plan.workers - 1 or 2, edge.weights())
    move = json.dumps(plan.to_dict()).encode()
    edge.strategy(move, ask=PlanAction.MOVE)
    runtime.tick()
    edge.strategy(
        move, ask=PlanAction.MOVE
    )  # the first is refused if more workers are needed than run
    for _ in range(2 * TICKS):  # workers also report their loads meanwhile
        runtime.tick()
    if edge.machine.router.plan_version != plan.version:
        log.warning("the first plan change will be slow, because its rehearsal did not finish")
    edge.machine.router.gridt.postings([])  # as at the end of a plan change
    # Some are deleted: the sequencer drops their bytes. Then one as soon as it is inserted, and one
    # is inserted that is live: the sequencer compares their sources.
    rows = delete_rows((ids[0][: QUERIES // 4 + 1], ids[1][: ids[0][QUERIES // 4]]))
    edge.update(rows, sessions[: QUERIES // 4], no_requests[: QUERIES // 4])
    one = ids[0][:2], ids[1][: ids[0][1]]
    live = np.array([0, ids[0][-1] - ids[0][-2]]), ids[1][ids[0][-2] :]
    compiled = compile_column(*strings_to_column(["warm"]), edge.analyzer, edge.frequencies)
    point = np.zeros(1)
    columns = RectColumns(point, point, point, point)  # as of an Arrow batch
    again = build_rows(live, compiled, columns)
    rows = QueryRows.concat([build_rows(one, compiled, columns), delete_rows(one), again])
    edge.update(rows, ["warm", "", "warm"], ["", "", ""])
    # Most are deleted by a request, which comes again: the sequencer rewrites what is left.
    most = QUERIES * 2 // 3
    for _ in range(2):
        rows = delete_rows((ids[0][: most + 1], ids[1][: ids[0][most]]))
        edge.update(rows, sessions[:most], ["warm"] * most)
    edge.update(delete_rows(ids), sessions, no_requests)


def _make_objects(analyzer: Analyzer) -> ObjectRows:
    """Returns objects of TEXTS, with attributes and payloads, as the service reads them from
    messages and from Arrow."""
    point, number = _make_array(pa.float64(), np.zeros(1)), _make_array(pa.int64(), np.ones(1, int))
    size = np.array([0, 2], np.int32)
    text, payload = (_make_array(pa.string(), size, data) for data in (b"up", b"{}"))
    names = ["lon", "lat", "text", "warm", "up", "payload"]
    batch = pa.RecordBatch.from_arrays([point, point, text, number, text, payload], names)
    read_objects(object_pb2.ObjectBatch(arrow=to_ipc(batch)), 0)
    name = _make_array(pa.large_string(), np.array([0, 2]), b"up")
    wide = batch.select(["lon", "lat", "text"]).add_column(0, "id", name)
    read_objects(object_pb2.ObjectBatch(arrow=to_ipc(wide)), 0).refusals()
    value = object_pb2.AttributeValue(integer=1)
    objects = [
        object_pb2.Object(
            id="a",
            lon=0.0,
            lat=0.0,
            text=text,
            attributes=object_pb2.Attributes(values={"warm": value}),
            payload=object_pb2.Payload(json="{}"),
        )
        for text in TEXTS
    ]
    return read_objects(object_pb2.ObjectBatch(objects=objects), 0).analyse(analyzer)


def _make_texts(analyzer: Analyzer) -> ObjectRows:
    """Returns an object without attributes."""
    none, place = strings_to_column([""]), np.zeros(1)
    text = strings_to_column(TEXTS[:1])
    return ObjectRows(*none, place.astype(np.int64), place, place, *text, *analyzer.analyse(*text))


def _make_array(kind: pa.DataType, *data: Any) -> pa.Array:
    """Returns one value of Arrow from its buffers. From a list, Arrow would import pandas, where
    there is one, which takes a third of a second."""
    return pa.Array.from_buffers(kind, 1, [None, *map(pa.py_buffer, data)])


def _read_request() -> None:
    """Reads a publication as the service does, and counts the rows as of a refused one."""
    batch = object_pb2.ObjectBatch(objects=[object_pb2.Object(text="warm")])
    data = pubsub_pb2.PublishRequest(batch=batch).SerializeToString()
    rows = check_batch(pubsub_pb2.PublishRequest, data, OBJECT_ROWS)
    read_level_and_rows(pubsub_pb2.PublishRequest, data, rows)


def merge_much() -> None:
    """Runs the merger's kernels that only several workers, several sessions, large deliveries or
    many queries need."""
    row, handle = sealed(np.zeros(2, np.uint32)), sealed(np.ones(2, np.int64))
    off = sealed(np.zeros(2, np.int64))
    distinct_pairs(row, handle, handle, 1)
    count_slice_bytes(sealed(np.array([0, 1, 2])), row, off, off, off, 1)
    count_fitting(row, off, off, off, 1, 1)
    copy_rows(np.zeros((1, 2), np.uint64), np.zeros((2, 2), np.uint64))


if __name__ == "__main__":
    configure()
    prepare_host(load({"index": sys.argv[1] if sys.argv[1:] else None}).index)
