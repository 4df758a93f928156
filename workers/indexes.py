"""The indexes that a worker can hold its queries in, by the names that settings give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, get_args

from ps2stream.space.grid import Grid
from ps2stream.workers import layout
from ps2stream.workers.gi2 import GI2
from ps2stream.workers.index import Index, Parts
from ps2stream.workers.radix import layout as radix_layout
from ps2stream.workers.radix.gi2 import RadixGI2

IndexName = Literal["gi2-flat", "gi2-radix"]
INDEX_NAMES: tuple[IndexName, ...] = get_args(IndexName)


class IndexFactory(Protocol):
    """Makes an index, empty or from its parts."""

    def __call__(self, grid: Grid, parts: Parts | None = None, /) -> Index: ...


INDEXES: Mapping[IndexName, IndexFactory] = {"gi2-flat": GI2, "gi2-radix": RadixGI2}
SNAPSHOT_FORMATS: Mapping[IndexName, int] = {
    "gi2-flat": layout.FORMAT,
    "gi2-radix": radix_layout.FORMAT,
}
"""The version of what a snapshot of each holds; no two indexes have one in common."""
