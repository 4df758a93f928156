"""The algorithms for Minimum Cost Migration, by name."""

from __future__ import annotations

from ps2stream.planner.adjust.dp import dp
from ps2stream.planner.adjust.gr import gr
from ps2stream.planner.adjust.gr_plus import gr_plus
from ps2stream.planner.adjust.ra import ra
from ps2stream.planner.adjust.selection import SelectionAlgorithm
from ps2stream.planner.adjust.si import si

SELECTIONS: dict[str, SelectionAlgorithm] = {"gr": gr, "gr+": gr_plus, "dp": dp, "si": si, "ra": ra}
