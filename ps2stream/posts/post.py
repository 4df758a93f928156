"""A post as users write it: its columns, and the check of each value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from ps2stream.errors import InvalidArgument, invalid, short
from ps2stream.limits import ID_BYTES, LAT_MAX, LON_MAX, PAYLOAD_BYTES, TEXT_BYTES
from ps2stream.posts.members import (
    AttributeChoice,
    AttributeProblem,
    check_time,
    dump_payload,
    normalise,
)

NAMES = {
    "id": ("id",),
    "time": ("time", "ts", "timestamp"),
    "lon": ("lon", "lng", "longitude"),
    "lat": ("lat", "latitude"),
    "text": ("text",),
}
KNOWN = frozenset({*chain.from_iterable(NAMES.values()), "payload", "until"})
"""Names of the columns that have a meaning of their own, and are no attributes."""
POSTS = tuple(NAMES[name] for name in ("lon", "lat", "text"))
"""Names of the columns that a post cannot do without."""
LIMIT = {"lon": LON_MAX, "lat": LAT_MAX}
MAX_BYTES = {"id": ID_BYTES, "text": TEXT_BYTES}
_TIME = "Unix milliseconds or an ISO 8601 time"


def bad(field: str, description: str) -> InvalidArgument:
    """Returns the error for one violation; `field` says file, line and column."""
    return invalid(field, description)


def check_head(where: str, names: Sequence[str], need: Sequence[Sequence[str]] = ()) -> None:
    """Raises InvalidArgument unless each needed column is there under one of its names, and
    no column is there twice; those without a name do not count."""
    for choice in need:
        if not set(choice) & set(names):
            wanted = " or ".join(choice)
            have = ", ".join(names) or "none"
            raise bad(where, f"expected a column {wanted}; there are: {have}")
    for name, times in Counter(normalise(name) for name in names if name).items():
        if times > 1:
            raise bad(where, f"expected one column {name}, got {times}")


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a string, got {short(value)}")
    return _check_length(value, "text")


def _check_id(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"expected a string or an integer, got {short(value)}")
    return _check_length(str(value), "id")


def _check_length(text: str, name: str) -> str:
    # A lone surrogate has no UTF-8; it matches no letter, so U+FFFD separates as it does.
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_BYTES[name]:
        raise ValueError(f"expected at most {MAX_BYTES[name]} bytes, got {len(data)}")
    return data.decode("utf-8", "replace")


def _make_degrees_check(name: str) -> Callable[[Any], float]:
    limit = LIMIT[name]
    expected = f"expected degrees in [-{limit:g}, {limit:g}]"

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"{expected}, got {short(value)}")
        try:
            number = float(value) if "_" not in str(value) else math.nan
        except (ValueError, OverflowError):
            raise ValueError(f"{expected}, got {short(value)}") from None
        if not -limit <= number <= limit:
            raise ValueError(f"{expected}, got {short(value)}")
        return number

    return check


def check_moment(value: Any) -> int | None:
    """Returns a time as Unix milliseconds. Raises ValueError."""
    if value is None:
        return None
    try:
        return check_time(value)
    except ValueError:
        raise ValueError(f"expected {_TIME}, got {short(value)}") from None


def check_payload(value: Any) -> str | None:
    """Returns a payload as JSON text. Raises ValueError if it is too large or has no JSON."""
    if value is None:
        return None
    try:
        data = dump_payload(value)
    except (ValueError, RecursionError):
        raise ValueError(f"expected a value of JSON, got {short(value)}") from None
    size = len(data.encode("utf-8", "replace"))
    if size > PAYLOAD_BYTES:
        raise ValueError(f"expected at most {PAYLOAD_BYTES} bytes, got {size}")
    return data


CHECKS: dict[str, Callable[[Any], Any]] = {
    "id": _check_id,
    "time": check_moment,
    "lon": _make_degrees_check("lon"),
    "lat": _make_degrees_check("lat"),
    "text": _check_text,
}


def check_records(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    first: int = 0,
    run: str = "",
    choice: AttributeChoice | None = None,
) -> dict[str, list[Any]]:
    """Returns columns id, time, lon, lat and text of (place, record) pairs; an absent id becomes
    `run` and the row's number, from `first`. With a choice, also attributes, mappings of names to
    values, payload, JSON text or None, and until, Unix ms or None. Raises InvalidArgument naming
    the place of a bad value."""
    columns: dict[str, list[Any]] = {name: [] for name in CHECKS}
    if choice is not None:
        columns |= {"attributes": [], "payload": [], "until": []}
    for number, (where, record) in enumerate(rows, first):
        for name, check in CHECKS.items():
            value = _pick_value(record, name)
            if value is None and name == "id":
                value = f"{run}{number}"
            try:
                columns[name].append(check(value))
            except ValueError as error:
                raise bad(f"{where} {name}", str(error)) from None
        if choice is not None:
            _check_more(where, record, choice, columns)
    return columns


def _check_more(
    where: str, record: Mapping[str, Any], choice: AttributeChoice, columns: dict[str, list[Any]]
) -> None:
    try:
        columns["attributes"].append(choice.read(record, KNOWN))
        columns["payload"].append(check_payload(record.get("payload")))
    except AttributeProblem as error:
        raise bad(f"{where} {error.name}", error.problem) from None
    except ValueError as error:
        raise bad(f"{where} payload", str(error)) from None
    try:
        columns["until"].append(check_moment(record.get("until") or None))
    except ValueError as error:
        raise bad(f"{where} until", str(error)) from None


def _pick_value(record: Mapping[str, Any], name: str) -> Any:
    """Returns the value of a record under any of the names of a column."""
    for alias in NAMES[name]:
        if (value := record.get(alias)) is not None:
            return value
    return None


def paced(
    parts: Iterable[Any],
    rate: float | None,
    clock: Callable[[], float],
    sleep: Callable[[float], object],
) -> Iterator[Any]:
    """Yields the batches, each not before its turn at `rate` rows a second.

    A late batch does not shift the turns of later ones. None: as fast as they are taken.
    """
    began, done = clock(), 0
    for part in parts:
        if rate is not None and (wait := began + done / rate - clock()) > 0:
            sleep(wait)
        yield part
        done += len(part)
