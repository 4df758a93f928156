"""The validity of queries: when a query ends, whether it is matched against the objects that are
still valid (retro), and the sequencer's time at its insert.

All three are notes behind the program of the query (rows.py), so the ledger and the sequencer pack
them as they pack any program, and rows without them stay as they were. A note of validity is a pair
(number, value of two bytes): the numbers 0..3 have the end, the lowest bytes first, 4..7 the time
of the insert, and _LAST the flags. They stand behind the notes on literals, whose kinds begin at 1,
and those of validity have the kind 0.

The end is also in the source of the query, before its canonical expression, as queries with other
ends are other queries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ps2stream.protocol.frame import I16, I64, U8, sealed
from ps2stream.protocol.rows import PROG_NOTES, QueryRows

_LAST = 8
_NOTES = _LAST + 1
_VALUES = 2 * _NOTES
_WORDS = 4  # of a time
_RETRO = 1  # a flag
END_MARK = 1
"""The byte before the end in a source, with which no canonical expression begins."""
END_DIGITS = 16  # hexadecimal
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


class QueryValidity(NamedTuple):
    """The validity of the queries that have one, int64[k] each and bool[k]. row: which they are;
    until: Unix ms, 0 for no end; inserted: the sequencer's time at the insert, Unix ms, 0 before
    it has one; retro: whether objects that are still valid are matched as well."""

    row: I64
    until: I64
    inserted: I64
    retro: NDArray[np.bool_]


_NONE = np.zeros(0, np.int64)
_NO_VALIDITY = QueryValidity(_NONE, _NONE, _NONE, np.zeros(0, np.bool_))


def find_validity(rows: QueryRows) -> QueryValidity:
    """Returns the validity of the rows that have one. Rows without programs and notes cost one
    test."""
    if not len(rows.prog):
        return _NO_VALIDITY
    row, at = _find_notes(rows)
    if not len(row):
        return _NO_VALIDITY
    values = rows.prog[at[:, None] + np.arange(1, _VALUES, 2)].astype(np.int64) & 0xFFFF
    shifts = 16 * np.arange(_WORDS)
    times = (values[:, :-1].reshape(-1, 2, _WORDS) << shifts).sum(axis=2)
    return QueryValidity(row, times[:, 0], times[:, 1], (values[:, -1] & _RETRO).astype(np.bool_))


def stamp_inserts(rows: QueryRows, now_ms: int) -> QueryRows:
    """Returns the rows with this time as that of their inserts, where they have a validity."""
    if not len(rows.prog):
        return rows
    row, at = _find_notes(rows)
    if not len(row):
        return rows
    prog = rows.prog.copy()
    prog[at[:, None] + np.arange(2 * _WORDS + 1, 4 * _WORDS, 2)] = _split_times(np.array([now_ms]))
    return rows.replace(prog=prog)


def add_validity(rows: QueryRows, until: I64, retro: NDArray[np.bool_]) -> QueryRows:
    """Returns inserts without notes of validity with these ends, Unix ms, 0 for none, and flags."""
    row = np.flatnonzero((until > 0) | retro)
    if not len(row):
        return rows
    off, prog = _add_terminators(rows.prog_off, rows.prog, row)
    notes = np.zeros((len(row), _NOTES, 2), np.int16)
    notes[:, :, 0] = np.arange(_NOTES)
    notes[:, :_WORDS, 1] = _split_times(until[row])
    notes[:, _LAST, 1] = np.where(retro[row], _RETRO, 0)
    at = off[row + 1] - 1
    prog[at] -= _NOTES
    added = np.zeros(len(rows), np.int64)
    added[row] = _VALUES
    prog = np.insert(prog, np.repeat(at, _VALUES), notes.ravel())
    off = off + np.concatenate([np.zeros(1, np.int64), np.cumsum(added)])
    ends = row[until[row] > 0]
    source_off, source = _add_ends(rows, ends, until[ends])
    return rows.replace(prog_off=off, prog=prog, source_off=source_off, source=source)


def split_end(text: bytes) -> tuple[int, bytes]:
    """Returns (the end in Unix ms, 0 for none; the texts behind it) of the texts of a source."""
    if text[:1] != bytes([END_MARK]):
        return 0, text
    return int(text[1 : 1 + END_DIGITS], 16), text[1 + END_DIGITS :]


def has_validity(rows: U8) -> bool:
    """Returns whether some of these encoded QueryRows have a validity. Raises FrameError where they
    are cut short."""
    if not QueryRows.count_elements(rows.data, "prog"):
        return False
    off, prog = QueryRows.view_columns(rows.data, "prog_off", "prog")
    return len(_list_notes(sealed(off), sealed(prog))[0]) > 0


def _find_notes(rows: QueryRows) -> tuple[I64, I64]:
    """Returns the rows that have notes of validity, and where these begin in `prog`."""
    found: tuple[I64, I64] = _list_notes(sealed(rows.prog_off), sealed(rows.prog))
    return found


@njit(cache=True, nogil=True)
def _list_notes(off: I64, prog: I16) -> tuple[I64, I64]:
    """Returns what `_find_notes` does. Offsets that are beyond the programs have no notes."""
    n = 0
    row, at = np.empty(off.shape[0], np.int64), np.empty(off.shape[0], np.int64)
    for i in range(off.shape[0] - 1):
        last = off[i + 1] - 1
        if off[i] < 0 or last >= prog.shape[0] or last - off[i] < _VALUES:
            continue
        if prog[last] <= PROG_NOTES - _NOTES and prog[last - 2] == _LAST:
            row[n], at[n] = i, last - _VALUES
            n += 1
    return row[:n].copy(), at[:n].copy()


def _split_times(times: I64) -> I16:
    """Returns int16[n, 4]: times as values of two bytes, the lowest first."""
    words = times[:, None] >> 16 * np.arange(_WORDS) & 0xFFFF
    return words.astype(np.uint16).view(np.int16)


def _add_terminators(off: I64, prog: I16, row: I64) -> tuple[I64, I16]:
    """Returns programs in which each of these rows ends in a value that says how many notes it
    has."""
    end = off[row + 1]
    filled = end > off[row]
    bare = ~filled
    bare[filled] = prog[end[filled] - 1] > PROG_NOTES
    added = np.zeros(len(off), np.int64)
    added[row[bare] + 1] = 1
    return off + np.cumsum(added), np.insert(prog, end[bare], np.int16(PROG_NOTES))


def _add_ends(rows: QueryRows, row: I64, until: I64) -> tuple[I64, U8]:
    """Returns the column `source` with the ends of these rows before their expressions."""
    text = rows.source_off[row] + 1 + 8 * (rows.geom_off[row + 1] - rows.geom_off[row])
    digits = _DIGITS[until[:, None] >> np.arange(4 * END_DIGITS - 4, -1, -4) & 15]
    ends = np.hstack([np.full((len(row), 1), END_MARK, np.uint8), digits])
    added = np.zeros(len(rows) + 1, np.int64)
    added[row + 1] = 1 + END_DIGITS
    return rows.source_off + np.cumsum(added), np.insert(
        rows.source, np.repeat(text, 1 + END_DIGITS), ends.ravel()
    )
