"""The partitioning algorithms, by name."""

from __future__ import annotations

from ps2stream.planner.baselines.frequency import frequency
from ps2stream.planner.baselines.graph import g_c, g_fc, g_fcl, g_nfcl, hypergraph
from ps2stream.planner.baselines.grid import grid
from ps2stream.planner.baselines.hashing import hashing
from ps2stream.planner.baselines.kd import kd
from ps2stream.planner.baselines.kd_load import kd_load
from ps2stream.planner.baselines.lpt import lpt
from ps2stream.planner.baselines.metric import metric
from ps2stream.planner.baselines.rtree import rtree
from ps2stream.planner.hybrid import hybrid
from ps2stream.planner.hybrid_plus import hybrid_plus
from ps2stream.planner.paper.algorithm import hybrid_paper
from ps2stream.planner.partition import PartitionAlgorithm

ALGORITHMS: dict[str, PartitionAlgorithm] = {
    "hash": hashing,
    "frequency": frequency,
    "hypergraph": hypergraph,
    "metric": metric,
    "gC": g_c,
    "gFC": g_fc,
    "gFCL": g_fcl,
    "gNFCL": g_nfcl,
    "grid": grid,
    "kdtree": kd,
    "kdtree-load": kd_load,
    "rtree": rtree,
    "lpt": lpt,
    "hybrid": hybrid,
    "hybrid+": hybrid_plus,
    "hybrid-paper": hybrid_paper,
}
BY_ROWS = ("hybrid-paper",)
"""Those that need the sample row by row (planner/sample_rows.py)."""
BY_SIMILARITY = ("hybrid", "hybrid-paper")
"""Those that delta, eps and theta apply to."""
AUTO = ("hybrid", "hybrid+", "kdtree-load")
"""Those that a choice tries by default."""
