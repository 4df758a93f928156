"""The units of each role that a host offers to actors: `worker=4,dispatcher=1`."""

from __future__ import annotations

from ps2stream.cluster.placement import resource
from ps2stream.errors import InvalidArgument, invalid

ROLES = ("dispatcher", "worker", "merger", "sequencer", "controller")
PLENTY = 10_000
NONE = "none"


def units(spec: str | None) -> dict[str, int]:
    """Returns the number of units by role. A role without a number, and every role where there
    is no spec, is offered in plenty; `none` offers nothing. Raises InvalidArgument."""
    if spec is None:
        return dict.fromkeys(ROLES, PLENTY)
    if spec.strip() == NONE:
        return {}
    found: dict[str, int] = {}
    for part in spec.split(","):
        role, equals, number = (word.strip() for word in part.partition("="))
        if role not in ROLES:
            raise _make_error(
                f"{role!r} is not a role; expected some of {', '.join(ROLES)}, or {NONE} alone"
            )
        if role in found:
            raise _make_error(f"{role} is named twice")
        if equals and not (number.isascii() and number.isdecimal() and int(number) <= PLENTY):
            raise _make_error(f"{role}={number}: expected a number from 0 to {PLENTY}")
        found[role] = int(number) if equals else PLENTY
    return found


def resources(offered: dict[str, int]) -> dict[str, int]:
    """Returns the offered units as Ray's resources; a role of 0 units is not offered."""
    return {resource(role): number for role, number in offered.items() if number}


def _make_error(problem: str) -> InvalidArgument:
    return invalid("--roles", problem)
