"""The members of a record that become attributes of its post, and what is left out."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ps2stream.errors import invalid, short
from ps2stream.limits import ATTRIBUTE_NAME_BYTES, ATTRIBUTE_TEXT_BYTES, ATTRIBUTES

TYPES = ("number", "text", "boolean", "time")
LEFT_OUT = 20
"""Names of members that are remembered as left out."""
_PART = re.compile(r"\s*(?:`([^`]+)`|([^`:,]+))(?::([^`:,]*))?\s*(?:,|$)")
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,30}\s*")
_DIGIT = re.compile("[0-9]")
_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)


class AttributeProblem(ValueError):
    """What is wrong with the value of an attribute."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"{name}: {problem}")


class AttributeChoice:
    """Choice of the members of records that become attributes.

    spec: `severity,at:time`, names with or without a type of TYPES, in backquotes where a name
    has a comma or colon; `none` for no attributes. With a spec, a value that cannot be of its type
    is an error. None: all members become attributes that can, and the others are left out, which
    `pop_left_out` reports; if `exact`, what is in the object `attributes` of a record and cannot be
    one is an error. Raises InvalidArgument for a spec that is none.
    """

    def __init__(self, spec: str | None = None, exact: bool = False) -> None:
        self.types: dict[str, str] | None = None if spec is None else _parse_spec(spec)
        """The type of each name, empty where any will do; None: all names."""
        self._is_exact = exact
        self._unseen = set(self.types or ())
        self._left_out: dict[str, str] = {}
        self._reported: set[str] = set()
        self.advice = ""
        """The spec that makes numbers of columns that are text and look like numbers."""

    def read(self, record: Mapping[str, Any], used: Container[str]) -> dict[str, Any]:
        """Returns the attributes of a record by name, in normal form: its members beyond `used`,
        and the members of `attributes`, if that is an object. Raises AttributeProblem."""
        found: dict[str, Any] = {}
        nested = record.get("attributes")
        given = set[str]()
        if self._is_exact and isinstance(nested, Mapping):
            given.update(map(normalise, nested))
        for name, value in self._list_members(record, used):
            if name in found:
                raise AttributeProblem(name, "expected it once, got it twice")
            if self.types is not None:
                found[name] = convert_value(name, value, self.types[name])
            elif problem := find_problem(name, value):
                if name in given:
                    shown = short(name) if find_name_problem(name) else name
                    raise AttributeProblem(f"attributes.{shown}", f"no attribute: {problem}")
                self.leave_out(name, problem)
            elif len(found) >= ATTRIBUTES and name not in given:
                self.leave_out(name, f"one of more than {ATTRIBUTES}")
            else:
                found[name] = convert_value(name, value, "")
        if len(found) > ATTRIBUTES:
            raise AttributeProblem("attributes", f"expected at most {ATTRIBUTES}, got {len(found)}")
        return found

    def note_seen(self, name: str) -> None:
        """Notes that a member of this name occurs."""
        self._unseen.discard(name)

    def check_columns(self, where: str, names: Sequence[str]) -> None:
        """Raises InvalidArgument unless each name of the spec is a column of a table."""
        there = set(map(normalise, names))
        if missing := [name for name in self.types or () if name not in there]:
            have = ", ".join(names)
            raise invalid(where, f"expected a column {missing[0]}; there are: {have}")

    def look_for_numbers(self, records: Iterable[Mapping[str, Any]], used: Container[str]) -> None:
        """Looks at rows of a table of texts, and gives `advice` where no types are given."""
        if self.types is not None:
            return
        looks: dict[str, bool] = {}
        for record in records:
            for name, value in record.items():
                if name not in used:
                    looks[name] = looks.get(name, True) and _is_number(value)
        if any(looks.values()):
            names = {name: f"`{name}`" if set(name) & set(":, ") else name for name in looks}
            parts = (names[name] + ":number" * is_number for name, is_number in looks.items())
            self.advice = ",".join(parts)

    def leave_out(self, name: str, reason: str) -> None:
        """Notes that a member is left out."""
        if len(self._left_out) < LEFT_OUT:
            self._left_out.setdefault(name, reason)

    def pop_left_out(self) -> list[str]:
        """Returns what was left out and not reported yet: names with reasons."""
        news = [name for name in self._left_out if name not in self._reported]
        self._reported.update(news)
        return [f"{name} ({self._left_out[name]})" for name in news]

    def list_unseen(self) -> list[str]:
        """Returns the names of the spec that no record had."""
        return sorted(self._unseen)

    def _list_members(
        self, record: Mapping[str, Any], used: Container[str]
    ) -> Iterator[tuple[str, Any]]:
        nested = record.get("attributes")
        if not isinstance(nested, Mapping):
            nested = {}
        members = [(n, v) for n, v in record.items() if n not in used and v is not nested]
        for given, value in (*nested.items(), *members):
            name = given if given.isascii() else normalise(given)
            if self.types is not None:
                if name not in self.types:
                    continue
                self._unseen.discard(name)
            if value is not None:
                yield name, value


def _parse_spec(spec: str) -> dict[str, str]:
    if spec.strip() == "none":
        return {}
    found: dict[str, str] = {}
    at = 0
    while at < len(spec) or not found:
        if (part := _PART.match(spec, at)) is None or part.end() == at:
            problem = f"expected NAME or NAME:TYPE, separated by commas, got {short(spec[at:])}"
            raise invalid("attributes", problem)
        quoted, bare, kind = part.groups()
        name = normalise(quoted or bare.strip())
        if kind is not None and kind.strip() not in TYPES:
            problem = f"expected a type of {', '.join(TYPES)}, got {kind.strip()!r}"
            raise invalid(f"attributes.{name}", problem)
        if problem := find_name_problem(name):
            raise invalid(f"attributes.{short(name)}", problem)
        if name in found:
            raise invalid(f"attributes.{name}", "is there twice")
        found[name] = (kind or "").strip()
        at = part.end()
    return found


# --- values -------------------------------------------------------------------


def find_name_problem(name: str) -> str:
    """Returns why an attribute cannot have this name, empty if it can."""
    size = len(normalise(name).encode())
    if not size:
        return "the name is empty"
    if size > ATTRIBUTE_NAME_BYTES:
        return f"the name has more than {ATTRIBUTE_NAME_BYTES} bytes"
    if "`" in name or any(unicodedata.category(letter) == "Cc" for letter in name):
        return "the name has a backquote or control character"
    return ""


def find_problem(name: str, value: Any) -> str:
    """Returns why this cannot be an attribute, empty if it can."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if problem := find_name_problem(name):
        return problem
    if isinstance(value, str):
        if 4 * len(value) > ATTRIBUTE_TEXT_BYTES:  # no letter has more bytes
            size = len(normalise(value).encode())
            if size > ATTRIBUTE_TEXT_BYTES:
                return f"{size} bytes, more than {ATTRIBUTE_TEXT_BYTES}"
    elif isinstance(value, float):
        if math.isnan(value):
            return "not a number"
    elif not isinstance(value, bool | datetime):
        if not isinstance(value, int):
            return f"of the type {type(value).__name__}"
        if not -(1 << 63) <= value < 1 << 63:
            return "beyond 64 bits"
    return ""


def convert_value(name: str, value: Any, kind: str) -> Any:
    """Returns the value as one of the type, of its own if that is empty. Raises
    AttributeProblem."""
    try:
        made = _CONVERSIONS[kind](value) if kind else value
    except ValueError:
        problem = f"expected a {kind}, got {short(value)}"
        raise AttributeProblem(name, problem.replace("a text", "text")) from None
    if problem := find_problem(name, made):
        raise AttributeProblem(name, f"expected an attribute, got {short(made)}: {problem}")
    return normalise(made) if isinstance(made, str) else made


def check_time(value: Any) -> int:
    """Returns Unix milliseconds, of these or an ISO 8601 time, in UTC without a zone, rounded down.
    Raises ValueError."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
        return value
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MILLISECOND
    raise ValueError


def _to_number(value: Any) -> int | float:
    if isinstance(value, str) and "_" not in value:
        if _WHOLE.fullmatch(value):
            return int(value)
        return read_float(value) if _DIGIT.search(value) else float(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ValueError


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(_to_number(text))
    except ValueError:
        return False


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise ValueError


def _to_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError


def _to_time(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        return _EPOCH + check_time(value) * _MILLISECOND
    except OverflowError:
        raise ValueError from None


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "number": _to_number,
    "text": _to_text,
    "boolean": _to_boolean,
    "time": _to_time,
}


def normalise(text: str) -> str:
    """Returns text in Unicode's normal form C. A lone surrogate, which has no UTF-8, becomes
    U+FFFD."""
    data = text.encode("utf-8", "surrogatepass")
    return unicodedata.normalize("NFC", data.decode("utf-8", "replace"))


# --- JSON -------------------------------------------------------------------


def dump_payload(value: Any) -> str:
    """Returns the payload that a member is, as JSON text. Raises ValueError for NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read_float(digits: str) -> float:
    """Returns a number with a point or an exponent, as a hook of `json.loads`. Raises ValueError
    for one that would become infinite."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{short(digits)} is beyond the numbers of 64 bits")
    return number


MEMBER_CHARS = 200
"""Most characters of the name of a member that an error tells."""


class BadNumber(str):
    """The text of a number that would become infinite, or of Infinity or NaN, which JSON lacks."""


def _keep_float(digits: str) -> float | BadNumber:
    number = float(digits)
    return BadNumber(digits) if math.isinf(number) else number


class BadNumberError(ValueError):
    """A value of JSON has a number that cannot be: `member` is its place, as `mag` or `a.b[1]`."""

    def __init__(self, member: str, problem: str) -> None:
        super().__init__(f"{member[:MEMBER_CHARS]}: {problem}" if member else problem)
        self.member = member[:MEMBER_CHARS]
        self.problem = problem


def load_record(raw: str | bytes) -> Any:
    """Returns a value of JSON. Raises BadNumberError, ValueError for what is no JSON and for a name
    that an object has twice, and RecursionError."""
    try:
        return json.loads(
            raw,
            object_pairs_hook=build_record,
            parse_float=read_float,
            parse_constant=_refuse_constant,
        )
    except ValueError:
        check_numbers(load_with_bad_numbers(raw))  # again, to name the member
        raise


def load_with_bad_numbers(raw: str | bytes) -> Any:
    """Returns a value of JSON in which numbers that cannot be are BadNumber, which `check_numbers`
    finds. Raises as `load_record` for all else."""
    return json.loads(
        raw, object_pairs_hook=build_record, parse_float=_keep_float, parse_constant=BadNumber
    )


def check_numbers(value: Any) -> None:
    """Raises BadNumberError for the first BadNumber in a value of JSON."""
    if found := _find_bad_number(value, ""):
        member, number = found
        if number.lstrip("-").isalpha():
            raise BadNumberError(member, f"{number} is not a number of JSON")
        raise BadNumberError(member, f"{short(str(number))} is beyond the numbers of 64 bits")


def _find_bad_number(value: Any, member: str) -> tuple[str, BadNumber] | None:
    if isinstance(value, BadNumber):
        return member, value
    if isinstance(value, Mapping):
        parts = ((f"{member}.{name}" if member else name, v) for name, v in value.items())
    elif isinstance(value, list):
        parts = ((f"{member}[{i}]", v) for i, v in enumerate(value))
    else:
        return None
    return next(filter(None, (_find_bad_number(v, name) for name, v in parts)), None)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def build_record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object of JSON, as a hook of `json.loads`. Raises ValueError for a name that it
    has twice, of which one value would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, times = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the name {short(twice)} occurs {times} times in one object")
    return found
