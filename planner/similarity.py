"""simt: the similarity of the words of a node's objects and of its queries (algorithms.md 1.4)."""

from __future__ import annotations

import numpy as np

from ps2stream.planner.nodes import KdtNode
from ps2stream.planner.statistics import Statistics


def simt(stats: Statistics, node: KdtNode) -> float:
    """Returns the cosine, 0 to 1, of two counts by term over the node's units: objects with the
    term, and queries posted under it. 0 if there are no objects or no queries."""
    term = stats.term[node.units]
    objects = np.bincount(term, stats.o[node.units], len(stats.terms))
    queries = np.bincount(term, stats.q[node.units], len(stats.terms))
    lengths = float(np.sqrt(objects @ objects) * np.sqrt(queries @ queries))
    return min(float(objects @ queries) / lengths, 1.0) if lengths > 0 else 0.0
