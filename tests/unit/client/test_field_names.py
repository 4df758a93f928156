"""Fields as the service names them, and as callers of the client do."""

from __future__ import annotations

import pytest

from ps2stream.client.field_names import name_field


@pytest.mark.parametrize(
    ("named", "called"),
    [
        ("query.until_ms", "query.until"),
        ("object.until_ms", "object.until"),
        ("queries[3].until_ms", "queries[3].until"),
        ("batch.objects[12].until_ms", "batch.objects[12].until"),
        ("query.region.rectangle.lat_min", "query.region.lat_min"),
        ("queries[0].region.circle.radius_km", "queries[0].region.radius_km"),
        ("query.region.geojson.coordinates[0][1]", "query.region.coordinates[0][1]"),
    ],
)
def test_fields_have_the_names_of_the_client(named: str, called: str) -> None:
    assert name_field(named) == called


@pytest.mark.parametrize(
    "field",
    [
        "query.region.geojson",
        "query.expression",
        "expires_ms",
        "batch.objects[0].attributes.until_ms",  # an attribute has any name
        "objects[0].attributes.region.circle.lon",
        "batch.arrow.until",
    ],
)
def test_other_fields_stay(field: str) -> None:
    assert name_field(field) == field
