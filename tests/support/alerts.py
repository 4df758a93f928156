"""Alerts written after the specifications: CAP 1.2, Atom, RSS, and the GeoJSON of the NWS."""

from __future__ import annotations

from typing import Any

NS = "urn:oasis:names:tc:emergency:cap:1.2"
SQUARE = "47.0,8.0 47.5,8.0 47.5,8.5 47.0,8.5 47.0,8.0"


def alert(
    infos: str,
    id: str = "a1",
    kind: str = "Alert",
    more: str = "",
    sent: str = "2026-01-01T11:00:00Z",
) -> str:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><alert xmlns="{NS}"><identifier>{id}</identifier>'
        f"<sender>s</sender><sent>{sent}</sent><status>Actual</status><msgType>{kind}</msgType>"
        f"<scope>Public</scope>{more}{infos}</alert>"
    )


def info(areas: str, event: str = "Flood Warning", expires: str = "2026-01-01T13:00:00Z") -> str:
    return (
        f"<info><language>en</language><category>Met</category><event>{event}</event>"
        "<urgency>Immediate</urgency><severity>Severe</severity><certainty>Observed</certainty>"
        f"<expires>{expires}</expires><headline>River rises</headline>"
        "<description>It rises &amp; rises.</description><instruction>Go up.</instruction>"
        f"{areas}</info>"
    )


def area(polygon: str, code: tuple[str, str] | None = None) -> str:
    shape = f"<polygon>{polygon}</polygon>" if polygon else ""
    geocode = ""
    if code is not None:
        name, value = code
        geocode = f"<geocode><valueName>{name}</valueName><value>{value}</value></geocode>"
    return f"<area><areaDesc>Square</areaDesc>{shape}{geocode}</area>"


def atom(*entries: tuple[str, str]) -> str:
    """Entries are ids and links."""
    body = "".join(
        f"<entry><id>{id}</id><title>t</title><updated>2026-01-01T11:00:00Z</updated>"
        f'<link rel="self" href="/entry"/><link type="application/cap+xml" href="{link}"/></entry>'
        for id, link in entries
    )
    return f'<feed xmlns="http://www.w3.org/2005/Atom"><id>f</id><title>f</title>{body}</feed>'


def rss(*items: tuple[str, str]) -> str:
    body = "".join(
        f"<item><title>t</title><link>{link}</link><guid>{id}</guid>"
        "<pubDate>Thu, 01 Jan 2026 11:00:00 GMT</pubDate></item>"
        for id, link in items
    )
    return f'<rss version="2.0"><channel><title>f</title>{body}</channel></rss>'


def nws(geometry: Any = None, id: str = "urn:oid:2.49.0.1.840.0.1") -> dict[str, Any]:
    """A collection with one alert, of the form of api.weather.gov."""
    properties = {
        "id": id,
        "areaDesc": "Coastal North Bay",
        "geocode": {"SAME": ["006041"], "UGC": ["CAZ006"]},
        "affectedZones": ["https://api.weather.gov/zones/forecast/CAZ006"],
        "references": [{"@id": "x", "identifier": "urn:oid:0", "sender": "s", "sent": "x"}],
        "sent": "2026-01-01T03:00:00-08:00", "effective": "2026-01-01T03:00:00-08:00",
        "onset": "2026-01-01T03:00:00-08:00", "expires": "2026-01-01T05:00:00-08:00",
        "ends": None, "status": "Actual", "messageType": "Update", "category": "Met",
        "severity": "Severe", "certainty": "Likely", "urgency": "Expected",
        "event": "Winter Storm Warning", "sender": "w-nws.webmaster@noaa.gov",
        "senderName": "NWS San Francisco CA", "headline": "Winter Storm Warning issued",
        "description": "Heavy snow expected.", "instruction": None, "response": "Prepare",
    }  # fmt: skip
    feature = {
        "id": f"https://api.weather.gov/alerts/{id}",
        "type": "Feature",
        "geometry": geometry,
        "properties": properties,
    }
    return {"type": "FeatureCollection", "features": [feature]}
