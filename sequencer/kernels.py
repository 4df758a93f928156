"""Kernels of the sequencer: equal keys of a batch, remembered updates, and counts."""

# Numba gives an intrinsic its first argument.
# mypy: disable-error-code="call-arg"
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.language.hash_kernels import KEYS, finish_hash, start_hash
from ps2stream.limits import TOKEN_BYTES
from ps2stream.protocol.frame import I64, U8, U64
from ps2stream.protocol.pointers import borrow, find_address, is_same, prefetch, put_bytes
from ps2stream.protocol.rows import UpdateKind
from ps2stream.sequencer.encoded_rows import (
    REQUESTS_HEAD,
    REQUESTS_WIDTHS,
    find_columns,
    read_numbers,
)
from ps2stream.sequencer.table_kernels import NONE, find_home

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
PAIR = np.uint64(3)
_SHORT = 16  # bytes that are hashed as fast as they are compared
_INSERT = np.uint8(UpdateKind.INSERT)


@njit(inline="always")
def _hash_span(keys: U64, data: U8, begin: int, size: int) -> np.uint64:
    """Returns the hash of at most TOKEN_BYTES bytes, four of them at a time."""
    a, b = start_hash(keys)
    at, word = np.uint64(begin), np.uint64(0)
    for k in range(np.uint64(size >> 2)):
        low = np.uint64(data[at]) | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
        high = np.uint64(data[at + np.uint64(2)]) | np.uint64(data[at + np.uint64(3)]) << np.uint64(
            8
        )
        word = low | high << np.uint64(16)
        a += keys[np.uint64(2) * k] * word
        b += keys[np.uint64(2) * k + np.uint64(1)] * word
        at += np.uint64(4)
    word = np.uint64(0)
    for k in range(np.uint64(size & 3)):
        word |= np.uint64(data[at + k]) << (np.uint64(8) * k)
    return finish_hash(keys, a, b, word, size)


@njit(cache=True, nogil=True)
def hash_keys(off: I64, data: U8, keys: U64, out: U64) -> None:
    """Finds the salted hash of each row of a ragged column, with the bits of the mask at the end of
    the keys. All of a row counts, as nobody may make rows that share a hash."""
    for i in range(len(out)):
        begin, end = off[i], off[i + 1]
        size = end - begin
        # The request ids of a call are one.
        if (
            size > _SHORT
            and i > 0
            and begin - off[i - 1] == size
            and is_same(data, begin - size, data, begin, size)
        ):
            out[i] = out[i - 1]
            continue
        h = _hash_span(keys, data, begin, min(size, TOKEN_BYTES))
        while end - begin > TOKEN_BYTES:
            begin += TOKEN_BYTES
            h = (h ^ (h >> _SHIFT)) * _MIX
            h ^= _hash_span(keys, data, begin, min(end - begin, TOKEN_BYTES))
        out[i] = h & keys[KEYS]


@njit(inline="always")
def mix_pair(id: np.uint64, request: np.uint64) -> np.uint64:
    """Returns the hash of a pair of strings from theirs; each pair's place counts."""
    return id + PAIR * request


@njit(inline="always")
def find_first(slots: I64, hashes: U64, off: I64, data: U8, i: int) -> int:
    """Returns the first row with the bytes of row i, which is added if it is that; `slots` holds
    the earlier ones."""
    mask = np.int64(len(slots) - 1)
    at = np.int64(hashes[i] >> _HALF) & mask
    length = off[i + 1] - off[i]
    while True:
        j = slots[at]
        if j == NONE:
            slots[at] = i
            return i
        if (
            hashes[j] == hashes[i]
            and off[j + 1] - off[j] == length
            and is_same(data, off[j], data, off[i], length)
        ):
            return int(j)
        at = (at + 1) & mask


@njit(inline="always")
def make_slots(n: int) -> I64:
    """Returns empty slots for find_first."""
    size = 16
    while size < 2 * n:
        size *= 2
    return np.full(size, NONE, np.int64)


@njit(cache=True, nogil=True)
def find_first_rows(off: I64, data: U8, hashes: U64, first: I64) -> int:
    """Finds the first row with the same bytes as each row; returns the number of different
    ones."""
    slots, different = make_slots(len(hashes)), 0
    for i in range(len(hashes)):
        first[i] = find_first(slots, hashes, off, data, i)
        different += first[i] == i
    return different


@njit(inline="always")
def _has_key(
    known: tuple[I64, U8], row: int, off: I64, ids: U8, request_off: I64, requests: U8, i: int
) -> bool:
    """Returns whether a key is that of row i: the size of the id in four bytes, the id, and the
    request id, so that different pairs differ."""
    known_off, keys = known
    at, size, more = known_off[row], off[i + 1] - off[i], request_off[i + 1] - request_off[i]
    if known_off[row + 1] - at != 4 + size + more:
        return False
    given = 0
    for k in range(4):
        given |= int(np.int64(keys[at + k]) << (8 * k))
    return (
        given == size
        and is_same(keys, at + 4, ids, off[i], size)
        and is_same(keys, at + 4 + size, requests, request_off[i], more)
    )


@njit(cache=True, nogil=True)
def find_repeats(
    kind: U8, ids: tuple[I64, U8], requests: tuple[I64, U8], hashes: U64,
    known: tuple[I64, U64, I64, U8, I64, int, int], first: I64, lsn: I64,
) -> None:  # fmt: skip
    """Finds for all but plain inserts with a request id, first: the first row with the same id and
    request id; and lsn: that of the same pair among the known ones, or 0. For the other rows they
    are NONE and 0. hashes: of the pairs. known: heads, links, offsets, bytes, LSNs; the number of
    row 0, and the first row that counts, as append_keys has them."""
    heads, links, known_off, known_keys, known_lsn, number, begin = known
    (off, data), (request_off, request) = ids, requests
    size, address, mask = len(heads), find_address(heads), len(links) - 1
    at_links, at_off = find_address(links), find_address(known_off)
    for i in range(len(kind)):
        prefetch(address + 8 * find_home(hashes[i], size))
    for i in range(len(kind)):
        row = heads[find_home(hashes[i], size)] - 1
        prefetch(at_links + 8 * (row & mask))
        prefetch(at_off + 8 * (row - number))
    here = make_slots(len(kind))
    slots = np.int64(len(here) - 1)
    for i in range(len(kind)):
        first[i], lsn[i] = NONE, 0
        length = request_off[i + 1] - request_off[i]
        if kind[i] == _INSERT or not length:
            continue
        at = np.int64(hashes[i] >> _HALF) & slots
        while here[at] != NONE:
            j = here[at]
            if (
                hashes[j] == hashes[i]
                and off[j + 1] - off[j] == off[i + 1] - off[i]
                and request_off[j + 1] - request_off[j] == length
                and is_same(data, off[j], data, off[i], off[i + 1] - off[i])
                and is_same(request, request_off[j], request, request_off[i], length)
            ):
                break
            at = (at + 1) & slots
        if here[at] == NONE:
            here[at] = i
        first[i] = here[at]
        row = heads[find_home(hashes[i], size)] - 1 - number
        while row >= begin:
            link = links[(row + number) & mask]
            if link >> _HALF == hashes[i] >> _HALF and _has_key(
                (known_off, known_keys), row, off, data, request_off, request, i
            ):
                lsn[i] = known_lsn[row]
                break
            step = np.int64(link & _LOW)
            if not step:
                break
            row -= step


@njit(cache=True, nogil=True)
def take_strings(off: I64, data: U8, rows: I64, out_off: I64, out: U8) -> int:
    """Copies rows of a column of strings; returns the bytes that they have."""
    to = out_off[0] = 0
    for i in range(len(rows)):
        to = put_bytes(out, to, data, off[rows[i]], off[rows[i] + 1])
        out_off[i + 1] = to
    return to


@njit(cache=True, nogil=True)
def write_requests(
    rows: I64, lsn: I64, ids: tuple[I64, U8], requests: tuple[I64, U8], room: U64, starts: I64
) -> None:
    """Writes these rows as encoded NamedUpdates. starts int64[5]: where the columns begin in
    `room`, in bytes."""
    out, n = room.view(np.uint8), len(rows)
    for i in range(n):
        room[starts[0] // 8 + i] = np.uint64(lsn[rows[i]])
    for k in range(2):
        off, data = (ids, requests)[k]
        first, at = starts[2 + 2 * k], starts[1 + 2 * k] // 8
        to = first
        room[at] = 0
        for i in range(n):
            to = put_bytes(out, to, data, off[rows[i]], off[rows[i] + 1])
            room[at + i + 1] = np.uint64(to - first)


@njit(cache=True, nogil=True)
def has_one_string(off: I64, data: U8) -> bool:
    """Returns whether all rows of a column of strings, of which there is one, are the same."""
    size, begin, n = off[1] - off[0], off[0], len(off) - 1
    wrong = 0
    for i in range(n):
        wrong |= off[i + 1] - begin - size * (i + 1)
    # Each is the same as the one before if all are moved by one.
    return bool(not wrong and is_same(data, begin, data, begin + size, size * (n - 1)))


@njit(cache=True, nogil=True)
def part_updates(
    kind: U8, handle: I64, hashes: U64, places: I64, born: I64, gone: I64, out: U64
) -> tuple[int, int]:
    """Parts committed rows. born int64[2, n]: the inserts, as rows, and their handles; gone: the
    deletes, and their places; out uint64[2, n]: the hashes of both. Returns the number of inserts,
    and that of the deletes whose place is NONE."""
    inserts, deletes, unknown = 0, 0, 0
    for i in range(len(kind)):
        if kind[i] == _INSERT:
            born[0, inserts], born[1, inserts], out[0, inserts] = i, handle[i], hashes[i]
            inserts += 1
        else:
            gone[0, deletes], gone[1, deletes], out[1, deletes] = i, places[i], hashes[i]
            deletes += 1
            unknown += places[i] == NONE
    return inserts, unknown


@njit(cache=True, nogil=True)
def append_keys(
    heads: I64, links: U64, hashes: U64, first: int, number: int,
    columns: tuple[I64, I64, U8], new: U8,
) -> None:  # fmt: skip
    """Appends the pairs of ids and request ids to the known keys as rows from `first` on, for which
    there is room in the columns. columns: the LSNs, offsets and bytes of all; new: LSNs, ids
    and request ids as encoded NamedUpdates.

    A key is in a list with those of the same home, the latest one first: heads has one more than
    its number, links (2 ** k of them, by number) the upper half of its hash and how many numbers
    before it the next one is, or 0. Numbers only rise, and `number` is that of row 0; so keys that
    are no longer known need not be removed: they are the end of each list.
    """
    all_lsn, all_off, all_keys = borrow(columns)
    heads, links, hashes, new = borrow(heads), borrow(links), borrow(hashes), borrow(new)
    starts = np.empty((2, len(REQUESTS_WIDTHS)), np.int64)
    if not find_columns(new, REQUESTS_HEAD, REQUESTS_WIDTHS, starts):
        raise ValueError("not encoded NamedUpdates")
    lsn, off, ids = read_numbers(new, starts, 0), read_numbers(new, starts, 1), starts[0, 2]
    request_off, requests = read_numbers(new, starts, 3), starts[0, 4]
    size, address, mask = len(heads), find_address(heads), len(links) - 1
    for i in range(len(hashes)):
        prefetch(address + 8 * find_home(hashes[i], size))
    to = all_off[first]
    for i in range(len(lsn)):
        length = off[i + 1] - off[i]
        for k in range(4):
            all_keys[to + k] = (length >> (8 * k)) & 0xFF
        to = put_bytes(all_keys, to + 4, new, ids + off[i], ids + off[i + 1])
        to = put_bytes(all_keys, to, new, requests + request_off[i], requests + request_off[i + 1])
        all_lsn[first + i] = lsn[i]
        all_off[first + i + 1] = to
        mine, home = number + first + i, find_home(hashes[i], size)
        step = mine + 1 - heads[home] if heads[home] else 0
        if step > np.int64(_LOW):
            step = 0
        links[mine & mask] = (hashes[i] >> _HALF) << _HALF | np.uint64(step)
        heads[home] = mine + 1


@njit(cache=True, nogil=True)
def count_updates(kind: U8, session: I64, tenant_of: I64, live: I64) -> int:
    """Adds the inserts of each tenant to its live queries and subtracts its deletes; returns the
    number of inserts. Nothing is counted without tenants."""
    inserts = 0
    for i in range(len(kind) if len(tenant_of) else 0):
        if session[i] < 0 or session[i] >= len(tenant_of):
            raise IndexError("a session has no tenant")
        tenant = tenant_of[session[i]]
        live[tenant] += 1 if kind[i] == _INSERT else -1
        inserts += kind[i] == _INSERT
    return inserts
