"""The map of a plan: leaves coloured by worker, those divided by text hatched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import shapely

from ps2stream.batch import F64, Array
from ps2stream.errors import InvalidArgument, Violation
from ps2stream.plan import RoutingPlan, Space
from ps2stream.planner.files import read_updates
from ps2stream.readers import read_posts

MARGIN = 0.05  # of the picture's sides
DOTS = 20_000  # drawn at most
_ALPHA = 0.55


class Places(NamedTuple):
    """Points in degrees, float64[n]."""

    lon: F64
    lat: F64


NOWHERE = Places(np.zeros(0), np.zeros(0))


def read_outlines(path: str) -> list[Any]:
    """The rings of a GeoJSON file, float64[n, 2] each. Raises InvalidArgument."""
    try:
        found = shapely.from_geojson(Path(path).read_text("utf-8"))
    except OSError as error:
        raise _bad("--outlines", f"cannot read {path}: {error.strerror}") from None
    except (ValueError, shapely.errors.ShapelyError) as error:
        raise _bad("--outlines", f"{path}: expected GeoJSON: {error}") from None
    parts = shapely.get_parts(shapely.get_parts(found))
    areas = parts[shapely.get_type_id(parts) == shapely.GeometryType.POLYGON]
    return [shapely.get_coordinates(ring) for ring in shapely.get_rings(areas)]


def read_places(objects: Sequence[str], queries: Sequence[str]) -> tuple[Places, Places]:
    """(the objects of these files, the middles of their queries). Raises InvalidArgument."""
    batches = [batch for path in objects for batch in read_posts(path)]
    middles = []
    for path in queries:
        for batch in read_updates(path):
            boxes = [np.frombuffer(raw, "<f8") for raw in batch.column("box").to_pylist() if raw]
            # Of a region over the antimeridian the first of its two boxes.
            middles += [(box[:2] + box[2:4]) / 2 for box in boxes]
    at = np.array(middles, np.float64).reshape(-1, 2)
    if not batches:
        return NOWHERE, Places(at[:, 0], at[:, 1])
    lon, lat = (np.concatenate([b.column(n).to_numpy() for b in batches]) for n in ("lon", "lat"))
    return Places(lon, lat), Places(at[:, 0], at[:, 1])


def draw(
    plan: RoutingPlan, png: str, outlines: Sequence[Array] = (),
    objects: Places = NOWHERE, queries: Places = NOWHERE,
) -> None:  # fmt: skip
    """Write the map. Raises InvalidArgument where `png` cannot be written."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows, columns = plan.grid.rows(), plan.grid.columns()
    leaf = plan.cells.reshape(rows, columns)
    space = np.array([isinstance(of, Space) for of in plan.leaves])
    first = [of.worker if isinstance(of, Space) else of.workers[0] for of in plan.leaves]
    colours = colormaps["tab20" if plan.workers <= 20 else "hsv"]
    shade = [colours(w / max(plan.workers, 20)) for w in range(plan.workers)]
    west, south, east, north = window(plan, objects, queries)
    wide = max(east - west, 1e-6) / max(north - south, 1e-6)
    figure = Figure(figsize=(11, min(max(11 / wide, 3.0), 11) + 0.8), layout="constrained")
    axes = figure.add_subplot()
    world = (-180.0, 180.0, -90.0, 90.0)
    axes.imshow(
        np.array(shade)[np.array(first)[leaf]], origin="lower", extent=world, alpha=_ALPHA,
        interpolation="nearest", aspect="auto",
    )  # fmt: skip
    hatched = ~space[leaf]
    if hatched.any():
        # Twice the cells, so that the hatching ends at a cell's edge and not in its middle.
        mask = np.pad(np.kron(hatched, np.ones((2, 2))), 1)
        x = -180 + (np.arange(2 * columns + 2) - 0.5) * 180 / columns
        y = -90 + (np.arange(2 * rows + 2) - 0.5) * 90 / rows
        axes.contourf(x, y, mask, levels=[0.5, 1.5], colors="none", hatches=["////"])
    for ring in outlines:
        axes.plot(ring[:, 0], ring[:, 1], color="0.25", linewidth=0.6)
    for places, mark, colour in ((objects, ".", "black"), (queries, "+", "darkred")):
        step = max(len(places.lon) // DOTS, 1)
        size, alpha = (3.0, 0.25) if mark == "." else (10.0, 0.35)
        axes.scatter(
            places.lon[::step], places.lat[::step], s=size, c=colour, marker=mark,
            alpha=alpha, linewidths=0.5,
        )  # fmt: skip
    axes.set_xlim(west, east)
    axes.set_ylim(south, north)
    axes.set_title(f"{plan.workers} workers, {len(plan.leaves)} leaves, {(~space).sum()} by text")
    keys = [
        Patch(facecolor=shade[w], alpha=_ALPHA, label=f"worker {w}")
        for w in range(min(plan.workers, 20))
    ]
    keys.append(Patch(facecolor="white", edgecolor="black", hatch="////", label="divided by text"))
    axes.legend(handles=keys, fontsize=7, loc="lower left", ncols=2)
    try:
        figure.savefig(png, dpi=120, format="png")
    except OSError as error:
        raise _bad("--png", f"cannot write {png}: {error.strerror}") from None


def window(plan: RoutingPlan, *places: Places) -> tuple[float, float, float, float]:
    """(west, south, east, north) of what there is to see: nearly all of the places, else
    the cells of every leaf but the largest, else the world."""
    lon, lat = (np.concatenate([p[axis] for p in places] or [np.zeros(0)]) for axis in (0, 1))
    if len(lon):
        west, east = np.quantile(lon, (0.02, 0.98))
        south, north = np.quantile(lat, (0.02, 0.98))
    else:
        leaf = plan.cells.reshape(plan.grid.rows(), plan.grid.columns())
        at = np.argwhere(leaf != np.bincount(plan.cells).argmax())
        if not len(at):
            return -180.0, -90.0, 180.0, 90.0
        (south, west), (north, east) = at.min(axis=0), at.max(axis=0) + 1
        west, east = (v * 360.0 / leaf.shape[1] - 180.0 for v in (west, east))
        south, north = (v * 180.0 / leaf.shape[0] - 90.0 for v in (south, north))
    more_x, more_y = (max((b - a) * MARGIN, 0.5) for a, b in ((west, east), (south, north)))
    return (
        max(float(west - more_x), -180.0), max(float(south - more_y), -90.0),
        min(float(east + more_x), 180.0), min(float(north + more_y), 90.0),
    )  # fmt: skip


def _bad(field: str, what: str) -> InvalidArgument:
    return InvalidArgument([Violation(field, what)])
