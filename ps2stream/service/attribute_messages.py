"""The attributes and payloads of objects that come as messages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from ps2stream.language.batch_tokenizer import check_wanted, is_always_wanted
from ps2stream.limits import ATTRIBUTES
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.opaque import OpaqueColumns, pack_opaque
from ps2stream.service.attribute_rules import (
    NAN,
    NormalText,
    OpaqueProblem,
    OpaqueRows,
    describe_count,
    describe_repeat,
    find_payload_problems,
    no_opaque,
    normalise_name,
    normalise_text,
)
from ps2stream.v1 import object_pb2

_NO_VALUE = "has no value"


def read_messages(
    rows: Sequence[object_pb2.Object], is_wanted: Callable[[], bool] = is_always_wanted
) -> OpaqueRows:
    """Returns the attributes and payloads of objects, of which unknown fields are dropped.

    Raises Cancelled once `is_wanted` reports that the caller has left.
    """
    if not any(o.HasField("attributes") or o.HasField("payload") for o in rows):
        return no_opaque()
    reader = _AttributesReader()
    attributes, payloads, problems = [b""] * len(rows), [b""] * len(rows), []
    for i, row in enumerate(rows):
        if row.HasField("attributes"):
            check_wanted(is_wanted)
            attributes[i], bad = reader.encode(row.attributes)
            problems += [OpaqueProblem(i, *each) for each in bad]
        if row.HasField("payload"):
            row.payload.DiscardUnknownFields()
            payloads[i] = row.payload.SerializeToString()
    problems += _find_payload_problems(rows)
    check_wanted(is_wanted)
    columns = OpaqueColumns(*strings_to_column(attributes), *strings_to_column(payloads))
    return OpaqueRows(*pack_opaque(columns), problems)


def encode_in_order(attributes: object_pb2.Attributes) -> bytes:
    """Returns the bytes of attributes, whose names rise as UTF-8."""
    names = sorted(attributes.values)
    if not any(after.startswith(name) for name, after in itertools.pairwise(names)):
        return attributes.SerializeToString(deterministic=True)
    # Where one name begins with another, the runtime (in C at least) writes the longer one first.
    return b"".join(
        object_pb2.Attributes(values={name: attributes.values[name]}).SerializeToString()
        for name in names
    )


class _AttributesReader:
    """Checks and normalises the attributes of objects, which mostly have the same names."""

    def __init__(self) -> None:
        self._names: dict[str, NormalText] = {}

    def encode(self, attributes: object_pb2.Attributes) -> tuple[bytes, list[tuple[str, str]]]:
        """Returns the bytes of attributes in normal form, or (field, problem) of the first one by
        name that is bad."""
        values = attributes.values
        if len(values) > ATTRIBUTES:
            return b"", [("attributes", describe_count(len(values)))]
        bad: list[tuple[str, str]] = []
        seen, changed = set(), {}
        for name, value in values.items():
            normal, problem = self._normalise_name(name)
            if problem:
                bad.append(("attributes", problem))
                continue
            if normal in seen:
                bad.append(("attributes", describe_repeat(normal)))
            seen.add(normal)
            text, problem = _check_value(value)
            if problem:
                bad.append((f"attributes.{normal}", problem))
            elif normal != name or text:
                changed[name] = normal, text
        if bad:
            return b"", [min(bad)]
        attributes.DiscardUnknownFields()
        if changed:
            attributes = _replace_entries(attributes, changed)
        return encode_in_order(attributes), []

    def _normalise_name(self, name: str) -> NormalText:
        found = self._names.get(name)
        if found is None:
            found = self._names[name] = normalise_name(name)
        return found


def _check_value(value: object_pb2.AttributeValue) -> NormalText:
    """Returns the normal form of a value that is a text in another form, or the problem with it;
    two empty strings for a good value."""
    kind = value.WhichOneof("value")
    if kind is None:
        return NormalText("", _NO_VALUE)
    if kind == "text":
        text = value.text
        found = normalise_text(text)
        return NormalText("") if found.text == text else found
    return NormalText("", NAN if kind == "number" and math.isnan(value.number) else "")


def _replace_entries(
    attributes: object_pb2.Attributes, changed: dict[str, tuple[str, str]]
) -> object_pb2.Attributes:
    """Returns attributes of which some entries, by name, have another name, and another text where
    that is not empty."""
    out = object_pb2.Attributes()
    for name, value in attributes.values.items():
        normal, text = changed.get(name, (name, ""))
        out.values[normal].CopyFrom(value)
        if text:
            out.values[normal].text = text
    return out


def _find_payload_problems(rows: Sequence[object_pb2.Object]) -> list[OpaqueProblem]:
    having = [i for i, row in enumerate(rows) if row.HasField("payload")]
    kinds = [rows[i].payload.WhichOneof("content") for i in having]
    pairs = list(zip(having, kinds, strict=True))
    problems = [OpaqueProblem(i, "payload", _NO_VALUE) for i, kind in pairs if kind is None]
    for is_json, name in ((True, "json"), (False, "bytes")):
        at = [i for i, kind in pairs if kind == name]
        column = strings_to_column(
            [rows[i].payload.json if is_json else rows[i].payload.bytes for i in at]
        )
        problems += [
            OpaqueProblem(at[k], "payload", problem)
            for k, problem in find_payload_problems(*column, is_json)
        ]
    return problems
