"""The service's interpretation of a query, for the answer to a single insert."""

from __future__ import annotations

import numpy as np

from ps2stream.language.hash_kernels import TOP
from ps2stream.language.query_rows import canonical_sources, describe
from ps2stream.protocol.rows import QueryRows
from ps2stream.space.areas import find_warnings, summarize_area
from ps2stream.space.places import load_places
from ps2stream.space.region_rows import decode_region
from ps2stream.v1 import query_pb2

ANY_TEXT = (
    "an object without any word or attribute of this query may match it, so every object in its "
    "area is compared with it; with a word or an attribute that must be there it would cost less"
)


def interpret_query(rows: QueryRows) -> query_pb2.Interpretation:
    """Returns the canonical expression of one row, its area, and what looks like a mistake in
    it."""
    (canonical,) = canonical_sources(rows, np.zeros(1, np.int64))
    found = query_pb2.Interpretation(expression=describe(canonical).canonical)
    if found.expression and _is_posted_as_any_text(rows):
        found.warnings.append(ANY_TEXT)
    region = decode_region(int(rows.shape[0]), rows.geom)
    places = load_places()
    area = summarize_area(region, places)
    if area is not None:
        found.area.CopyFrom(
            query_pb2.AreaSummary(
                area_km2=area.area_km2,
                width_km=area.width_km,
                height_km=area.height_km,
                lon=area.lon,
                lat=area.lat,
                nearest_place=area.nearest.name,
                nearest_country=area.nearest.country,
                nearest_km=area.nearest.km,
            )
        )
        found.warnings.extend(find_warnings(region, places))
    return found


def _is_posted_as_any_text(rows: QueryRows) -> bool:
    """Returns whether the first row is posted under TOP, which every text has."""
    return any(int(rows.post[0]) >> int(i) & 1 for i in np.flatnonzero(rows.term == TOP))
