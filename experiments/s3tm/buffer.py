"""A router whose input changes: its buffer, its level of shedding, and nodes that take what they
can (S3-TM, 6.5). Simulated second by second; each copy takes a node the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.experiments.s3tm.buffer_kernels import serve_second
from ps2stream.multicast.shedding_levels import BufferSegments, SheddingLevel, targets_at
from ps2stream.protocol.frame import F64, I64


class RankedPosts(NamedTuple):
    """Posts with their nodes by descending rank, ragged: off int64[n + 1], node int64[copies]."""

    off: I64
    node: I64


class RouterSeconds(NamedTuple):
    """The course of a run, a row for each second: posts that came, waited at its end, were sent,
    did not fit into the buffer; copies sent and shed; the level, all int64[seconds]."""

    came: I64
    waiting: I64
    sent: I64
    dropped: I64
    copies: I64
    shed: I64
    level: I64


def simulate_router(
    posts: RankedPosts, rates: Sequence[float], segments: BufferSegments, room: int,
    capacity: float, nodes: int, seed: int,
) -> RouterSeconds:  # fmt: skip
    """Runs a router over the posts, again and again. rates: posts that come in each second, on
    average; room: posts that fit into the buffer; capacity: copies that a node takes a second."""
    rng = np.random.default_rng([seed, 7])
    came = rng.poisson(rates)
    machine = SheddingLevel(segments)
    credit, state = np.zeros(nodes), np.array([seed + 1], np.uint64)
    waiting, cursor = 0, 0
    rows = np.zeros((len(came), 7), np.int64)
    for second, new in enumerate(came.tolist()):
        waiting += new
        sent, copies, shed = serve_second(
            posts.off, posts.node, cursor, waiting, min(machine.targets, 1e9), capacity, credit,
            state,
        )  # fmt: skip
        waiting -= sent
        cursor += sent
        dropped = max(waiting - room, 0)
        waiting -= dropped
        rows[second] = new, waiting, sent, dropped, copies, shed, machine.step(waiting)
    return RouterSeconds(*np.ascontiguousarray(rows.T))


def measure_loads(posts: RankedPosts, nodes: int, levels: int) -> F64:
    """Returns what a post costs the most loaded node at each level, copies: float64[levels + 1]. A
    fraction of a node counts as such a part of a copy."""
    rank = np.arange(len(posts.node)) - np.repeat(posts.off[:-1], np.diff(posts.off))
    out = np.empty(levels + 1)
    for level in range(levels + 1):
        weight = np.clip(min(targets_at(level), 1e9) - rank, 0.0, 1.0)
        out[level] = np.bincount(posts.node, weight, nodes).max() / (len(posts.off) - 1)
    return out
