"""How the arrays of a radix GI2 grow: each function returns them with room for what is to come."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import I64, U32
from ps2stream.workers.arrays import cache_lines, grow_copy
from ps2stream.workers.load_kernels import NO_CELL
from ps2stream.workers.radix import layout as kl
from ps2stream.workers.radix.arrays import FIRST, RadixArrays, make_places, take_lines, view_nodes
from ps2stream.workers.radix.cell_kernels import rehash_cells
from ps2stream.workers.radix.place_kernels import rehash_places
from ps2stream.workers.radix.posting_kernels import TREE_WORDS

BITS = 64  # slots whose bits share a word
_PLACES_FULL, _PLACES_EMPTY = 0.88, 0.7
_LARGER = 2  # times, as a copy of many queries holds up those behind; the rest takes no memory


def reserve_slots(arrays: RadixArrays, rows: int) -> RadixArrays:
    """Makes room for this many more slots."""
    top, now = int(arrays.state[kl.SLOT_TOP]) + rows, len(arrays.slots_f)
    if top <= now:
        return arrays
    most = kl.SLOT_MASK // BITS * BITS
    if top > most:
        raise MemoryError(f"a worker holds at most {most} queries that differ")
    size = min(-(-max(top, _LARGER * now) // BITS) * BITS, most)
    slots = cache_lines(size)
    slots[:now] = arrays.slots_f
    dead = grow_copy(arrays.dead, size // BITS)[: size // BITS]
    return arrays._replace(slots_f=slots, slots_i=slots.view(np.int64), dead=dead)


def fit_places(arrays: RadixArrays, held: int) -> RadixArrays:
    """Makes room in `places` for this many handles, and for refs to all slots and holders."""
    state, size = arrays.state, len(arrays.places)
    before = int(state[kl.PLACE_BITS])
    bits = max(2 * len(arrays.slots_f) + 2, len(arrays.holders)).bit_length()
    if bits >= 32:
        raise MemoryError(f"a worker holds at most {1 << 30} queries that are alike")
    if held > _PLACES_FULL * size:
        size = int(held / _PLACES_EMPTY)
    elif bits <= before:
        return arrays
    state[kl.PLACE_BITS] = max(bits, before)
    larger = arrays._replace(places=make_places(size))
    rehash_places(arrays.places, before, tuple(larger))
    return larger


def grow_holders(arrays: RadixArrays) -> RadixArrays:
    """Makes room for two more chunks of holders at least."""
    holders = grow_copy(arrays.holders, len(arrays.holders) + FIRST)
    return fit_places(arrays._replace(holders=holders), 0)


def grow_nodes(arrays: RadixArrays, terms: int) -> RadixArrays:
    """Makes room for the trees of a query with this many posting terms, and for the splits that
    were put off."""
    state = arrays.state
    need = kl.KEPT * terms * TREE_WORDS + int(state[kl.WANTED]) + kl.SLACK
    old = arrays.nodes
    nodes = take_lines(max(int(state[kl.NODE_TOP]) + need, _LARGER * len(old)))
    nodes[: len(old)] = old
    return arrays._replace(nodes=nodes, **view_nodes(nodes))


def reserve_pool(arrays: RadixArrays, words: int) -> RadixArrays:
    """Makes room for this many more words in the pool."""
    need = int(arrays.state[kl.POOL_TOP]) + words
    if need <= len(arrays.pool):
        return arrays
    pool = take_lines(max(need, _LARGER * len(arrays.pool)))
    pool[: len(arrays.pool)] = arrays.pool
    return arrays._replace(pool=pool, pool_f=pool.view(np.float64))


def grow_cells(arrays: RadixArrays, tags: int) -> RadixArrays:
    """Makes room for this many more cells that are counted."""
    state = arrays.state
    size = 1 << (4 * (int(state[kl.CELLS_USED]) + tags)).bit_length()
    cells: U32 = np.full(size, NO_CELL, np.uint32)
    counts: I64 = np.zeros((size, 2), np.int64)
    state[kl.CELLS_USED] = rehash_cells(arrays.cells, arrays.counts, cells, counts)
    return arrays._replace(cells=cells, counts=counts)
