"""The ring of consistent hashing with virtual nodes (algorithms.md 5.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps2stream.keyed.key_kernels import hash_all
from ps2stream.keyed.ring_kernels import list_candidates, list_distinct
from ps2stream.protocol.frame import I64, U16, U64, Array

NODES = 128
MOST_WORKERS = 1 << 15


class HashRing:
    """A ring of 2^32 places on which each worker has virtual nodes. The candidates of a key are the
    first distinct workers clockwise of it, so that few of them change when a worker comes or goes.

    workers: their numbers, below 2^15, at least one; seed: of all hashes; nodes: virtual nodes of a
    worker; depth: the most candidates that a key can have, None for all workers. Takes
    2 * workers * nodes * depth bytes. Raises ValueError without workers, or for a number that is
    out of range or double.
    """

    def __init__(
        self, workers: Sequence[int], seed: int, nodes: int = NODES, depth: int | None = None
    ) -> None:
        if not workers or len({*workers}) < len(workers):
            raise ValueError("workers must be at least one, each named once")
        if not 0 <= min(workers) <= max(workers) < MOST_WORKERS:
            raise ValueError(f"the number of a worker must be from 0 to {MOST_WORKERS - 1}")
        self.workers = tuple(sorted(workers))
        self.seed, self.nodes = seed, nodes
        self._most = depth
        self.depth = min(depth or len(workers), len(workers))
        rng = np.random.default_rng([seed, 1])
        seeds = rng.integers(0, 1 << 63, 2).astype(np.uint64)
        self.key_seed: np.uint64 = seeds[0]
        names = np.array(self.workers, np.uint64)
        number = (np.repeat(names, nodes) << np.uint64(32)) | np.tile(
            np.arange(nodes, dtype=np.uint64), len(names)
        )
        hashed = np.empty_like(number)
        hash_all(number, seeds[1], hashed)
        place = (hashed >> np.uint64(32)).astype(np.uint32)
        rank = np.lexsort((number, place))
        self.places = place[rank]
        self.owners: U16 = (number[rank] >> np.uint64(32)).astype(np.uint16)
        self.order: U16 = np.empty((len(rank), self.depth), np.uint16)
        list_distinct(self.owners, np.array(self.workers, np.uint16), self.order)

    def plus(self, worker: int) -> HashRing:
        """Returns the ring with one worker more."""
        return HashRing((*self.workers, worker), self.seed, self.nodes, self._most)

    def without(self, worker: int) -> HashRing:
        """Returns the ring without a worker. Raises ValueError if it is the last."""
        rest = [each for each in self.workers if each != worker]
        return HashRing(rest, self.seed, self.nodes, self._most)

    def candidates(self, keys: U64, degrees: Array) -> tuple[I64, U16]:
        """Returns the first degrees[i] distinct workers clockwise of each key, ragged: (offsets
        int64[n + 1], workers uint16[]). A degree above the depth counts as the depth."""
        off = np.zeros(len(keys) + 1, np.int64)
        np.cumsum(np.minimum(degrees, self.depth), out=off[1:])
        out = np.empty(off[-1], np.uint16)
        list_candidates(self.places, self.order, self.key_seed, keys, off, out)
        return off, out
