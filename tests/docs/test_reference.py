"""The generated pages of reference are what their sources say."""

from __future__ import annotations

import re
from pathlib import Path

from google.protobuf.descriptor import Descriptor, EnumDescriptor, ServiceDescriptor

from ps2stream.config import Settings
from ps2stream.service.auth import RULES
from ps2stream.v1 import (
    admin_pb2,
    delivery_pb2,
    explain_pb2,
    object_pb2,
    pubsub_pb2,
    query_pb2,
)
from scripts import python_docs

FILES = (query_pb2, object_pb2, pubsub_pb2, delivery_pb2, explain_pb2, admin_pb2)
SERVICES: list[ServiceDescriptor] = [
    service for file in FILES for service in file.DESCRIPTOR.services_by_name.values()
]
MESSAGES: list[Descriptor] = [
    message for file in FILES for message in file.DESCRIPTOR.message_types_by_name.values()
]
ENUMS: list[EnumDescriptor] = [
    enum for file in FILES for enum in file.DESCRIPTOR.enum_types_by_name.values()
]


def sections(root: Path) -> dict[str, str]:
    """docs/reference/api.md by its third headings."""
    text = (root / "docs" / "reference" / "api.md").read_text("utf-8")
    parts = re.split(r"^### (\w+)$", text, flags=re.MULTILINE)[1:]
    assert len(set(parts[::2])) == len(parts) // 2, "two things of one name have one anchor"
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_api_reference_has_all_and_nothing_else(root: Path) -> None:
    told = sections(root)
    methods = {method.name for service in SERVICES for method in service.methods}
    assert set(told) == methods | {m.name for m in MESSAGES} | {e.name for e in ENUMS}
    for message in MESSAGES:
        rows = re.findall(
            r"^\| `(\w+)` = (\d+) \| [^|]+ \| [^|]+ \|$", told[message.name], re.MULTILINE
        )
        assert rows == [(f.name, str(f.number)) for f in message.fields], message.name
    for enum in ENUMS:
        rows = re.findall(r"^\| `(\w+)` = (\d+) \| [^|]+ \|$", told[enum.name], re.MULTILINE)
        assert rows == [(v.name, str(v.number)) for v in enum.values], enum.name


def test_every_file_names_one_package_of_each_language() -> None:
    """protoc-gen-go refuses a file without go_package; Java would get one outer class a file."""
    for file in FILES:
        options = file.DESCRIPTOR.GetOptions()
        assert options.go_package == "ps2stream/v1;ps2streamv1", file.DESCRIPTOR.name
        assert options.java_package == "com.ps2stream.v1", file.DESCRIPTOR.name
        assert options.java_multiple_files, file.DESCRIPTOR.name


def test_each_method_names_the_scope_that_the_guard_asks_for(root: Path) -> None:
    told = sections(root)
    for service in SERVICES:
        for method in service.methods:
            rule = RULES[f"/{service.full_name}/{method.name}"]
            named = re.findall(r"^Scope: (\w+)\.$", told[method.name], re.MULTILINE)
            assert named == ([scope.value for scope in rule.scopes] or ["any"]), method.full_name
            assert not rule.open


def test_the_configuration_lists_the_methods_of_each_scope(root: Path) -> None:
    text = (root / "docs" / "configuration.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(publish|subscribe)` \| (.+) \|$", text, re.MULTILINE))
    for name, row in rows.items():
        needed = {path.rpartition("/")[2] for path, rule in RULES.items() if name in rule.scopes}
        assert set(re.findall(r"\w+", row)) == needed
    assert set(rows) == {"publish", "subscribe"}


def test_the_python_reference_is_that_of_the_code(root: Path) -> None:
    text = (root / "docs" / "reference" / "python.md").read_text("utf-8")
    assert text.endswith(python_docs.reference()), "run scripts/python_docs.py"


def test_the_configuration_has_every_setting_once_and_no_other(root: Path) -> None:
    text = (root / "docs" / "configuration.md").read_text("utf-8")
    table = text.partition("| setting | default | meaning |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", table, re.MULTILINE)
    assert sorted(named) == sorted(Settings.model_fields)
