"""H1: which worker owns a unit (cell, term). The compiled form of a routing plan.

The form is compact (algorithms.md 1.6): a space leaf has one worker; a text leaf has a shared
term map and a hash over the leaf's workers for every other term (7.14); a cell of which parts
migrated takes a few words. On coarser levels, where only very large regions live, the owner is
a hash of (cell, term) over all workers. H1 is therefore total: every unit has exactly one owner.
The owner of a replicated unit (replicas.py) is a group, which has a number above all workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import I64, U8, U32, U64, Array, sealed
from ps2stream.routing.shard_kernels import choose_shards
from ps2stream.routing.unit_kernels import (
    ANY_CELL,
    FIRST_GROUP,
    NO_TABLE,
    U16,
    LeafArrays,
    empty_table,
    fill,
    owners,
)


class HashedLeaf(NamedTuple):
    """A leaf with its terms hashed.

    A space leaf has one worker, and `term` is None. A text leaf maps `term` (uint64[n]) to `owner`
    (uint16[n]), and any other term to one of `workers`. A moved leaf maps `term` likewise, and any
    other term to its owner by leaf number `base`; if `moves` has a pair (from, to) that begins
    with this owner, the second of the pair owns it instead."""

    workers: tuple[int, ...]
    term: U64 | None = None
    owner: U16 | None = None
    base: int | None = None
    moves: tuple[tuple[int, int], ...] = ()


class HashedReplica(NamedTuple):
    """A replicated unit with its term hashed: the fields of ReplicatedUnit."""

    cell: int | None
    term: np.uint64 | None
    workers: tuple[int, ...]
    sharded: bool = False


class WorkerGroups(NamedTuple):
    """The groups of workers that own units together: group g has the workers
    worker[off[g]:off[g + 1]]. off int64[groups + 1]; worker uint16[]; sharded uint8[groups]: 1
    where each posting is held by one of them alone, 0 where it is held by all."""

    off: I64
    worker: U16
    sharded: U8

    def __len__(self) -> int:
        return len(self.off) - 1

    def list_members(self, holder: int) -> tuple[int, ...]:
        """Returns the workers of a holder: of a group, all in the order of the plan."""
        if holder < FIRST_GROUP:
            return (holder,)
        first, end = self.off[holder - FIRST_GROUP : holder - FIRST_GROUP + 2]
        return tuple(self.worker[first:end].tolist())

    def is_sharded(self, holder: int) -> bool:
        """Returns whether a holder is a group among which postings are divided."""
        return holder >= FIRST_GROUP and bool(self.sharded[holder - FIRST_GROUP])

    def choose_shards(self, holder: U16, term: U64, place: U64) -> U16:
        """Returns the holder of each posting, uint16[n], in which a group that shards is replaced
        with the one worker that holds the posting. place uint64[n]: of the posting's query, as in
        QueryTags."""
        if not self.sharded.any():
            return holder
        out = np.empty(len(holder), np.uint16)
        choose_shards(sealed(holder), sealed(term), sealed(place), (*self,), out)
        return out


NO_GROUPS = WorkerGroups(np.zeros(1, np.int64), np.zeros(0, np.uint16), np.zeros(0, np.uint8))


class H1:
    """An immutable map from term to worker in every cell.

    cells: the leaf number of each base-level cell, uint32[rows * columns], row-major. groups: of
    the workers that own replicated units together.
    """

    def __init__(
        self,
        workers: int,
        cells: U32,
        leaves: Sequence[HashedLeaf],
        replicas: Sequence[HashedReplica] = (),
    ) -> None:
        self.workers = workers
        self.groups, replicated, whole = _compile_replicas(replicas)
        self._members = _mark_members(self.groups, workers)
        off, move_off = np.zeros(len(leaves) + 1, np.int64), np.zeros(len(leaves) + 1, np.int64)
        np.cumsum([len(leaf.workers) for leaf in leaves], out=off[1:])
        np.cumsum([len(leaf.moves) for leaf in leaves], out=move_off[1:])
        base = [n if leaf.base is None else leaf.base for n, leaf in enumerate(leaves)]
        moves = [pair for leaf in leaves for pair in leaf.moves]
        listed = sum(len(leaf.term) for leaf in leaves if leaf.term is not None)
        arrays = LeafArrays(
            cell_leaf=np.ascontiguousarray(cells, np.uint32),
            text=np.array([leaf.term is not None for leaf in leaves], np.uint8),
            off=off,
            worker=np.array([w for leaf in leaves for w in leaf.workers], np.uint16),
            base=np.array(base, np.uint32),
            move_off=move_off,
            moves=np.array(moves, np.uint16).reshape(-1, 2),
            table=empty_table(max(4, (2 * listed).bit_length())),
            replicated=replicated,
            whole=whole,
        )
        self.arrays = (*arrays,)  # of LeafArrays, as kernels take them
        for number, leaf in enumerate(leaves):
            if leaf.term is not None and leaf.owner is not None:
                place = np.full(len(leaf.term), number, np.uint32)
                fill(arrays.table, place, leaf.term, leaf.owner)

    def owners(self, tag_cell: U32, tag_term: U64) -> U16:
        """Returns the worker of each tag, uint16[n] (tag_cell = level << 28 | cell on that level);
        of a replicated unit the first."""
        return self.choose_first(self.holders(tag_cell, tag_term))

    def choose_first(self, holder: U16) -> U16:
        """Returns the worker of each holder, uint16[n]; of a group the first."""
        if not len(self.groups):
            return holder
        group = np.maximum(holder, FIRST_GROUP) - FIRST_GROUP
        first = self.groups.worker[self.groups.off[group]]
        return np.where(holder < FIRST_GROUP, holder, first)

    def count_postings(self, tag_cell: U32, tag_term: U64) -> I64:
        """Counts the tags that each worker holds, by itself or in a group with replicas, and at
        last those of sharded units, int64[workers + 1]."""
        holder = self.holders(tag_cell, tag_term)
        grouped = holder >= FIRST_GROUP
        alone = np.bincount(holder[~grouped], minlength=self.workers)
        by_group = np.bincount(holder[grouped] - FIRST_GROUP, minlength=len(self.groups))
        sharded = self.groups.sharded > 0
        each = alone + (by_group * ~sharded) @ self._members.astype(np.int64)
        return np.append(each, by_group[sharded].sum())

    def held_by(self, worker: int, holder: U16, term: U64, place: U64) -> NDArray[np.bool_]:
        """Returns, for each posting, whether this worker holds it: whether its holder is the
        worker, or a group in which the worker has it. term, place uint64[n]: of the postings, as in
        QueryTags."""
        holder = self.groups.choose_shards(holder, term, place)
        mine: NDArray[np.bool_] = holder == worker
        if len(self.groups) and worker < self.workers:
            group = np.maximum(holder, FIRST_GROUP) - FIRST_GROUP
            mine |= (holder >= FIRST_GROUP) & self._members[group, worker]
        return mine

    def holders(self, tag_cell: U32, tag_term: U64) -> U16:
        """Returns what owns each tag, uint16[n]: a worker, or FIRST_GROUP plus the number of a
        group."""
        out = np.empty(len(tag_cell), np.uint16)
        owners(
            np.ascontiguousarray(tag_cell, np.uint32),
            np.ascontiguousarray(tag_term, np.uint64),
            self.arrays,
            self.workers,
            out,
        )
        return out

    @property
    def bytes(self) -> int:
        """The memory of all arrays."""
        arrays: tuple[Array, ...] = self.arrays
        return sum(int(a.nbytes) for a in (*arrays, *self.groups, self._members))


def _compile_replicas(replicas: Sequence[HashedReplica]) -> tuple[WorkerGroups, U64, U64]:
    """Returns the groups, the table of replicated units with a term, and that of whole cells."""
    kinds = dict.fromkeys((r.workers, r.sharded) for r in replicas)
    number = {kind: i for i, kind in enumerate(kinds)}
    sizes = [len(workers) for workers, _ in number]
    flat = np.array([worker for workers, _ in number for worker in workers], np.uint16)
    sharded = np.array([kind for _, kind in number], np.uint8)
    groups = WorkerGroups(np.cumsum([0, *sizes], dtype=np.int64), flat, sharded)
    if not replicas:
        return groups, NO_TABLE, NO_TABLE
    tables = []
    for kind in (True, False):
        units = [r for r in replicas if (r.term is not None) == kind]
        table = empty_table(max(4, (2 * len(units)).bit_length()))
        place = np.array([ANY_CELL if r.cell is None else r.cell for r in units], np.uint32)
        term = np.array([0 if r.term is None else r.term for r in units], np.uint64)
        group = np.array([FIRST_GROUP + number[r.workers, r.sharded] for r in units], np.uint16)
        fill(table, place, term, group)
        tables.append(table)
    return groups, tables[0], tables[1]


def _mark_members(groups: WorkerGroups, workers: int) -> NDArray[np.bool_]:
    """Returns bool[groups, workers]: which worker is in which group."""
    members = np.zeros((len(groups), workers), np.bool_)
    members[np.repeat(np.arange(len(groups)), np.diff(groups.off)), groups.worker] = True
    return members
