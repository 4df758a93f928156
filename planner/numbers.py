"""ComputeNumberPartitions: how many parts each node is cut into (Algorithm 1, line 14)."""

from __future__ import annotations

import math
from collections.abc import Sequence


def compute_number_partitions(
    C: Sequence[Sequence[float]],
    m: int,
) -> tuple[float, tuple[int, ...]]:
    """Returns (least total, parts of each node). C[i][k - 1]: the total load of node i in k
    parts.

    L[i][j] = min over k of L[i - 1][j - k] + C[i][k] is the least total of the first i nodes in j
    parts; each node has one at least. All have m together, or as many as the nodes allow. Raises
    ValueError for more nodes than parts.
    """
    if len(C) > m:
        raise ValueError(f"{len(C)} nodes cannot be cut into {m} parts")
    L = [[0.0] + [math.inf] * m]
    back: list[list[int]] = []
    for costs in C:
        row, chosen = [math.inf] * (m + 1), [0] * (m + 1)
        for j in range(1, m + 1):
            for k in range(1, min(j, len(costs)) + 1):
                if (total := L[-1][j - k] + costs[k - 1]) < row[j]:
                    row[j], chosen[j] = total, k
        L.append(row)
        back.append(chosen)
    j = max(j for j in range(m + 1) if math.isfinite(L[-1][j]))
    least = L[-1][j]
    parts: list[int] = []
    for chosen in reversed(back):
        parts.append(chosen[j])
        j -= chosen[j]
    return least, tuple(reversed(parts))
