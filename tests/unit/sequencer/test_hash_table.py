"""The table of hashes against a dict, also when nearly all hashes collide."""

from __future__ import annotations

import time

import numpy as np
import pytest

from ps2stream.language.hash_kernels import hash_rows
from ps2stream.protocol.frame import strings_to_column
from ps2stream.sequencer.hash_table import HashTable, SaltedHash


def candidates(table: HashTable, hash: int) -> list[int]:
    """All rows of a hash: those that a search from its home to the next gap meets."""
    slots = table.slots[hash >> 56].tolist()
    rest = hash << 8 & (1 << 64) - 1
    at = (rest >> 32) * len(slots) >> 32
    found = []
    while slots[at]:
        if slots[at] >> 32 == rest >> 32:
            found.append((slots[at] & 0xFFFFFFFF) - 1)
        at = (at + 1) % len(slots)
    return sorted(found)


@pytest.mark.parametrize("bits", [3, 8, 60])
def test_rows_are_found_by_their_hashes(bits: int) -> None:
    rng = np.random.default_rng(bits)
    table = HashTable()
    twin: dict[int, int] = {}  # row: hash
    top = 0
    for _ in range(60):
        hashes = rng.integers(0, 1 << bits, 40).astype(np.uint64) << np.uint64(64 - bits)
        table.insert(hashes, np.arange(top, top + 40))
        twin |= zip(range(top, top + 40), hashes.tolist(), strict=True)
        top += 40
        gone = rng.choice(list(twin), rng.integers(len(twin)), replace=False)
        table.remove(np.array([twin.pop(row) for row in gone.tolist()], np.uint64), gone)
        moved = np.array(list(twin)[::3], np.int64)
        fresh = np.arange(top, top + len(moved))
        hashes = np.array([twin.pop(row) for row in moved.tolist()], np.uint64)
        table.replace(hashes, moved, fresh)
        twin |= zip(fresh.tolist(), hashes.tolist(), strict=True)
        top += len(moved)
        assert len(table) == len(twin)
    by_hash: dict[int, list[int]] = {}
    for row, hash in twin.items():
        by_hash.setdefault(hash >> 24, []).append(row)  # the upper 40 bits count
    for high in [*by_hash, 1, 2**39 + 5]:
        assert candidates(table, high << 24) == sorted(by_hash.get(high, []))
    assert table.nbytes >= 8 * len(table)


@pytest.mark.takes_turns
def test_a_part_grows_without_the_others() -> None:
    """So what one call moves is bounded by the records of the parts that it adds to."""
    table = HashTable()
    hashes = np.arange(1, 4001, dtype=np.uint64) << np.uint64(24)
    for first in range(0, 4000, 100):
        table.insert(hashes[first : first + 100], np.arange(first, first + 100))
    sizes = [len(slots) for slots in table.slots]
    assert sizes[1:] == [8] * 255
    assert 4000 / 0.84 < sizes[0] < 4000 / 0.84 * 1.125 + 1
    assert [candidates(table, int(hash)) for hash in hashes] == [[row] for row in range(4000)]


def test_many_records_at_once_take_no_longer_than_in_pieces() -> None:
    """Parts that grow on the way cost what they move."""
    n = 200_000
    hashes, rows = np.random.default_rng(1).integers(0, 1 << 64, n, np.uint64), np.arange(n)

    def measure(size: int) -> float:
        table, begun = HashTable(), time.process_time()
        for first in range(0, n, size):
            table.insert(hashes[first : first + size], rows[first : first + size])
        assert len(table) == n
        return time.process_time() - begun

    measure(n)  # compiles
    assert min(measure(n) for _ in range(3)) < 3 * min(measure(1000) for _ in range(3))


def test_what_is_not_there_cannot_be_removed_or_replaced() -> None:
    table = HashTable()
    one, row = np.array([7 << 40], np.uint64), np.array([5])
    with pytest.raises(KeyError):
        table.remove(one, row)
    table.insert(one, row)
    with pytest.raises(KeyError):
        table.replace(one, row + 1, row)
    table.remove(one, row)
    assert len(table) == 0


def test_all_of_a_key_counts() -> None:
    """Ids of one tenant may share more than the bytes that a word has."""
    keys = strings_to_column(["t" * 200 + "a", "t" * 200 + "b", "t" * 200, "t" * 128, "", "t"])
    assert len(set(SaltedHash(1).hash(*keys).tolist())) == 6
    assert SaltedHash(1).hash(*keys).tolist() != SaltedHash(2).hash(*keys).tolist()


def test_hashes_are_those_of_words() -> None:
    """Keys of every length, each alone and behind others, also behind one that is the same."""
    texts = [bytes(range(size)) for size in range(129)]
    keys = strings_to_column([text for text in texts for _ in range(2)])
    hashes = SaltedHash(3).hash(*keys)
    words = hash_rows(*strings_to_column(texts), np.arange(256, dtype=np.uint8), SaltedHash(3).keys)
    assert hashes[::2].tolist() == hashes[1::2].tolist() == words.tolist()
