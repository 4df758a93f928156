"""Writes docs/reference/api.md from a descriptor set: python scripts/api_docs.py FILE

`protoc --descriptor_set_out=FILE --include_source_info`, which scripts/protos.sh runs, writes
FILE. Needs protobuf alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

DOCS = Path(__file__).resolve().parent.parent / "docs" / "reference" / "api.md"
BEGIN = "<!-- of the comments in protos/, written by scripts/api_docs.py -->\n"
SERVICE, MESSAGE, ENUM = 6, 4, 5  # fields of FileDescriptorProto
METHOD, FIELD, VALUE = 2, 2, 2  # fields of the messages in these
_ERROR = re.compile(r"([A-Z_]+): ")
Comments = dict[tuple[int, ...], str]


def reference(files: FileDescriptorSet) -> str:
    """Returns the generated part of docs/reference/api.md."""
    own_files = (file for file in files.file if file.package == "ps2stream.v1")
    found = [
        (file, _collect_comments(file))
        for file in sorted(own_files, key=lambda f: "admin" in f.name)
    ]
    parts = [BEGIN]
    for file, comments in found:
        for at, service in enumerate(file.service):
            parts.append(
                f"\n## ps2stream.v1.{service.name}\n{_render_prose(comments[SERVICE, at])}"
            )
            for i, method in enumerate(service.method):
                parts.append(_render_method(method, comments[SERVICE, at, METHOD, i]))
    for file, comments in found:
        parts.append(f"\n## {Path(file.name).name}\n")
        for at, message in enumerate(file.message_type):
            parts.append(_render_message(message, (MESSAGE, at), comments))
        for at, enum in enumerate(file.enum_type):
            parts.append(_render_enum(enum, (ENUM, at), comments))
    return "".join(parts)


def _collect_comments(file: FileDescriptorProto) -> Comments:
    """Returns the comment before each element, by its path; a missing one is a KeyError later."""
    return {
        tuple(place.path): place.leading_comments
        for place in file.source_code_info.location
        if place.leading_comments
    }


def _render_method(method: MethodDescriptorProto, comment: str) -> str:
    takes, gives = (
        f"{'stream of ' * many}{_render_link(kind)}"
        for many, kind in (
            (method.client_streaming, method.input_type),
            (method.server_streaming, method.output_type),
        )
    )
    return f"\n### {method.name}\n\n{takes} → {gives}\n{_render_prose(comment)}"


def _render_message(message: DescriptorProto, path: tuple[int, ...], comments: Comments) -> str:
    out = f"\n### {message.name}\n{_render_prose(comments[path])}"
    if not message.field:
        return f"{out}\nIt has no fields.\n"
    out += "\n| field | type | |\n|---|---|---|\n"
    for i, field in enumerate(message.field):
        comment = " ".join(comments[(*path, FIELD, i)].split())
        if field.HasField("oneof_index") and not field.proto3_optional:
            comment = f"(one of `{message.oneof_decl[field.oneof_index].name}`) {comment}"
        out += f"| `{field.name}` = {field.number} | {_render_type(field, message)} | {comment} |\n"
    return out


def _render_enum(enum: EnumDescriptorProto, path: tuple[int, ...], comments: Comments) -> str:
    out = f"\n### {enum.name}\n{_render_prose(comments[path])}\n| value | |\n|---|---|\n"
    for i, value in enumerate(enum.value):
        comment = " ".join(comments[(*path, VALUE, i)].split())
        out += f"| `{value.name}` = {value.number} | {comment} |\n"
    return out


def _render_type(field: FieldDescriptorProto, of: DescriptorProto) -> str:
    for nested in of.nested_type:
        if nested.options.map_entry and field.type_name.endswith(f".{nested.name}"):
            key, value = (_render_type(inner, nested) for inner in nested.field)
            return f"map of {key} to {value}"
    if field.type_name:
        name = _render_link(field.type_name)
    else:
        name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {name}"
    return f"optional {name}" if field.proto3_optional else name


def _render_link(kind: str) -> str:
    name = kind.rpartition(".")[2]
    return f"[{name}](#{name.lower()})"


def _render_prose(comment: str) -> str:
    """Renders paragraphs; lines that begin like `NOT_FOUND: ...` become a list."""
    out = ""
    for paragraph in re.split(r"\n\s*\n", comment.strip()):
        block = list(_join_lines(paragraph))
        out += "\n" + "".join(
            f"- `{line[1]}`: {text[line.end() :]}\n"
            if (line := _ERROR.match(text))
            else f"{text}\n" + "\n" * (len(block) > 1)
            for text in block
        )
    return out


def _join_lines(paragraph: str) -> Iterator[str]:
    """Yields lines that belong together, as one."""
    held: list[str] = []
    for line in map(str.strip, paragraph.split("\n")):
        if _ERROR.match(line) and held:
            yield " ".join(held)
            held = []
        held.append(line)
    yield " ".join(held)


if __name__ == "__main__":
    head = DOCS.read_text("utf-8").split(BEGIN)[0]
    files = FileDescriptorSet.FromString(Path(sys.argv[1]).read_bytes())
    DOCS.write_text(head + reference(files), "utf-8")
