"""Inserting into GI2: slots, postings, and what a posting holds of its query."""

# mypy: allow-untyped-decorators, allow-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.programs import find_program_end
from ps2stream.protocol.rows import NEVER, ExpressionForm, RegionShape, UpdateKind
from ps2stream.workers.arrays import IndexArrays, StoredRowColumns, TagColumns
from ps2stream.workers.layout import (
    ALL,
    ANY,
    BUCKET,
    CELL_BITS,
    CELL_MASK,
    DELETED,
    FREE,
    GENERAL,
    HANDLE,
    LEN_BITS,
    LEN_MASK,
    LIVE,
    LOW,
    NONE,
    P_BOX,
    P_GEOM,
    P_HEAD,
    P_POST,
    P_TERM,
    POSTING,
    POSTINGS,
    REST,
    ROW,
    SESSION,
    SLOT,
    SLOT_BITS,
    SLOT_FREE,
    SLOT_TOP,
    TABLE_USED,
    TAG,
    cell_side,
    cell_step,
    count_tags,
    find_place,
    find_tag,
    free_run,
    home,
    home_place,
    line_count,
    next_position,
    take_block,
    take_run,
)

_INSERT = int(UpdateKind.INSERT)
_FORM_ALL, _FORM_ANY = int(ExpressionForm.ALL), int(ExpressionForm.ANY)
_WORLD, _RECT = int(RegionShape.WORLD), int(RegionShape.RECT)
_FULL = np.array([(1 << n) - 1 for n in range(65)], np.uint64)
DONE, GROW_RUNS, GROW_POOL = 0, 1, 2


@njit(cache=True, nogil=True)
def rehash_tags(old, table):
    """Puts the tags of `old` into the larger, empty `table`."""
    for i in range(old.shape[0]):
        for j in range(count_tags(old, i)):
            key, word = old[i, j], old[i, BUCKET + j]
            cell = word >> np.uint64(32)
            at, _ = find_tag(table, home(key, cell, table.shape[0]), key, cell)
            column = count_tags(table, at)
            table[at, column] = key
            table[at, BUCKET + column] = word


@njit(cache=True, nogil=True)
def rehash_places(old, places, slots_i):
    """Puts the handles of `old` into the larger, empty `places`."""
    size = places.shape[0]
    for i in range(old.shape[0]):
        if old[i] == 0:
            continue
        at = home_place(slots_i[np.int64(old[i]) - 1, HANDLE], size)
        while places[at] != 0:
            at = next_position(at, size)
        places[at] = old[i]


@njit(cache=True, nogil=True)
def insert_rows(rows, tags, lines, index, extend):
    """Inserts rows from state[ROW] and state[TAG] on; returns DONE, or what must grow first.

    rows, tags, index: plain tuples of the fields of StoredRowColumns, TagColumns and IndexArrays.
    extend: a query that is stored gets the postings of the row; otherwise the row is passed over.
    `table`, `slots` and `places` have room for all rows; `runs` and `pool` may not.
    """
    return _store_postings(
        StoredRowColumns(*rows), TagColumns(*tags), lines, IndexArrays(*index), extend
    )


@njit(inline="always")
def _store_postings(rows, tags, lines, index, extend):
    kind, handle, form, post, shape = rows.kind, rows.handle, rows.form, rows.post, rows.shape
    term_off, term, box_off, box = rows.term_off, rows.term, rows.box_off, rows.box
    prog_off, prog, geom_off, geom = rows.prog_off, rows.prog, rows.geom_off, rows.geom
    tag_off, tag_cell, tag_term = tags.off, tags.cell, tags.term
    table, runs, run_free, places = index.table, index.runs, index.run_free, index.places
    pool, pool_f, slots_f, slots_i = index.pool, index.pool_f, index.slots_f, index.slots_i
    left, state = index.left, index.state
    size = table.shape[0]
    while state[ROW] < kind.shape[0]:
        r = state[ROW]
        t0, t1, g0 = tag_off[r], tag_off[r + 1], term_off[r]
        n = term_off[r + 1] - g0
        b0 = box_off[r]
        boxes = box_off[r + 1] - b0 >> 2
        every = _FULL[n]
        plain = (shape[r] == _RECT or shape[r] == _WORLD) and boxes == 1
        plain = plain and form[r] <= _FORM_ANY
        if n > 1:
            alone = post[r] != 0 and post[r] & (post[r] - np.uint64(1)) == 0
            plain = plain and n <= 3
            for i in range(1, n):  # sorted, so equal high halves are neighbours
                plain = plain and term[g0 + i] >> np.uint64(32) != term[g0 + i - 1] >> np.uint64(32)
            plain = plain and (
                (form[r] == _FORM_ALL and alone) or (form[r] == _FORM_ANY and post[r] == every)
            )
        if state[SLOT] < 0:  # the row has not been begun
            where = find_place(places, slots_i, handle[r])
            slot = np.int64(places[where]) - 1
            if kind[r] != _INSERT or t0 == t1 or (slot >= 0 and not extend):
                state[ROW] = r + 1
                state[TAG] = t1
                continue
            if slot >= 0:
                left[slot] += t1 - t0
                state[SLOT] = slot
        if state[SLOT] < 0:
            rest = np.int64(0)
            if plain:
                a, b = _find_other_keywords(form[r], post[r], n)
                low = (term[g0 + a] & LOW) | (term[g0 + b] << np.uint64(32))
                rest = np.int64(low)
            else:
                np_, ng = np.int64(0), geom_off[r + 1] - geom_off[r]
                if form[r] > _FORM_ANY:
                    np_ = find_program_end(prog, prog_off[r], prog_off[r + 1]) - prog_off[r]
                rest, cls = take_block(pool, index.pool_free, state, P_TERM + n + np_ + ng)
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
            slots_i[slot, SESSION] = rows.session[r]
            slots_i[slot, REST] = rest
            index.general[slot] = not plain
            left[slot] = t1 - t0
            places[where] = np.uint32(slot + 1)
            state[SLOT] = slot
            state[LIVE] += 1
        slot = state[SLOT]
        while state[TAG] < t1:
            tag = state[TAG]
            cell, key = tag_cell[tag], tag_term[tag]
            at = home(key, cell, size)
            at, word = find_tag(table, at, key, np.uint64(cell))
            column = 0
            if word == NONE:
                run = take_run(runs, run_free, state, 0)
                if run < 0:
                    return GROW_RUNS
                runs[run] = 0
                column = count_tags(table, at)
                word = np.uint64(cell) << np.uint64(32) | np.uint64(run)
                table[at, column] = key
                table[at, BUCKET + column] = word
                state[TABLE_USED] += 1
            run = np.int64(word & LOW)
            cls = np.int64(runs[run]) >> LEN_BITS
            length = np.int64(runs[run]) & LEN_MASK
            if length == 1 << cls:
                new = take_run(runs, run_free, state, cls + 1)
                if new < 0:
                    return GROW_RUNS
                for i in range(1, 1 + length * POSTING):
                    runs[new + i] = runs[run + i]
                free_run(runs, run_free, run, cls)
                run = new
                cls += 1
                while table[at, BUCKET + column] != word:
                    column += 1
                table[at, BUCKET + column] = np.uint64(cell) << np.uint64(32) | np.uint64(run)
            runs[run] = np.uint32(cls << LEN_BITS | (length + 1))
            p = run + 1 + length * POSTING
            level = np.int64(cell) >> CELL_BITS
            runs[p], runs[p + 1] = _quantise_boxes(box, b0, boxes, cell, level, lines)
            mode = FREE
            a = b = key
            if not plain:
                mode = GENERAL
            if n > 1:
                if form[r] == _FORM_ALL:
                    if plain:
                        mode = ALL
                    i, j = _find_other_keywords(form[r], post[r], n)
                    a, b = term[g0 + i], term[g0 + j]
                elif plain and key != term[g0]:
                    mode = ANY
                    a = b = term[g0]
                    if n > 2 and key == term[g0 + 2]:
                        b = term[g0 + 1]
            runs[p + 2] = np.uint32(mode << SLOT_BITS | slot)
            runs[p + 3] = np.uint32(a >> np.uint64(32))
            runs[p + 4] = np.uint32(b >> np.uint64(32))
            index.level_postings[level] += 1
            state[POSTINGS] += 1
            state[TAG] = tag + 1
        state[ROW] = r + 1
        state[SLOT] = -1
    return DONE


@njit(inline="always")
def _find_other_keywords(form, post, n):
    """Returns the positions of the (up to) two keywords that postings carry: of a conjunction
    those that it is not posted under, of a disjunction the two smallest."""
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
def _quantise_boxes(box, b0, boxes, cell, level, lines):
    """Returns the part of the boxes in a cell as the two rectangle words of a posting."""
    columns = line_count(np.int64(lines[0]), level)
    col = (np.int64(cell) & CELL_MASK) % columns
    row = (np.int64(cell) & CELL_MASK) // columns
    west, sx = cell_side(lines, 0, col, level)
    south, sy = cell_side(lines, 1, row, level)
    x0 = y0 = np.uint32(65535)
    x1 = y1 = np.uint32(0)
    for i in range(boxes):
        b = b0 + 4 * i
        x0 = min(x0, cell_step(box[b], west, sx))
        y0 = min(y0, cell_step(box[b + 1], south, sy))
        x1 = max(x1, cell_step(box[b + 2], west, sx))
        y1 = max(y1, cell_step(box[b + 3], south, sy))
    return x0 | x1 << np.uint32(16), y0 | y1 << np.uint32(16)
