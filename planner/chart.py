"""The map of a plan: leaves coloured by worker, and leaves divided by text hatched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import shapely

from ps2stream.errors import invalid
from ps2stream.planner.files import read_updates
from ps2stream.posts.readers import read_posts
from ps2stream.protocol.frame import F64, Array
from ps2stream.routing.leaves import holders
from ps2stream.routing.plan import RoutingPlan, Space

MARGIN = 0.05  # share of the picture's sides
WIDE = 11.0  # inches, the width of the map
SEEN = 0.96  # share of the objects and queries to show, along each axis
BINS = 320  # across the width of a density
KEYS = 20  # workers in the legend
GOLDEN = 0.618
PIXELS = 1600
"""Points across the map at which the owner is looked up."""
_ALPHA = 0.55


class ChartPoints(NamedTuple):
    """Points in degrees, float64[n]."""

    lon: F64
    lat: F64


NOWHERE = ChartPoints(np.zeros(0), np.zeros(0))


def read_outlines(path: str) -> list[Any]:
    """Returns the rings of a GeoJSON file, float64[n, 2] each. Raises InvalidArgument."""
    try:
        found = shapely.from_geojson(Path(path).read_text("utf-8"))
    except OSError as error:
        raise invalid("--outlines", f"cannot read {path}: {error.strerror}") from None
    except (ValueError, shapely.errors.ShapelyError) as error:
        raise invalid("--outlines", f"{path}: expected GeoJSON: {error}") from None
    parts = shapely.get_parts(shapely.get_parts(found))
    areas = parts[shapely.get_type_id(parts) == shapely.GeometryType.POLYGON]
    return [shapely.get_coordinates(ring) for ring in shapely.get_rings(areas)]


def read_places(objects: Sequence[str], queries: Sequence[str]) -> tuple[ChartPoints, ChartPoints]:
    """Returns (the objects, the centres of the queries) of these files. Raises InvalidArgument."""
    batches = [batch for path in objects for batch in read_posts(path)]
    middles = []
    for path in queries:
        for batch in read_updates(path):
            boxes = [np.frombuffer(raw, "<f8") for raw in batch.column("box").to_pylist() if raw]
            # A region over the antimeridian has two boxes; the first one is used.
            middles += [(box[:2] + box[2:4]) / 2 for box in boxes]
    at = np.array(middles, np.float64).reshape(-1, 2)
    if not batches:
        return NOWHERE, ChartPoints(at[:, 0], at[:, 1])
    lon, lat = (np.concatenate([b.column(n).to_numpy() for b in batches]) for n in ("lon", "lat"))
    return ChartPoints(lon, lat), ChartPoints(at[:, 0], at[:, 1])


def draw(
    plan: RoutingPlan, png: str, outlines: Sequence[Array] = (),
    objects: ChartPoints = NOWHERE, queries: ChartPoints = NOWHERE,
) -> None:  # fmt: skip
    """Writes the map. Raises InvalidArgument if `png` cannot be written."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    west, south, east, north = seen = window(plan, objects, queries)
    # A degree north is this much longer than one east.
    stretch = 1 / np.cos(np.radians(min(abs(south + north) / 2, 70.0)))
    high = WIDE * stretch * (north - south) / max(east - west, 1e-6)
    figure = Figure(figsize=(WIDE + 2.0, min(max(high, 4.0), WIDE) + 0.8), layout="constrained")
    axes = figure.add_subplot()
    keys = _draw_leaves(axes, plan, seen)
    for ring in outlines:
        # A side longer than half the world crosses the antimeridian.
        parts = np.split(ring, np.flatnonzero(np.abs(np.diff(ring[:, 0])) > 180) + 1)
        for part in parts:
            axes.plot(part[:, 0], part[:, 1], color="0.2", linewidth=0.7)
    keys += _draw_densities(axes, seen, objects, queries)
    axes.set(xlim=(west, east), ylim=(south, north), aspect=stretch)
    axes.set(xlabel="longitude, degrees", ylabel="latitude, degrees")
    text = sum(not isinstance(leaf, Space) for leaf in plan.leaves)
    axes.set_title(f"{plan.workers} workers, {len(plan.leaves)} leaves, {text} divided by text")
    figure.legend(handles=keys, fontsize=9, loc="outside right upper")
    try:
        with rc_context({"hatch.linewidth": 0.5}):
            figure.savefig(png, dpi=120, format="png")
    except OSError as error:
        raise invalid("--png", f"cannot write {png}: {error.strerror}") from None


def _draw_leaves(
    axes: Any, plan: RoutingPlan, seen: tuple[float, float, float, float]
) -> list[Any]:
    """Draws the owner of each cell of the visible area; returns the entries of the legend."""
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    west, south, east, north = seen
    high = min(max(int(PIXELS * (north - south) / (east - west)), 8), PIXELS)
    x, y = (
        a + (np.arange(-1, n + 1) + 0.5) * (b - a) / n  # with a rim, where hatching ends
        for a, b, n in ((west, east, PIXELS), (south, north, high))
    )
    places = np.tile(x[1:-1], high), np.repeat(y[1:-1], PIXELS)
    leaf = plan.cells[plan.grid.cells(*places, 0)].reshape(high, PIXELS)
    space = np.array([isinstance(of, Space) for of in plan.leaves])
    first = [held[0] for held in holders(plan.leaves)]
    few = next((name for size, name in ((10, "tab10"), (20, "tab20")) if plan.workers <= size), "")
    # With many workers, those with neighbouring numbers get hues far apart.
    shade = [
        colormaps[few](w) if few else colormaps["hsv"](w * GOLDEN % 1) for w in range(plan.workers)
    ]
    axes.imshow(
        np.array(shade)[np.array(first)[leaf]], origin="lower",
        extent=(west, east, south, north), alpha=_ALPHA, interpolation="nearest",
    )  # fmt: skip
    keys = [
        Patch(facecolor=shade[w], alpha=_ALPHA, label=f"worker {w}")
        for w in range(min(plan.workers, KEYS))
    ]
    if plan.workers > KEYS:
        keys.append(Patch(alpha=0, label=f"and {plan.workers - KEYS} more"))
    hatched = ~space[leaf]
    if hatched.any():
        hatched = np.pad(hatched, 1)
        axes.contourf(x, y, hatched, levels=[0.5, 1.5], colors="none", hatches=["/////"])
        axes.contour(x, y, hatched, levels=[0.5], colors="black", linewidths=0.5)
        label = "divided by text\n(colour of one of them)"
        keys.append(Patch(facecolor="white", edgecolor="black", hatch="/////", label=label))
    return keys


def _draw_densities(
    axes: Any, seen: tuple[float, float, float, float], objects: ChartPoints, queries: ChartPoints
) -> list[Any]:
    """Draws objects as shades of black and queries as lines of equal density; returns their
    entries of the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    west, south, east, north = seen
    keys: list[Any] = []
    if len(objects.lon):
        count = _count_places(objects, seen, BINS)
        shade = np.zeros((*count.shape, 4))
        shade[..., 3] = 0.85 * np.log1p(count) / max(np.log1p(count.max()), 1.0)
        axes.imshow(shade, origin="lower", extent=(west, east, south, north), zorder=3)
        keys.append(Patch(facecolor="black", alpha=0.6, label="objects (darker: more)"))
    if len(queries.lon):
        count = np.log1p(_smooth_counts(_count_places(queries, seen, BINS // 4)))
        y, x = (
            a + (np.arange(n) + 0.5) * (b - a) / n
            for (a, b), n in zip(((south, north), (west, east)), count.shape, strict=True)
        )
        levels = count.max() * np.array([0.25, 0.5, 0.75])
        if count.max() > 0:
            axes.contour(x, y, count, levels=levels, colors="darkred", linewidths=0.9, zorder=4)
        keys.append(Line2D([], [], color="darkred", linewidth=0.9, label="queries (inner: more)"))
    return keys


def _count_places(places: ChartPoints, seen: tuple[float, float, float, float], bins: int) -> F64:
    """Returns the number of places in each bin of the visible area."""
    west, south, east, north = seen
    rows = max(int(bins * (north - south) / (east - west)), 8)
    found, _, _ = np.histogram2d(
        places.lat, places.lon, (rows, bins), ((south, north), (west, east))
    )
    return found


def _smooth_counts(count: F64) -> F64:
    """Replaces each bin by the mean of the nine around it, twice."""
    for axis in (0, 1, 0, 1):
        wide = np.pad(count, [(1, 1) if a == axis else (0, 0) for a in (0, 1)], "edge")
        n = count.shape[axis]
        count = np.mean([np.take(wide, range(k, k + n), axis) for k in range(3)], axis=0)
    return count


def window(plan: RoutingPlan, *places: ChartPoints) -> tuple[float, float, float, float]:
    """Returns (west, south, east, north) of the area to show: where nearly all of the places are,
    else the cells of every leaf but the largest, else the world."""
    lon, lat = (np.concatenate([p[axis] for p in places] or [np.zeros(0)]) for axis in (0, 1))
    if len(lon):
        (west, east), (south, north) = _find_shortest_interval(lon), _find_shortest_interval(lat)
    else:
        grid = plan.grid
        leaf = plan.cells.reshape(grid.rows(), grid.columns())
        at = np.argwhere(leaf != np.bincount(plan.cells).argmax())
        if not len(at):
            return -180.0, -90.0, 180.0, 90.0
        row, column = np.stack([at.min(axis=0), at.max(axis=0) + 1], axis=1)
        (west, east), (south, north) = grid.find_meridians(column), grid.find_parallels(row)
    more_x, more_y = (max((b - a) * MARGIN, 0.5) for a, b in ((west, east), (south, north)))
    return (
        max(float(west - more_x), -180.0), max(float(south - more_y), -90.0),
        min(float(east + more_x), 180.0), min(float(north + more_y), 90.0),
    )  # fmt: skip


def _find_shortest_interval(values: F64) -> tuple[float, float]:
    """Returns the shortest interval that holds the share SEEN of the values."""
    rising = np.sort(values)
    held = int(np.ceil(SEEN * len(rising)))
    at = int(np.argmin(rising[held - 1 :] - rising[: len(rising) - held + 1]))
    return float(rising[at]), float(rising[at + held - 1])
