"""Memory layout of GI2, and the kernels that change it: insert, delete, purge, sweep.

Everything is a flat array that can be grown by copying (speed.md, what it takes, 3):

table   uint64[2^k, 2]: word 0 the term hash, word 1 = cell << 32 | run; 0 = empty.
        Both are whole, so a hit is exact: no posting is met under a wrong tag.
runs    uint32[]: a run of class c is a head (c << 27 | length) and room for 2^c
        postings of five words: x0 | x1 << 16, y0 | y1 << 16, mode << 30 | slot, and the
        high halves of up to two other keywords. The rectangle is in 1/65536 of the cell.
slots   one 64-byte line a query (float64 and int64 views of the same memory): rectangle,
        handle (= insert LSN), delete LSN, session, and the low halves of the keywords
        whose high halves stand in the postings - or, in mode GENERAL, a pool offset.
pool    uint64[]: blocks for what does not fit: second box, long expressions, geometry.
places  uint32[2^k]: open addressing, handle -> slot + 1.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs
from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ps2stream.messages import NEVER, Form, Kind, Shape

ALL, ANY, GENERAL, FREE = 0, 1, 2, 3  # modes: what is left to check of the expression
POSTING = 5  # words
SLOT_BITS = 30
SLOT_MASK = (1 << SLOT_BITS) - 1
LEN_BITS = 27
LEN_MASK = (1 << LEN_BITS) - 1
CELL_BITS = 28
CELL_MASK = (1 << CELL_BITS) - 1
LEVELS = 16

# slot columns
HANDLE, DELETED, SESSION, REST = 4, 5, 6, 7

# pool block: head words, then terms, program, geometry
P_HEAD, P_POST, P_GEOM, P_BOX, P_TERM = 0, 1, 2, 3, 7
POOL_UNIT = 8  # words of the smallest block

# state vector (int64)
TABLE_USED, RUN_TOP, SLOT_TOP, SLOT_FREE, POOL_TOP = 0, 1, 2, 3, 4
LIVE, PURGEABLE, POSTINGS, CURSOR, ROW, TAG, SLOT = 5, 6, 7, 8, 9, 10, 11
STATE = 12

DONE, GROW_RUNS, GROW_POOL = 0, 1, 2

_INSERT = int(Kind.INSERT)
_FORM_ALL, _FORM_ANY = int(Form.ALL), int(Form.ANY)
_WORLD, _RECT = int(Shape.WORLD), int(Shape.RECT)
_LOW = np.uint64(0xFFFFFFFF)
_C1 = np.uint64(0x9E3779B97F4A7C15)
_C2 = np.uint64(0xD6E8FEB86659FD93)
_NONE = np.uint64(0)
_FULL = np.array([(1 << n) - 1 for n in range(65)], np.uint64)


@intrinsic
def prefetch(_context: Any, array: Any, index: Any) -> Any:
    """Ask the CPU for the cache line of array[index] (first axis), without waiting."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        value = context.make_array(kind)(context, builder, args[0])
        at = [args[1]] + [context.get_constant(types.intp, 0)] * (kind.ndim - 1)
        where = cgutils.get_item_pointer(context, builder, kind, value, at, wraparound=False)
        byte = ir.IntType(8).as_pointer()
        i32 = ir.IntType(32)
        call = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32]),
            "llvm.prefetch.p0",
        )
        builder.call(call, [builder.bitcast(where, byte), i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@njit(inline="always")
def home(term, cell, shift):
    """Where a tag belongs in the table: the top bits of a mix of both."""
    return np.int64(((term ^ (np.uint64(cell) * _C1)) * _C2) >> np.uint64(shift))


@njit(inline="always")
def place(handle, shift):
    """Where a handle belongs in `places`."""
    return np.int64((np.uint64(handle) * _C1) >> np.uint64(shift))


@njit(inline="always")
def steps(degrees, offset, scale):
    """Degrees as whole steps of 1/65536 cell from the grid's corner. Monotone, also in
    floating point, and that is all that exactness needs: a <= b gives steps(a) <= steps(b)."""
    return np.int64(np.floor((degrees + offset) * scale))


@njit(inline="always")
def within(step, line):
    """A step relative to the cell in column or row `line`, clamped to 16 bits."""
    return np.uint32(min(max(step - (line << 16), 0), 65535))


@njit(inline="always")
def _take_run(runs, run_free, state, cls):
    """A free run of class cls, or -1 when the array must grow."""
    at = np.int64(run_free[cls])
    if at != 0:
        run_free[cls] = runs[at]
        return at
    at = state[RUN_TOP]
    size = 1 + (POSTING << cls)
    if at + size > runs.shape[0]:
        return np.int64(-1)
    state[RUN_TOP] = at + size
    return at


@njit(inline="always")
def _give_run(runs, run_free, at, cls):
    runs[at] = np.uint32(run_free[cls])
    run_free[cls] = at


@njit(cache=True, nogil=True)
def rehash(old, table, shift):
    """Put the tags of `old` into the larger, empty `table`."""
    mask = table.shape[0] - 1
    for i in range(old.shape[0]):
        word = old[i, 1]
        if word == _NONE:
            continue
        at = home(old[i, 0], word >> np.uint64(32), shift)
        while table[at, 1] != _NONE:
            at = (at + 1) & mask
        table[at, 0] = old[i, 0]
        table[at, 1] = word


@njit(cache=True, nogil=True)
def replace_places(old, places, shift, slots_i):
    """Put the handles of `old` into the larger, empty `places`."""
    mask = places.shape[0] - 1
    for i in range(old.shape[0]):
        if old[i] == 0:
            continue
        at = place(slots_i[np.int64(old[i]) - 1, HANDLE], shift)
        while places[at] != 0:
            at = (at + 1) & mask
        places[at] = old[i]


@njit(cache=True, nogil=True)
def _find(places, shift, slots_i, handle):
    """Position in `places` of a handle, or of the empty place where it would go."""
    mask = places.shape[0] - 1
    at = place(handle, shift)
    while places[at] != 0 and slots_i[np.int64(places[at]) - 1, HANDLE] != handle:
        at = (at + 1) & mask
    return at


@njit(cache=True, nogil=True)
def _take_pool(pool, pool_free, state, words):
    """(offset, class) of a block of at least `words`, or (-1, class)."""
    cls = 0
    while (POOL_UNIT << cls) < words:
        cls += 1
    at = pool_free[cls]
    if at != 0:
        pool_free[cls] = np.int64(pool[at])
        return at, cls
    at = state[POOL_TOP]
    if at + (POOL_UNIT << cls) > pool.shape[0]:
        return np.int64(-1), cls
    state[POOL_TOP] = at + (POOL_UNIT << cls)
    return at, cls


@njit(cache=True, nogil=True)
def insert_rows(
    kind, handle, session, form, post, term_off, term, prog_off, prog, box_off, box,
    shape, geom_off, geom, tag_off, tag_cell, tag_term, lon_bits, lat_bits,
    table, table_shift, runs, run_free, slots_f, slots_i, general, left,
    places, place_shift, pool, pool_f, pool_free, level_postings, state,
):  # fmt: skip
    """Insert rows from state[ROW], state[TAG] on; DONE, or what must grow first.

    `table`, `slots` and `places` have room for all rows; `runs` and `pool` perhaps not.
    """
    mask = table.shape[0] - 1
    while state[ROW] < kind.shape[0]:
        r = state[ROW]
        t0, t1, g0 = tag_off[r], tag_off[r + 1], term_off[r]
        n = term_off[r + 1] - g0
        b0 = box_off[r]
        boxes = box_off[r + 1] - b0 >> 2
        every = _FULL[n]
        plain = (shape[r] == _RECT or shape[r] == _WORLD) and boxes == 1
        if n > 1:
            alone = post[r] != 0 and post[r] & (post[r] - np.uint64(1)) == 0
            plain = plain and n <= 3
            for i in range(1, n):  # sorted, so equal high halves are neighbours
                plain = plain and term[g0 + i] >> np.uint64(32) != term[g0 + i - 1] >> np.uint64(32)
            plain = plain and (
                (form[r] == _FORM_ALL and alone) or (form[r] == _FORM_ANY and post[r] == every)
            )
        if state[SLOT] < 0:  # the row is not begun
            where = _find(places, place_shift, slots_i, handle[r])
            if kind[r] != _INSERT or t0 == t1 or places[where] != 0:
                state[ROW] = r + 1
                state[TAG] = t1
                continue
            rest = np.int64(0)
            if plain:
                a, b = _others(form[r], post[r], n)
                low = (term[g0 + a] & _LOW) | (term[g0 + b] << np.uint64(32))
                rest = np.int64(low)
            else:
                np_, ng = prog_off[r + 1] - prog_off[r], geom_off[r + 1] - geom_off[r]
                rest, cls = _take_pool(pool, pool_free, state, P_TERM + n + np_ + ng)
                if rest < 0:
                    return GROW_POOL
                pool[rest + P_HEAD] = np.uint64(
                    form[r] | shape[r] << 8 | boxes << 16 | n << 24 | np_ << 32
                )
                pool[rest + P_POST] = post[r]
                pool[rest + P_GEOM] = np.uint64(ng | cls << 48)
                if boxes > 1:
                    for i in range(4):
                        pool_f[rest + P_BOX + i] = box[b0 + 4 + i]
                at = rest + P_TERM
                for i in range(n):
                    pool[at + i] = term[g0 + i]
                at += n
                for i in range(np_):
                    pool[at + i] = np.uint64(np.int64(prog[prog_off[r] + i]))
                at += np_
                for i in range(ng):
                    pool_f[at + i] = geom[geom_off[r] + i]
            slot = state[SLOT_FREE]
            if slot >= 0:
                state[SLOT_FREE] = slots_i[slot, HANDLE]
            else:
                slot = state[SLOT_TOP]
                state[SLOT_TOP] = slot + 1
            for i in range(4):
                slots_f[slot, i] = box[b0 + i]
            slots_i[slot, HANDLE] = handle[r]
            slots_i[slot, DELETED] = NEVER
            slots_i[slot, SESSION] = session[r]
            slots_i[slot, REST] = rest
            general[slot] = not plain
            left[slot] = t1 - t0
            places[where] = np.uint32(slot + 1)
            state[SLOT] = slot
            state[LIVE] += 1
        slot = state[SLOT]
        while state[TAG] < t1:
            tag = state[TAG]
            cell, key = tag_cell[tag], tag_term[tag]
            at = home(key, cell, table_shift)
            while table[at, 1] != _NONE and (
                table[at, 0] != key or table[at, 1] >> np.uint64(32) != cell
            ):
                at = (at + 1) & mask
            if table[at, 1] == _NONE:
                run = _take_run(runs, run_free, state, 0)
                if run < 0:
                    return GROW_RUNS
                runs[run] = 0
                table[at, 0] = key
                table[at, 1] = np.uint64(cell) << np.uint64(32) | np.uint64(run)
                state[TABLE_USED] += 1
            run = np.int64(table[at, 1] & _LOW)
            cls = np.int64(runs[run]) >> LEN_BITS
            length = np.int64(runs[run]) & LEN_MASK
            if length == 1 << cls:
                new = _take_run(runs, run_free, state, cls + 1)
                if new < 0:
                    return GROW_RUNS
                for i in range(1, 1 + length * POSTING):
                    runs[new + i] = runs[run + i]
                _give_run(runs, run_free, run, cls)
                run = new
                cls += 1
                table[at, 1] = np.uint64(cell) << np.uint64(32) | np.uint64(run)
            runs[run] = np.uint32(cls << LEN_BITS | (length + 1))
            p = run + 1 + length * POSTING
            level = np.int64(cell) >> CELL_BITS
            runs[p], runs[p + 1] = _outline(box, b0, boxes, cell, level, lon_bits, lat_bits)
            mode = FREE
            a = b = key
            if not plain:
                mode = GENERAL
            if n > 1:
                if form[r] == _FORM_ALL:
                    if plain:
                        mode = ALL
                    i, j = _others(form[r], post[r], n)
                    a, b = term[g0 + i], term[g0 + j]
                elif plain and key != term[g0]:
                    mode = ANY
                    a = b = term[g0]
                    if n > 2 and key == term[g0 + 2]:
                        b = term[g0 + 1]
            runs[p + 2] = np.uint32(mode << SLOT_BITS | slot)
            runs[p + 3] = np.uint32(a >> np.uint64(32))
            runs[p + 4] = np.uint32(b >> np.uint64(32))
            level_postings[level] += 1
            state[POSTINGS] += 1
            state[TAG] = tag + 1
        state[ROW] = r + 1
        state[SLOT] = -1
    return DONE


@njit(inline="always")
def _others(form, post, n):
    """Positions of the (up to) two keywords that postings carry. Of a conjunction those
    that it is not posted under; of a disjunction the two smallest."""
    if n == 1:
        return 0, 0
    if form == _FORM_ANY:
        return 0, 1
    a = 0 if post & np.uint64(1) == 0 else 1
    b = a
    for i in range(n - 1, a, -1):
        if post >> np.uint64(i) & np.uint64(1) == 0:
            b = i
    return a, b


@njit(inline="always")
def _outline(box, b0, boxes, cell, level, lon_bits, lat_bits):
    """The part of the boxes in a cell, as the two rectangle words of a posting."""
    columns = 1 << (lon_bits - 2 * level)
    rows = 1 << (lat_bits - 2 * level)
    col = (np.int64(cell) & CELL_MASK) % columns
    row = (np.int64(cell) & CELL_MASK) // columns
    sx, sy = columns * 65536.0 / 360.0, rows * 65536.0 / 180.0
    x0 = y0 = np.uint32(65535)
    x1 = y1 = np.uint32(0)
    for i in range(boxes):
        b = b0 + 4 * i
        x0 = min(x0, within(steps(box[b], 180.0, sx), col))
        y0 = min(y0, within(steps(box[b + 1], 90.0, sy), row))
        x1 = max(x1, within(steps(box[b + 2], 180.0, sx), col))
        y1 = max(y1, within(steps(box[b + 3], 90.0, sy), row))
    return x0 | x1 << np.uint32(16), y0 | y1 << np.uint32(16)


@njit(cache=True, nogil=True)
def delete_handles(handles, lsns, places, place_shift, slots_i, state, out):
    """Set the delete LSNs and forget the handles; out[i] = slot, or -1 if unknown."""
    mask = places.shape[0] - 1
    for i in range(handles.shape[0]):
        at = _find(places, place_shift, slots_i, handles[i])
        if places[at] == 0:
            out[i] = -1
            continue
        slot = np.int64(places[at]) - 1
        slots_i[slot, DELETED] = lsns[i]
        out[i] = slot
        state[LIVE] -= 1
        gap = at
        at = (at + 1) & mask
        while places[at] != 0:  # close the gap: Knuth 6.4 R
            want = place(slots_i[np.int64(places[at]) - 1, HANDLE], place_shift)
            if (at - want) & mask >= (at - gap) & mask:
                places[gap] = places[at]
                gap = at
            at = (at + 1) & mask
        places[gap] = 0


@njit(cache=True, nogil=True)
def mark_dead(slots, dead, state):
    """These slots can match no object any more: their postings go when met."""
    for i in range(slots.shape[0]):
        dead[slots[i] >> 6] |= np.uint64(1) << np.uint64(slots[i] & 63)
    state[PURGEABLE] += slots.shape[0]


@njit(inline="always")
def is_dead(dead, slot):
    return (dead[slot >> 6] >> np.uint64(slot & 63)) & np.uint64(1) != 0


@njit(cache=True, nogil=True)
def drop_posting(
    runs, run, i, level, dead, left, slots_i, general, pool, pool_free, level_postings, state
):
    """Remove posting i of a run; with its last posting a query's slot becomes free."""
    head = np.int64(runs[run])
    last = run + 1 + ((head & LEN_MASK) - 1) * POSTING
    p = run + 1 + i * POSTING
    slot = np.int64(runs[p + 2]) & SLOT_MASK
    for z in range(POSTING):
        runs[p + z] = runs[last + z]
    runs[run] = np.uint32(head - 1)
    state[POSTINGS] -= 1
    level_postings[level] -= 1
    left[slot] -= 1
    if left[slot] != 0:
        return
    dead[slot >> 6] &= ~(np.uint64(1) << np.uint64(slot & 63))
    if general[slot]:
        at = slots_i[slot, REST]
        cls = np.int64(pool[at + P_GEOM] >> np.uint64(48))
        pool[at] = np.uint64(pool_free[cls])
        pool_free[cls] = at
    slots_i[slot, HANDLE] = state[SLOT_FREE]
    state[SLOT_FREE] = slot
    state[PURGEABLE] -= 1


@njit(cache=True, nogil=True)
def sweep_table(
    budget, table, table_shift, runs, run_free, dead, left, slots_i, general, pool,
    pool_free, level_postings, state,
):  # fmt: skip
    """Purge the lists of the next `budget` table entries; how many postings went."""
    mask = table.shape[0] - 1
    before = state[POSTINGS]
    at = state[CURSOR] & mask
    for _ in range(min(budget, table.shape[0] + state[TABLE_USED])):  # removals stay in place
        word = table[at, 1]
        if word == _NONE:
            at = (at + 1) & mask
            continue
        run = np.int64(word & _LOW)
        level = np.int64(word >> np.uint64(32)) >> CELL_BITS
        i = 0
        while i < np.int64(runs[run]) & LEN_MASK:
            if is_dead(dead, np.int64(runs[run + 1 + i * POSTING + 2]) & SLOT_MASK):
                drop_posting(runs, run, i, level, dead, left, slots_i, general, pool,
                             pool_free, level_postings, state)  # fmt: skip
            else:
                i += 1
        if np.int64(runs[run]) & LEN_MASK != 0:
            at = (at + 1) & mask
            continue
        _give_run(runs, run_free, run, np.int64(runs[run]) >> LEN_BITS)
        state[TABLE_USED] -= 1
        gap = at
        probe = (at + 1) & mask
        while table[probe, 1] != _NONE:
            want = home(table[probe, 0], table[probe, 1] >> np.uint64(32), table_shift)
            if (probe - want) & mask >= (probe - gap) & mask:
                table[gap, 0] = table[probe, 0]
                table[gap, 1] = table[probe, 1]
                gap = probe
            probe = (probe + 1) & mask
        table[gap, 1] = _NONE
    state[CURSOR] = at
    return before - state[POSTINGS]
