"""Grids whose cells are of unequal sizes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from ps2stream.space.grid import Grid

PLACES = (-74.0, -33.0, 0.0, 0.703125, 12.5, 40.7, 45.0, 179.99)
ALL_BITS, USUAL_CELLS = st.integers(0, 14), st.just(64)


def _borders(side: float, bits: int) -> st.SearchStrategy[tuple[float, ...]]:
    """Meridians or parallels: half of the time none but the sides of the world."""

    def between(inner: Sequence[int], step: float) -> tuple[float, ...]:
        start = round(inner[0] * side / 2000, 6)
        return (-side, *(start + step * n for n in sorted(inner)), side)

    def some(spans: int) -> st.SearchStrategy[tuple[float, ...]]:
        if spans == 1:
            return st.just((-side, side))
        inner = st.lists(
            st.integers(-999, 999), min_size=spans - 1, max_size=spans - 1, unique=True
        )
        return st.builds(between, inner, st.sampled_from([side / 2000, 1e-3, 1e-5]))

    return st.one_of(
        st.just((-side, side)), st.integers(0, min(bits, 6)).flatmap(lambda k: some(1 << k))
    )


def with_lines(rng: random.Random, grid: Grid) -> Grid:
    """The grid with lines at random, some of them near places where tests have posts."""

    def draw(side: float, bits: int) -> tuple[float, ...]:
        spans = 1 << rng.randint(0, min(bits, 4))
        near = {round(v, 6) for v in PLACES if abs(v) < side}
        inner = rng.sample(sorted(near), min(len(near), (spans - 1) // 2))
        while len(inner) < spans - 1:
            value = round(rng.uniform(-side, side), 6)
            if all(abs(value - other) > 1e-3 for other in [*inner, -side, side]):
                inner.append(value)
        return (-side, *sorted(inner), side)

    return replace(
        grid, meridians=draw(180.0, grid.lon_bits), parallels=draw(90.0, grid.lat_bits)
    )  # fmt: skip


@st.composite
def uneven_grids(
    draw: st.DrawFn,
    bits: st.SearchStrategy[int] = ALL_BITS,
    max_cells: st.SearchStrategy[int] = USUAL_CELLS,
) -> Grid:
    """Grids of all sizes, half of their axes with lines at random, dense ones among them."""
    lon_bits, lat_bits = draw(bits), draw(bits)
    return Grid(
        lon_bits, lat_bits, draw(max_cells),
        draw(_borders(180.0, lon_bits)), draw(_borders(90.0, lat_bits)),
    )  # fmt: skip
