"""Explanations, in a subscriber's words, of why an object matches a query or does not."""

from __future__ import annotations

from ps2stream.dispatcher.gateway import MatchExplanation
from ps2stream.routing.unit_kernels import LEVEL_SHIFT
from ps2stream.space.regions import Circle, Polygon, Rect, Region
from ps2stream.space.space_kernels import haversine_km
from ps2stream.v1 import explain_pb2

_CELL = (1 << LEVEL_SHIFT) - 1


def region_test(region: Region, lon: float, lat: float) -> explain_pb2.RegionTest:
    """Tests the region at a point, in degrees."""
    inside = region.contains(lon, lat)
    where = f"({_format_exactly(lon)}, {_format_exactly(lat)})"
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
            sides = [_format_exactly(side) for side in (west, east, south, north)]
            box = "{}..{} E, {}..{} N".format(*sides)
            detail = f"{where} lies {f'{beyond[0]} of' if beyond else 'in'} {box}"
            return explain_pb2.RegionTest(inside=inside, detail=detail)
        case Circle(x, y, radius):
            away = float(haversine_km(x, y, float(lon), float(lat)))
            far = f"{away:.6g}"
            if (float(far) <= radius) != inside or float(far) == radius:  # rounding would lie
                far = _format_exactly(away)
            centre = f"({_format_exactly(x)}, {_format_exactly(y)})"
            detail = f"{where} is {far} km from {centre}, the radius {_format_exactly(radius)} km"
            return explain_pb2.RegionTest(inside=inside, detail=detail, distance_km=away)
        case Polygon():
            bounds = ", ".join(map(_format_exactly, region.bounds))
            detail = f"{where} lies {'in' if inside else 'outside'} the polygon within {bounds}"
            return explain_pb2.RegionTest(inside=inside, detail=detail)
    return explain_pb2.RegionTest(inside=True, detail="the whole world")


def _format_exactly(value: float) -> str:
    """Formats a number with as many digits as distinguish it from any other."""
    return repr(float(value)).removesuffix(".0")


def unit_of(
    meeting: MatchExplanation, at: int, term: str, bounds: tuple[float, float, float, float]
) -> explain_pb2.Unit:
    """Returns the unit of the object's cell and posting term number `at`, which is called `term`.
    `bounds` of the cell are west, south, width and height in degrees."""
    west, south, width, height = bounds
    owners = meeting.owners[at] if meeting.owners else ()
    return explain_pb2.Unit(
        level=meeting.here >> LEVEL_SHIFT,
        cell=meeting.here & _CELL,
        west=west,
        south=south,
        east=west + width,
        north=south + height,
        term=term,
        worker=owners[0] if owners else 0,
        posted=len(owners) > 0,
        workers=owners if len(owners) > 1 else (),
        sharded=meeting.shards[at] if meeting.shards else (),
    )


def reason_of(found: explain_pb2.ExplainMatchResponse) -> str:
    """Returns what decided the match, in a sentence."""
    if found.matches:
        unit = next(unit for unit in found.units if unit.decides)
        why = f"the term {unit.term!r}" if unit.term else "any text"
        return (
            f"it matches: {_name_workers(unit)} finds it in cell {unit.cell} of level "
            f"{unit.level} under {why}, by plan version {found.plan_version}"
        )
    lacks = []
    if found.HasField("text") and not found.text.holds:
        lacks.append(f"it does not satisfy {_find_failing_part(found.text)}")
    if not found.region.inside:
        lacks.append(f"it is not in the region: {found.region.detail}")
    if not lacks:
        return "the index says no where the definition says yes: this is a bug, report it"
    return f"it does not match: {', and '.join(lacks)}; {_describe_decision(found)}"


def _describe_decision(found: explain_pb2.ExplainMatchResponse) -> str:
    """Describes where it is decided that an object does not match."""
    by = f"by plan version {found.plan_version}"
    decides = next((unit for unit in found.units if unit.decides), None)
    if decides is not None:
        why = f"the term {decides.term!r}" if decides.term else "any text"
        cell = f"cell {decides.cell} of level {decides.level}"
        return f"{by}, {_name_workers(decides)} looks at it in {cell} under {why}"
    if any(unit.posted for unit in found.units):
        return f"{by}, no worker looks at it: it has no term that the query is posted under"
    return f"{by}, no worker looks at it: the query is not posted in its cell"


def _name_workers(unit: explain_pb2.Unit) -> str:
    """Names the worker that compares an object which meets a unit: one of several, if it is
    replicated."""
    if unit.sharded:
        among = ", ".join(map(str, unit.sharded))
        return f"worker {unit.worker}, which has this query of a hot unit sharded among {among},"
    if not unit.workers:
        return f"worker {unit.worker}"
    named = ", ".join(map(str, unit.workers))
    return f"one of workers {named}, which own this hot unit together,"


def _find_failing_part(clause: explain_pb2.Clause) -> str:
    """Returns the text of the smallest part that fails: of a conjunction, the part that does; of a
    predicate, also why."""
    if clause.detail:
        return f"{clause.text} ({clause.detail})"
    failing = [part for part in clause.parts if not part.holds]
    if clause.kind == "and" and len(failing) == 1:
        return _find_failing_part(failing[0])
    if clause.kind == "and":
        return " nor ".join(
            f"({part.text})" if part.kind in ("and", "or") else part.text for part in failing
        )
    return clause.text
