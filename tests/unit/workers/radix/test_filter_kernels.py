"""Scanning leaves and filtering what they hold, against twins in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.workers.radix import layout
from ps2stream.workers.radix.arrays import make_arrays, make_match_scratch, make_room, view_nodes
from ps2stream.workers.radix.filter_kernels import GROUPS, filter_groups, scan_leaves
from ps2stream.workers.radix.leaf_kernels import append_posting
from ps2stream.workers.radix.pointers import (
    list_addresses,
    point_addresses,
    point_met,
    pointer_to,
)
from ps2stream.workers.radix.verify_kernels import C_SLOT, C_TERM, CANDIDATES, FULL_CANDIDATES, HITS


@njit
def call_append(
    nodes: Any,
    n32: Any,
    n16: Any,
    free: Any,
    state: Any,
    ref: int,
    rect: Any,
    word: Any,
    prints: Any,
) -> Any:
    return append_posting(
        pointer_to(nodes), pointer_to(n32), pointer_to(n16), pointer_to(free), pointer_to(state),
        ref, rect, word, prints,
    )  # fmt: skip


@njit
def call_scan(addresses: Any, leaf: int, last: int, on: int) -> Any:
    index, scratch, _ = point_addresses(addresses)
    return scan_leaves(leaf, last, on, 0, index, scratch)


@njit
def call_filter(addresses: Any, group: int, filled: int, met: Any, n: int, m: int) -> Any:
    index, scratch, _ = point_addresses(addresses)
    return filter_groups(group, filled, 0, index, scratch, point_met(met), n, m)


@pytest.mark.takes_turns(1)
@pytest.mark.parametrize("seed", range(6))
def test_candidates_are_those_whose_bytes_and_fingerprints_allow_it(seed: int) -> None:
    """Leaves of up to some thousand postings, so that groups and candidates are full at times. From
    seed 4 on most blocks of some leaves are even."""
    rng = np.random.default_rng(seed)
    arrays = make_arrays()
    nodes = np.zeros(1 << 16, np.uint64)
    arrays = arrays._replace(nodes=nodes, **view_nodes(nodes))
    scratch = make_match_scratch(64, 64, GROUPS, CANDIDATES, HITS)
    prints = rng.integers(0, 1 << 63, (64, 4), np.uint64) & rng.integers(
        0, 1 << 63, (64, 4), np.uint64
    )
    prints[:, 0] &= ~np.uint64(1)  # as the fingerprint 0 stands for none
    scratch.prints[:, :4] = prints
    met = np.zeros(64, np.int64), np.zeros(16, np.int64)
    has = [{p for p in range(256) if int(prints[o, p >> 6]) >> (p & 63) & 1} for o in range(64)]
    want_free: list[tuple[int, int, int]] = []
    want_check: list[tuple[int, int, int]] = []
    sizes = [1, 2, 15, 16, 17, 48, 64, 65, 300, 20_000 if seed == 3 else 1000]
    slot = 0
    for number, size in enumerate(sizes):
        ref, o, t = 0, int(rng.integers(64)), int(rng.integers(1000))
        x, y = (int(v) for v in rng.integers(0, 256, 2))
        for _ in range(size if size < 2000 else 3000):
            ends = np.sort(rng.integers(0, 256, (2, 2)), 0)
            (x0, y0), (x1, y1) = ends.tolist()
            rect = np.uint32(x0 | y0 << 8 | 255 - x1 << 16 | 255 - y1 << 24)
            mode, first, second = (int(v) for v in (rng.integers(4), *rng.integers(0, 256, 2)))
            if seed > 3 and number % 2 and rng.random() < 0.99:
                rect, mode, first = np.uint32(0), layout.ALL, max(first, 1)
                x0, y0, x1, y1 = 0, 0, 255, 255
            first, second = (0, 0) if mode in (layout.FREE, layout.GENERAL) else (first, second)
            word = mode << layout.SLOT_BITS | slot
            ref = int(
                call_append(
                    arrays.nodes, arrays.n32, arrays.n16, arrays.node_free, arrays.state, ref, rect,
                    np.uint32(word), np.uint16(first | second << 8),
                )
            )  # fmt: skip
            slot += 1
            if not (x0 <= x <= x1 and y0 <= y <= y1):
                continue
            any_print = first in has[o] or second in has[o]
            if mode == layout.FREE or (mode == layout.ANY and not any_print):
                want_free.append((o, t, word))
            elif mode != layout.ALL or (first in has[o] and (second == 0 or second in has[o])):
                want_check.append((o, t, word))
        point = x | y << 8 | 255 - x << 16 | 255 - y << 24
        scratch.leaves[number] = o | t << 32, ref | point << 32
    addresses = list_addresses(arrays, scratch, make_room(1))
    leaf, last, on = 0, len(sizes), 0
    free: list[tuple[int, int, int]] = []
    checks: list[tuple[int, int, int]] = []
    while leaf < last:
        leaf, last, on, filled = call_scan(addresses, leaf, last, on)
        assert filled <= GROUPS
        group = 0
        while group < filled:
            group, n, m = call_filter(addresses, group, filled, met, 0, 0)
            assert max(n, m) <= CANDIDATES
            assert group == filled or max(n, m) > FULL_CANDIDATES
            flat = scratch.cands.ravel()
            free += zip(*(flat[at : at + n].tolist() for at in (0, C_TERM, C_SLOT)), strict=True)
            checks += map(tuple, scratch.checks[:m].tolist())
    assert sorted(free) == sorted(want_free)
    assert sorted(checks) == sorted(want_check)
    own = [o for o, _, _ in want_free + want_check]
    assert met[0].tolist() == np.bincount(own, minlength=64).tolist()
