"""Why an object matches a query or does not, in words that a subscriber understands."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from ps2stream.boolean import And, Expr, Term, satisfies
from ps2stream.service.gateway import Meeting
from ps2stream.space import Circle, Polygon, Rect, Region
from ps2stream.space_kernels import haversine_km
from ps2stream.unit_kernels import LEVEL_SHIFT
from ps2stream.v1 import explain_pb2

_CELL = (1 << LEVEL_SHIFT) - 1


def clause_of(expr: Expr, terms: AbstractSet[str]) -> explain_pb2.Clause:
    """The expression part by part, on an object with these terms."""
    kind = "term" if isinstance(expr, Term) else "and" if isinstance(expr, And) else "or"
    parts = () if isinstance(expr, Term) else expr.args
    return explain_pb2.Clause(
        kind=kind,
        text=expr.text,
        holds=satisfies(expr, terms),
        parts=[clause_of(part, terms) for part in parts],
    )


def region_test(region: Region, lon: float, lat: float) -> explain_pb2.RegionTest:
    """The region on a point, degrees."""
    inside = region.contains(lon, lat)
    where = f"({lon:g}, {lat:g})"
    match region:
        case Rect(west, south, east, north):
            beyond = [
                side
                for side, out in (
                    ("south", lat < south),
                    ("north", lat > north),
                    ("west or east", not inside and south <= lat <= north),
                )
                if out
            ]
            box = f"{west:g}..{east:g} E, {south:g}..{north:g} N"
            detail = f"{where} lies {f'{beyond[0]} of' if beyond else 'in'} {box}"
            return explain_pb2.RegionTest(inside=inside, detail=detail)
        case Circle(x, y, radius):
            away = float(haversine_km(x, y, float(lon), float(lat)))
            detail = f"{where} is {away:.6g} km from ({x:g}, {y:g}), the radius {radius:g} km"
            return explain_pb2.RegionTest(inside=inside, detail=detail, distance_km=away)
        case Polygon():
            bounds = ", ".join(f"{v:g}" for v in region.geometry.bounds)
            detail = f"{where} lies {'in' if inside else 'outside'} the polygon within {bounds}"
            return explain_pb2.RegionTest(inside=inside, detail=detail)
    return explain_pb2.RegionTest(inside=True, detail="the whole world")


def unit_of(
    meeting: Meeting, at: int, term: str, bounds: tuple[float, float, float, float]
) -> explain_pb2.Unit:
    """The object's cell with posting term number `at`, called `term`; bounds: of the cell, west,
    south, width, height in degrees."""
    west, south, width, height = bounds
    posted = len(meeting.owners) > 0
    return explain_pb2.Unit(
        level=meeting.here >> LEVEL_SHIFT,
        cell=meeting.here & _CELL,
        west=west,
        south=south,
        east=west + width,
        north=south + height,
        term=term,
        worker=int(meeting.owners[at]) if posted else 0,
        posted=posted,
    )


def reason_of(found: explain_pb2.ExplainMatchResponse) -> str:
    """What decided, in a sentence."""
    if found.matches:
        unit = next(unit for unit in found.units if unit.decides)
        why = f"the term {unit.term!r}" if unit.term else "any text"
        return (
            f"it matches: worker {unit.worker} finds it in cell {unit.cell} of level "
            f"{unit.level} under {why}, by plan version {found.plan_version}"
        )
    lacks = []
    if found.HasField("text") and not found.text.holds:
        lacks.append(f"its text does not satisfy {_culprit(found.text)}")
    if not found.region.inside:
        lacks.append(f"it is not in the region: {found.region.detail}")
    if not lacks:
        return "the index says no where the definition says yes: this is a bug, report it"
    return f"it does not match: {', and '.join(lacks)}"


def _culprit(clause: explain_pb2.Clause) -> str:
    """The smallest part that is to blame: of a conjunction the one that fails."""
    failing = [part for part in clause.parts if not part.holds]
    if clause.kind == "and" and len(failing) == 1:
        return _culprit(failing[0])
    if clause.kind == "and":
        return " nor ".join(f"({part.text})" if part.parts else part.text for part in failing)
    return clause.text
