"""Draws plans into docs/images/plan-*.svg: python scripts/plan_pictures.py [POSTS.parquet]

The plans are made from 40,000 of these posts (of synthetic ones without a file) and 20,000
queries of the group Q3, for 16 workers, as in the experiments: by the kd-tree, and by Algorithm 1
(hybrid), of which a cell that is divided by text is also drawn with its surroundings.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ps2stream.experiments.plans import ExperimentSettings, planned
from ps2stream.experiments.worlds import SYNTHETIC, StreamSize, make_world
from ps2stream.planner.chart import ChartPoints, window
from ps2stream.routing.leaves import Text
from ps2stream.routing.plan import RoutingPlan
from ps2stream.web.shapes import plan_picture

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
LAND = ROOT / "ps2stream" / "web" / "static" / "vendor" / "world.json"
WORKERS = 16
SIZE = StreamSize(queries=20_000, planned=40_000, judged=100, rounds=1)
WIDE = 720  # pixels
COLOURS = [f"{colour:06x}" for colour in (
    0x4e79a7, 0xf28e2b, 0x59a14f, 0xe15759, 0xb07aa1, 0xedc948, 0x76b7b2, 0x9c755f,
    0x1b4f72, 0xa04000, 0x1d6b2c, 0x7b1fa2, 0xd98880, 0x7d6608, 0x2e86c1, 0x566573,
)]  # fmt: skip
AROUND = 4.0  # degrees
Sides = tuple[float, float, float, float]


def picture(plan: RoutingPlan, sides: Sides) -> str:
    """Returns the plan as SVG within west, south, east, north: leaves in their worker's colour,
    those that are divided by text hatched in the colours of several, and the outlines of the land
    above."""
    west, south, east, north = sides
    scale = WIDE / (east - west)
    up = 1.25 * scale  # a degree north is longer on the map than one east
    high = round((north - south) * up)
    legend = high + 22

    def at(lon: float, lat: float) -> tuple[int, int]:
        x, y = (lon - west) * scale, (north - lat) * up
        return round(min(max(x, -9), WIDE + 9)), round(min(max(y, -9), high + 9))

    boxes: dict[tuple[int, ...], list[str]] = defaultdict(list)
    drawn = plan_picture(json.dumps(plan.to_dict()).encode())["leaves"]["features"]
    for feature in drawn:
        (x0, y0), (x1, y1) = (at(*feature["geometry"]["coordinates"][0][i]) for i in (0, 2))
        if x1 > x0 and y0 > y1 and x1 > 0 and x0 < WIDE and y0 > 0 and y1 < high:
            held = tuple(feature["properties"]["workers"])
            boxes[held].append(f"M{x0} {y1}H{x1}V{y0}H{x0}z")
    fills, patterns = [], []
    for held, paths in sorted(boxes.items()):
        colour = f"#{COLOURS[held[0]]}"
        if len(held) > 1:
            name = "-".join(map(str, held))
            patterns.append(_draw_hatching(name, held))
            colour = f"url(#{name})"
        fills.append(f'<path fill="{colour}" d="{"".join(paths)}"/>')
    keys = "".join(
        f'<rect x="{64 + 41 * w}" y="{high + 5}" width="12" height="12" fill="#{COLOURS[w]}"/>'
        f'<text x="{79 + 41 * w}" y="{high + 15}">{w}</text>'
        for w in range(plan.workers)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {legend}" '
        f'font-family="sans-serif" font-size="12">\n<defs>{"".join(patterns)}'
        f'<clipPath id="map"><path d="M0 0H{WIDE}V{high}H0z"/></clipPath></defs>\n'
        f'<path fill="#fff" d="M0 0H{WIDE}V{legend}H0z"/>\n<g clip-path="url(#map)">\n'
        f'<g fill-opacity=".75" stroke="#fff" stroke-width=".6">\n{chr(10).join(fills)}\n</g>\n'
        f'<path fill="none" stroke="#222" stroke-width="1.2" d="{_draw_land(at, sides)}"/>\n</g>\n'
        f'<text x="8" y="{high + 15}">worker</text>{keys}\n</svg>\n'
    )


def _draw_hatching(name: str, held: tuple[int, ...]) -> str:
    """Returns a pattern with a stripe for each of the workers, at most four."""
    shown = held[:4]
    stripes = "".join(
        f'<path fill="#{COLOURS[w]}" d="M{4 * i} 0h4v16h-4z"/>' for i, w in enumerate(shown)
    )
    return (
        f'<pattern id="{name}" width="{4 * len(shown)}" height="16" '
        f'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">{stripes}</pattern>'
    )


def _draw_land(at: Any, sides: Sides) -> str:
    """Returns the path of the outlines of the land."""
    west, south, east, north = sides
    out = []
    for feature in json.loads(LAND.read_text())["features"]:
        shape = feature["geometry"]
        rings = shape["coordinates"]
        if shape["type"] in ("MultiPolygon", "MultiLineString"):
            rings = [
                ring for part in rings for ring in (part if shape["type"][5] == "P" else [part])
            ]
        elif shape["type"] == "LineString":
            rings = [rings]
        for ring in rings:
            pen = False
            for a, b in pairwise(ring):
                seen = all(
                    max(a[i], b[i]) >= low and min(a[i], b[i]) <= top
                    for i, low, top in ((0, west, east), (1, south, north))
                )
                if seen and not pen:
                    out.append("M{} {}".format(*at(*a)))
                if seen:
                    out.append("L{} {}".format(*at(*b)))
                pen = seen
    return "".join(out)


def around(plan: RoutingPlan) -> Sides:
    """Returns the surroundings of the first cell that is divided by text."""
    divided = [isinstance(leaf, Text) for leaf in plan.leaves]
    cell = int(np.flatnonzero(np.array(divided)[plan.cells])[0])
    west, south, width, height = plan.grid.bounds(cell)
    lon, lat = west + width / 2, south + height / 2
    return lon - AROUND, lat - AROUND / 2, lon + AROUND, lat + AROUND / 2


def main(source: str) -> None:
    world = make_world("pictures", source, "q3", SIZE, seed=1)
    places = ChartPoints(world.load.posts.lon, world.load.posts.lat)
    kd, hybrid = (
        planned(world, name, WORKERS, ExperimentSettings()) for name in ("kdtree", "hybrid")
    )
    for name, plan, sides in (
        ("kd", kd, window(kd, places)),
        ("hybrid", hybrid, window(hybrid, places)),
        ("text", hybrid, around(hybrid)),
    ):
        path = IMAGES / f"plan-{name}.svg"
        path.write_text(picture(plan, sides), "utf-8")
        texts = [leaf for leaf in plan.leaves if isinstance(leaf, Text)]
        sys.stdout.write(
            f"{path.name}: {plan.grid.columns()} x {plan.grid.rows()} cells, "
            f"{len(plan.leaves)} leaves, {len(texts)} by text, among "
            f"{[len(leaf.workers) for leaf in texts]} workers with "
            f"{[len(leaf.terms) for leaf in texts]} terms, {path.stat().st_size:,} bytes\n"
        )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else SYNTHETIC)
