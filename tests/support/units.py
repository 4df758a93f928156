"""Units of H2 as columns, and as a dictionary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps2stream.dispatcher.h2 import H2
from ps2stream.protocol.frame import U32, U64


def split_units(units: Sequence[tuple[int, int]]) -> tuple[U32, U64]:
    """The tag cells and the terms of units."""
    cells = np.array([cell for cell, _ in units], np.uint32)
    return cells, np.array([term for _, term in units], np.uint64)


def list_counts(counts: H2) -> dict[tuple[int, int], int]:
    """The live queries under each unit (tag cell, term); each unit must be listed once."""
    found: dict[tuple[int, int], int] = {}
    for units in counts:
        listed = dict(
            zip(
                zip(units.cell.tolist(), units.term.tolist(), strict=True),
                units.queries.tolist(),
                strict=True,
            )
        )
        assert len(listed) == len(units.cell)
        assert not listed.keys() & found.keys()
        found |= listed
    return found
