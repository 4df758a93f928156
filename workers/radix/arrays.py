"""Arrays that hold a radix GI2, and the groups in which its kernels take them; like `arrays` of
the flat GI2, kernels take plain tuples of the fields in their order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64, U8, U32, U64, Array
from ps2stream.workers.arrays import cache_lines, grow_copy
from ps2stream.workers.index import Parts
from ps2stream.workers.load_kernels import NO_CELL
from ps2stream.workers.radix import layout as kl

FIRST = 1 << 10  # entries of new arrays
WALKS_AHEAD = 512  # through trees, of the updates for which memory is asked for together
FIRST_HOLDER = 1 << 6  # a whole chunk, as 0 means none
SAMPLED = kl.SAMPLE  # comparisons by which a band is divided, queries after which a set has a code
DIVIDED = 1024  # WIDE postings of a band, from which on they are divided by their codes
LONG_PROGRAM = 512  # values: a longer one is not analysed when it is stored


class RadixArrays(NamedTuple):
    """The arrays of a radix GI2 (layout.py says what they hold), C-contiguous and writable.

    directory uint64[buckets, 8]; nodes uint64[], n32 uint32[] and n16 uint16[]: one memory;
    node_free int64[17]: the first free block of each class; wide uint64[1024]: a bit for each
    hash of the terms with WIDE trees; pool uint64[] and pool_f float64[]: one memory; pool_free
    int64[48]; slots_f float64[slots, 8] and slots_i int64[slots, 8]: one memory; dead
    uint64[slots / 64]; places uint32[]; holders int64[2 * entries]; cells uint32[2^k], counts
    int64[2^k, 2]; state int64[289]; bands uint64[17, 65].
    """

    directory: U64
    nodes: U64
    n32: U32
    n16: NDArray[np.uint16]
    node_free: I64
    wide: U64
    pool: U64
    pool_f: F64
    pool_free: I64
    slots_f: F64
    slots_i: I64
    dead: U64
    places: U32
    holders: I64
    cells: U32
    counts: I64
    state: I64
    bands: U64


class UpdateScratch(NamedTuple):
    """The memory of updates, C-contiguous and writable: trail int64[1024, 6], of walks through a
    tree; roots int64[4]; cell and tag_cell uint32[tags], term and tag_term uint64[tags], of one
    query; stack uint64[2048], of the analysis of its program; walks int64[WALKS_AHEAD, 8] and
    leaves int64[WALKS_AHEAD], of the updates that come next."""

    trail: I64
    roots: I64
    cell: U32
    term: U64
    tag_cell: U32
    tag_term: U64
    stack: U64
    walks: I64
    leaves: I64


class RadixScratch(NamedTuple):
    """The memory of a match between its stages, C-contiguous and writable.

    keys uint64[keys of a block, 2]; leaves uint64[leaves of a block, 2]; inner uint64[keys, 2];
    points float64[block, 2]; at uint32[block, 2]: steps; prints uint64[block, 16], bits
    uint32[block, 32] and masks uint16[block, 64], one memory: fingerprints, and the codes of
    comparisons; spots uint64[block, 2]; groups uint64[groups, 2];
    cands uint32[3, candidates + 16]; checks uint32[candidates, 3]; later int64[candidates]: those
    with more to check, then their hits in polygons that are still open; hits uint64[hits]; tally
    int64[block]: hits by object, and flags int64[1]: those of all hits, zero between blocks; stack
    uint8[program].
    """

    keys: U64
    leaves: U64
    inner: U64
    points: F64
    at: U32
    prints: U64
    bits: U32
    masks: NDArray[np.uint16]
    spots: U64
    groups: U64
    cands: U32
    checks: U32
    later: I64
    hits: U64
    tally: I64
    flags: I64
    stack: U8


class RadixMatches(NamedTuple):
    """Room for matches, all equally long: handle and session int64[] and row uint32[]; of those
    whose exact shape is still to be checked, their number among the matches and the offset of the
    extras, shaped and extras int64[]. C-contiguous and writable."""

    handle: I64
    session: I64
    row: U32
    shaped: I64
    extras: I64

    def grow(self) -> RadixMatches:
        """Returns copies that are twice as long."""
        size = 2 * len(self.row)
        return RadixMatches(*(grow_copy(column, size) for column in self))


def view_nodes(nodes: U64) -> dict[str, Array]:
    """Returns the other views of these nodes, by the names of their fields."""
    return {"n32": nodes.view(np.uint32), "n16": nodes.view(np.uint16)}


def take_lines(words: int) -> U64:
    """Returns zeros uint64[n], n being `words` or a few more, that are whole cache lines."""
    return cache_lines(-(-words // kl.LINE)).view(np.uint64).reshape(-1)


def _align_lines(array: Array) -> Array:
    """Returns an array that begins with a cache line: this one, or a copy."""
    if array.ctypes.data % (8 * kl.LINE) == 0:
        return array
    out = take_lines(array.size).view(array.dtype)[: array.size].reshape(array.shape)
    out[...] = array
    return out


def make_update_scratch(tags: int) -> UpdateScratch:
    """Returns memory for updates of queries with up to this many tags."""
    return UpdateScratch(
        trail=np.zeros((1 << 10, 6), np.int64),
        roots=np.zeros(kl.KEPT, np.int64),
        cell=np.zeros(tags, np.uint32),
        term=np.zeros(tags, np.uint64),
        tag_cell=np.zeros(tags, np.uint32),
        tag_term=np.zeros(tags, np.uint64),
        stack=np.zeros(4 * LONG_PROGRAM, np.uint64),
        walks=np.zeros((WALKS_AHEAD, 8), np.int64),
        leaves=np.zeros(WALKS_AHEAD, np.int64),
    )


def make_places(size: int) -> U32:
    """Returns empty places, at least `size`: whole cache lines."""
    return cache_lines(-(-size // 16)).view(np.uint32).reshape(-1)


def make_arrays() -> RadixArrays:
    """Returns the arrays of an empty index."""
    slots, pool = cache_lines(FIRST), take_lines(FIRST)
    bands: U64 = np.zeros((kl.BANDS + 2, kl.BAND_ROW), np.uint64)
    bands[0, 1], bands[0, 2] = SAMPLED, DIVIDED
    nodes = take_lines(FIRST)
    state = np.zeros(kl.STATE, np.int64)
    state[kl.NODE_TOP] = 1  # offset 0 means none
    state[kl.POOL_TOP] = kl.POOL_UNIT
    state[kl.SLOT_FREE] = -1
    state[kl.PLACE_BITS] = (2 * FIRST).bit_length()
    state[kl.HOLDER_TOP] = FIRST_HOLDER
    return RadixArrays(
        directory=take_lines(FIRST * kl.BUCKET // kl.ENTRIES).reshape(-1, kl.BUCKET),
        nodes=nodes,
        n32=nodes.view(np.uint32),
        n16=nodes.view(np.uint16),
        node_free=np.zeros(len(kl.BLOCK_WORDS), np.int64),
        wide=np.zeros(1 << 10, np.uint64),
        pool=pool,
        pool_f=pool.view(np.float64),
        pool_free=np.zeros(48, np.int64),
        slots_f=slots,
        slots_i=slots.view(np.int64),
        dead=np.zeros(FIRST // 64, np.uint64),
        places=make_places(FIRST),
        holders=np.zeros(FIRST, np.int64),
        cells=np.full(FIRST, NO_CELL, np.uint32),
        counts=np.zeros((FIRST, 2), np.int64),
        state=state,
        bands=bands,
    )


def list_written(arrays: RadixArrays) -> dict[str, int]:
    """Returns the bytes of each array of queries, or those of it that were ever written, by its
    name."""
    state = arrays.state
    slots = int(state[kl.SLOT_TOP])
    written: dict[str, Array] = {
        "directory": arrays.directory,
        "nodes": arrays.nodes[: state[kl.NODE_TOP]],
        "wide": arrays.wide,
        "pool": arrays.pool[: state[kl.POOL_TOP]],
        "slots": arrays.slots_f[:slots],
        "dead": arrays.dead[: slots // 64],
        "places": arrays.places,
        "cells": arrays.cells,
        "counts": arrays.counts,
        "holders": arrays.holders[: 2 * state[kl.HOLDER_TOP]],
    }
    return {name: int(array.nbytes) for name, array in written.items()}


def restore_arrays(parts: Parts) -> RadixArrays:
    """Returns the arrays that `hold` gave."""
    own = {name: parts[name] for name in RadixArrays._fields if name in parts}
    pool = _align_lines(parts["pool"])
    slots, nodes = _align_lines(parts["slots"]), _align_lines(parts["nodes"])
    own |= {"directory": _align_lines(parts["directory"]), "nodes": nodes, "pool": pool}
    views = {"pool_f": pool.view(np.float64), "slots_f": slots, "slots_i": slots.view(np.int64)}
    return RadixArrays(**own, **views, **view_nodes(nodes))


def make_key_columns(keys: int) -> dict[str, Array]:
    """Returns the memory of a match for this many keys a block, by the names of the fields."""
    return {
        "keys": np.zeros((keys, 2), np.uint64),
        "leaves": np.zeros((kl.LEAVES_A_KEY * keys + 1, 2), np.uint64),
        "inner": np.zeros((keys + 1, 2), np.uint64),
    }


def make_match_scratch(
    batch: int, keys: int, groups: int, candidates: int, hits: int
) -> RadixScratch:
    """Returns memory for matches by blocks of `batch` objects, with room for as many keys, groups,
    candidates and hits."""
    prints: U64 = take_lines(batch * kl.PRINT_WORDS).reshape(batch, kl.PRINT_WORDS)
    prints[:, [4, 8]] = 1  # the code 0 stands for none, which holds
    return RadixScratch(
        **make_key_columns(keys),
        points=np.zeros((batch, 2)),
        at=np.zeros((batch, 2), np.uint32),
        prints=prints,
        bits=prints.view(np.uint32),
        masks=prints.view(np.uint16),
        spots=np.zeros((batch, 2), np.uint64),
        groups=np.zeros((groups, 2), np.uint64),
        cands=np.zeros((3, candidates + kl.LANES), np.uint32),
        checks=np.zeros((candidates, 3), np.uint32),
        later=np.zeros(candidates, np.int64),
        hits=np.zeros(hits, np.uint64),
        tally=np.zeros(batch, np.int64),
        flags=np.zeros(1, np.int64),
        stack=np.zeros(64, np.uint8),
    )


def make_room(matches: int) -> RadixMatches:
    """Returns room for this many matches."""
    handle, session, shaped, extras = (np.empty(matches, np.int64) for _ in range(4))
    return RadixMatches(handle, session, np.empty(matches, np.uint32), shaped, extras)
