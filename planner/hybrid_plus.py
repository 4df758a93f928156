"""hybrid+: space where it is cheap, text where a cell is too hot for one worker.

Algorithm 1 chooses between space and text by similarity, node by node. Here the choice follows
from the costs alone (algorithms.md 1.11): dividing cells among workers copies no object, dividing
a cell's terms copies some, so text is split only in cells that are too heavy for one worker, and
space is cut into tiles fine enough to balance what is left.

1. Cells above `hot` of a worker's mean load are split by text into the fewest parts that
   are light enough (hotspots.py); the parts go to workers, heaviest first.
2. The rest is cut into tiles of at most `fine` of the mean (tiles.py). In tree order they
   fill up the workers, each to the same level: every worker gets compact regions.
3. A local search moves single tiles until the workers have equal loads and short borders
   (local_search.py): a query on a border is stored on both sides.
4. Of the plans for several `fine` and `hot` the one with the lightest slowest worker is
   taken; among nearly equal ones, the one with the fewest queries on borders.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

from ps2stream.planner.hotspots import MAX_PARTS, divide
from ps2stream.planner.load import cell_load, worker_loads
from ps2stream.planner.local_search import SLACK, balanced, borders, rounded
from ps2stream.planner.partition import Partition, PartitionOptions, idle
from ps2stream.planner.statistics import I32, Statistics
from ps2stream.planner.tiles import GridTile, tiles
from ps2stream.protocol.frame import F64, I64, U32
from ps2stream.routing.plan import Leaf, Space, Text

FINE = (0.02, 0.05, 0.1, 0.2)
HOT = (0.5, 0.75, 1.0)
ROUNDS = 3


@dataclasses.dataclass(frozen=True, eq=False)
class _PartitionDraft:
    """A plan in the making. tile_worker int64[tiles]; hot: cell index -> worker of each of its
    units; owner: the worker of each unit; cut: the weight of its borders."""

    tiles: list[GridTile]
    tile_worker: I64
    hot: dict[int, I32]
    owner: I32
    loads: F64
    cut: float


def hybrid_plus(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Returns the partition that is predicted best among twelve drafts."""
    load = cell_load(stats, options.costs)
    best: _PartitionDraft | None = None
    for hot, fine in itertools.product(HOT, FINE):
        options.progress(f"hybrid+: cells above {hot:g}, tiles of {fine:g} of the mean load")
        draft = _make_draft(stats, workers, options, load, hot, fine)
        if best is None or _is_better(draft, best):
            best = draft
    assert best is not None
    return _build_partition(stats, best, workers)


def _is_better(a: _PartitionDraft, b: _PartitionDraft) -> bool:
    """Returns whether the slowest worker is lighter or, if nearly equal, fewer queries lie on
    borders."""
    slow, old = float(a.loads.max()), float(b.loads.max())
    if min(slow, old) > (1 - SLACK) * max(slow, old):
        return a.cut < b.cut
    return slow < old


def _make_draft(
    stats: Statistics, workers: int, options: PartitionOptions, load: F64, hot: float, fine: float
) -> _PartitionDraft:
    """Returns the plan for one pair of `hot` and `fine`."""
    mean = load.sum() / workers
    parts: list[tuple[float, int, int]] = []  # load, cell index, part
    split: dict[int, I32] = {}
    hottest = np.flatnonzero(load > hot * mean).tolist() if workers > 1 else []
    for cell in hottest:
        part, totals = _split_cell(stats, cell, load[cell], hot * mean, workers, options)
        if len(totals) > 1:
            split[cell] = part
            parts += [(float(t), cell, p) for p, t in enumerate(totals)]
    level, placed = _place_parts(parts, workers)
    for cell, part in split.items():
        split[cell] = np.array([placed[cell, p] for p in range(part.max() + 1)], np.int32)[part]
    rows, columns = stats.grid.rows(), stats.grid.columns()
    plane = np.zeros(rows * columns)
    plane[stats.cell] = load
    plane[stats.cell[list(split)]] = 0.0
    square = plane.reshape(rows, columns)
    found = tiles(square, fine * max(mean, 1e-9))
    tile_load = np.array([square[t.top : t.bottom, t.left : t.right].sum() for t in found])
    queries = np.zeros(rows * columns)
    queries[stats.cell] = np.bincount(stats.unit_cell(), stats.q, stats.cells)
    edges = borders(found, queries.reshape(rows, columns))
    tile_worker = _fill_workers(tile_load, level)
    for _ in range(ROUNDS):
        tile_worker = balanced(tile_load, tile_worker, level, SLACK)
        tile_worker = rounded(tile_load, tile_worker, level, edges, SLACK)
    owner = _find_owners(stats, found, tile_worker, split)
    loads = worker_loads(stats, owner, workers, options.costs, options.load)
    return _PartitionDraft(found, tile_worker, split, owner, loads, edges.cut(tile_worker))


def _split_cell(
    stats: Statistics, cell: int, load: float, limit: float, workers: int, options: PartitionOptions
) -> tuple[I32, F64]:
    """Splits a cell into the fewest parts that are each below the limit, or the best that is
    possible."""
    most = min(workers, MAX_PARTS, int(stats.unit_off[cell + 1] - stats.unit_off[cell]))
    best = np.zeros(0, np.int32), np.array([load])
    for parts in range(min(max(math.ceil(load / limit), 2), most), most + 1):
        if parts < 2:
            break
        found = divide(stats, cell, parts, options.costs)
        if found[1].max() < best[1].max():
            best = found
        if best[1].max() <= limit:
            break
    return best


def _place_parts(
    parts: list[tuple[float, int, int]], workers: int
) -> tuple[F64, dict[tuple[int, int], int]]:
    """Places parts, longest first: (load of each worker, worker of each (cell, part))."""
    level = np.zeros(workers)
    placed: dict[tuple[int, int], int] = {}
    for load, cell, part in sorted(parts, key=lambda p: (-p[0], p[1], p[2])):
        worker = int(np.argmin(level))
        placed[cell, part] = worker
        level[worker] += load
    return level, placed


def _fill_workers(load: F64, level: F64) -> I64:
    """Assigns tiles in order to workers in order, each up to the same level: int64[tiles]."""
    rising = np.sort(level)
    total = load.sum()
    for k in range(len(rising), 0, -1):
        water = (total + rising[:k].sum()) / k
        if water >= rising[k - 1]:
            break
    capacity = np.cumsum(np.maximum(water - level, 0.0))
    middle = np.cumsum(load) - load / 2
    return np.minimum(np.searchsorted(capacity, middle, "right"), len(level) - 1)


def _assign_cells(stats: Statistics, found: list[GridTile], tile_worker: I64) -> I64:
    """Returns the worker of each cell of the grid, int64[rows * columns]."""
    plane = np.empty((stats.grid.rows(), stats.grid.columns()), np.int64)
    for tile, worker in zip(found, tile_worker.tolist(), strict=True):
        plane[tile.top : tile.bottom, tile.left : tile.right] = worker
    return plane.ravel()


def _find_owners(
    stats: Statistics, found: list[GridTile], tile_worker: I64, hot: dict[int, I32]
) -> I32:
    """Returns the worker of each unit, int32[u]."""
    cell_worker = _assign_cells(stats, found, tile_worker)[stats.cell].astype(np.int32)
    owner: I32 = np.repeat(cell_worker, np.diff(stats.unit_off)).astype(np.int32)
    for cell, worker in hot.items():
        owner[stats.unit_off[cell] : stats.unit_off[cell + 1]] = worker
    return owner


def _build_partition(stats: Statistics, draft: _PartitionDraft, workers: int) -> Partition:
    """Builds one space leaf per worker and one text leaf per hot cell."""
    leaves: list[Leaf] = [Space(w) for w in range(workers)]
    cells: U32 = _assign_cells(stats, draft.tiles, draft.tile_worker).astype(np.uint32)
    for cell, worker in sorted(draft.hot.items()):
        cells[stats.cell[cell]] = len(leaves)
        units = range(int(stats.unit_off[cell]), int(stats.unit_off[cell + 1]))
        owner = dict(zip((stats.terms[stats.term[u]] for u in units), worker.tolist(), strict=True))
        leaves.append(Text(tuple(sorted(set(worker.tolist()))), owner))
    busy = np.flatnonzero(draft.loads).tolist()
    return Partition(tuple(leaves), cells, None, idle(busy, workers))
