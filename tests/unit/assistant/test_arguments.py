"""ps2stream/assistant/arguments.py: what is not good is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.assistant.arguments import (
    AddArguments,
    ExplainArguments,
    QueryArguments,
    ReadArguments,
    ToolArguments,
    read_arguments,
)
from ps2stream.errors import InvalidArgument, Violation
from ps2stream.space.regions import Circle, Polygon, Rect

NAN = float("nan")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
NAMES = st.sampled_from(["query", "near", "bbox", "polygon", "valid_s", "lon", "cursor", "id"])


def test_places_become_regions() -> None:
    near = read_arguments(QueryArguments, {"near": {"lon": 8, "lat": 47, "radius_km": 5}})
    assert near.read_region() == Circle(8, 47, 5)
    box = {"west": 170, "south": -1, "east": -170, "north": 1}
    assert read_arguments(QueryArguments, {"bbox": box}).read_region() == Rect(170, -1, -170, 1)
    ring = [[8, 47], [9, 47], [9, 48]]
    polygon = read_arguments(QueryArguments, {"polygon": ring}).read_region()
    assert isinstance(polygon, Polygon)
    assert polygon.contains(8.9, 47.2)
    assert polygon == read_arguments(QueryArguments, {"polygon": [*ring, ring[0]]}).read_region()
    assert read_arguments(QueryArguments, {"query": "flood"}).read_region() is None


@pytest.mark.parametrize(
    ("kind", "sent", "field"),
    [
        (AddArguments, {"valid_s": 1.5}, "valid_s"),
        (AddArguments, {"valid_s": -1}, "valid_s"),
        (AddArguments, {"near": {"lon": NAN, "lat": 1, "radius_km": 1}}, "near.lon"),
        (AddArguments, {"near": {"lon": 1, "lat": 1}}, "near.radius_km"),
        (AddArguments, {"near": {"lon": 1, "lat": 1, "radius_km": 1, "x": 1}}, "near.x"),
        (AddArguments, {"bbox": [1, 2, 3, 4]}, "bbox"),
        (AddArguments, {"polygon": [[1, 2], [3, 4], [5, 91]]}, "polygon.2.1"),
        (AddArguments, {"polygon": [[1, 2]] * 1001}, "polygon"),
        (AddArguments, {"session": "other"}, "session"),
        (AddArguments, {"id": "mine"}, "id"),
        (ReadArguments, {"limit": 0}, "limit"),
        (ReadArguments, {"wait_s": NAN}, "wait_s"),
        (ReadArguments, {"cursor": "x" * 513}, "cursor"),
        (ExplainArguments, {"id": "a", "lon": 1, "lat": 1}, "text"),
        (ExplainArguments,
         {"id": "a", "lon": 1, "lat": 1, "text": "", "attributes": {"a": [1]}}, "attributes.a.str"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(
    kind: type[ToolArguments], sent: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_arguments(kind, sent)
    assert field in [violation.field for violation in caught.value.violations]


@given(st.dictionaries(NAMES | st.text(max_size=4), JSON, max_size=4))
def test_whatever_is_sent_is_read_or_refused(sent: dict[str, Any]) -> None:
    for kind in (AddArguments, ExplainArguments, ReadArguments):
        found: tuple[Violation, ...] = ()
        try:
            read = read_arguments(kind, sent)
            if isinstance(read, AddArguments):
                read.read_region()
        except InvalidArgument as error:
            found = error.violations
        assert all(v.field and v.description for v in found)


def test_errors_of_the_service_name_the_argument() -> None:
    asked = read_arguments(QueryArguments, {"near": {"lon": 8, "lat": 47, "radius_km": 5}})
    error = InvalidArgument([Violation("query.expression", "no"), Violation("region.lat", "far")])
    found = asked.name_fields(error)
    assert [v.field for v in found.violations] == ["query", "near.lat"]
