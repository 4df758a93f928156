"""The postings of a sample by cell and term, in integers.

Each distinct term is a string once; rows name it by its number. So what a planner holds grows with
the distinct (cell, term), a few bytes each, and not with the letters of all postings.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ps2stream.planner.counting import COARSE
from ps2stream.planner.statistics import I32
from ps2stream.protocol.frame import I64

NAMES = pa.schema([("term", pa.string()), ("hash", pa.int64())])
"""The distinct terms, and a hash of each string."""
HASHED = pa.schema(
    [
        ("cell", pa.int32()),
        ("hash", pa.int64()),
        ("live", pa.int32()),
        ("inserts", pa.int32()),
        ("deletes", pa.int32()),
    ]
)
"""Sums of counting.POSTINGS by cell and term, the latter by its hash in NAMES."""


@dataclasses.dataclass(frozen=True, eq=False)
class PostingTable:
    """The units with postings by cell and term; this order numbers them.

    terms: the distinct ones, ascending; cell int32[u]; term int32[u], a number in `terms`; live,
    inserts, deletes int32[u]. coarse: the live queries of coarser levels, which no unit holds.
    """

    terms: tuple[str, ...]
    cell: I32
    term: I32
    live: I32
    inserts: I32
    deletes: I32
    coarse: int

    def __len__(self) -> int:
        return len(self.cell)

    def keep(self, kept: Any) -> PostingTable:
        """Returns the units of a mask, bool[u], with their terms."""
        used, term = np.unique(self.term[kept], return_inverse=True)
        terms = tuple(self.terms[t] for t in used.tolist())
        live, inserts, deletes = self.live[kept], self.inserts[kept], self.deletes[kept]
        return PostingTable(
            terms, self.cell[kept], term.astype(np.int32), live, inserts, deletes, self.coarse
        )

    @classmethod
    def of_strings(cls, postings: Any) -> PostingTable:
        """Numbers a table of counting.POSTINGS that has one row per cell and term."""
        column = postings["term"].cast(pa.large_string()).combine_chunks().dictionary_encode()
        names = column.dictionary
        number = column.indices.to_numpy()
        return cls._number(postings, names, number)

    @classmethod
    def of_hashes(cls, names: Any, postings: Any) -> PostingTable | None:
        """Numbers a table of HASHED by one of NAMES; None if two of these have the same hash."""
        hashes = names["hash"].to_numpy()
        order = np.argsort(hashes)
        found = hashes[order]
        if (found[1:] == found[:-1]).any():
            return None
        number = order[np.searchsorted(found, postings["hash"].to_numpy())]
        return cls._number(postings, names["term"].cast(pa.large_string()).combine_chunks(), number)

    @classmethod
    def _number(cls, postings: Any, names: Any, number: I64) -> PostingTable:
        """number int64[rows]: of each posting's term in `names`, in any order."""
        cell = postings["cell"].to_numpy().astype(np.int32)
        coarse = cell == COARSE
        far = int(postings["live"].to_numpy()[coarse].sum())
        is_used = np.zeros(len(names), np.bool_)
        is_used[number[~coarse]] = True
        used = np.flatnonzero(is_used)
        by_name = pc.array_sort_indices(names.take(pa.array(used))).to_numpy()
        rank = np.full(len(names), -1, np.int32)
        rank[used[by_name]] = np.arange(len(used), dtype=np.int32)
        term = rank[number]
        order = np.lexsort((term, cell))[np.count_nonzero(coarse) :]  # COARSE comes first
        live, inserts, deletes = (
            postings[name].to_numpy()[order].astype(np.int32)
            for name in ("live", "inserts", "deletes")
        )
        terms = tuple(names.take(pa.array(used[by_name])).to_pylist())
        return cls(terms, cell[order], term[order], live, inserts, deletes, far)
