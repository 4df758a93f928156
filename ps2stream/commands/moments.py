"""Ends on the command line: a moment, or how long from now."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from ps2stream.errors import invalid, short

_DURATION = re.compile(r"(?=\d)(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_LOCAL_TIME = re.compile(r"\d{4}-?[\dW-]+[T ][\d:.,]+", re.IGNORECASE)
EXPECTED = "a duration such as 90m, 2h or 1d12h, or a time as ISO 8601 with a time zone"
EXPECTED_IN_FILES = "Unix milliseconds, or a time as ISO 8601 with a time zone"


def parse_end(field: str, text: str) -> int:
    """Returns the moment that a text means, Unix milliseconds. Raises InvalidArgument."""
    if found := _DURATION.fullmatch(text):
        try:
            weeks, days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
            after = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
            return round((datetime.now(UTC) + after).timestamp() * 1000)
        except (OverflowError, ValueError):  # int takes no more than 4,300 digits
            raise invalid(field, f"{short(text)} is too long") from None
    return read_end(field, text, EXPECTED)


def read_end(field: str, value: Any, expected: str = EXPECTED_IN_FILES) -> int:
    """Returns the moment that a value of a file means: Unix milliseconds, or ISO 8601; a date is
    its midnight in UTC. Raises InvalidArgument, which says what was `expected`, also of a time of
    day without a time zone, by which the writer may mean another than UTC."""
    from ps2stream.posts.members import check_time

    try:
        if isinstance(value, str) and _LOCAL_TIME.fullmatch(value.strip()):
            raise ValueError("it has no time zone; write Z behind it for UTC")
        return check_time(value)
    except (TypeError, ValueError) as error:
        why = f" ({error})" if str(error) else ""
        raise invalid(field, f"expected {expected}, got {short(value)}{why}") from None


def format_end(until: int | None) -> str:
    """Formats an end, Unix milliseconds, for people; empty for none."""
    if until is None:
        return ""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=until)
    return f"until {moment.isoformat(sep=' ', timespec='seconds').removesuffix('+00:00')} UTC"
