"""Posts from an archive: the objects that a service has accepted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from ps2stream.archive.reading import read_batches
from ps2stream.posts.arrow_columns import SCHEMA
from ps2stream.posts.members import AttributeChoice
from ps2stream.v1 import object_pb2

POSTS = (*SCHEMA.names, "attributes", "payload", "until")
"""The columns of an archive that make a post."""
_EPOCH = datetime.fromtimestamp(0, UTC)


def read_archived_posts(path: str, batch: int) -> Iterator[Any]:
    """Yields record batches of SCHEMA. Raises InvalidArgument."""
    for part in read_batches(path, SCHEMA.names, batch):
        yield pa.record_batch([part.column(n).cast(SCHEMA.field(n).type) for n in SCHEMA.names],
                              schema=SCHEMA)  # fmt: skip


def read_archived_rows(
    path: str, batch: int, choice: AttributeChoice | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Yields posts as `readers.read_rows`, whose attributes are those of the objects. Raises
    InvalidArgument."""
    names = SCHEMA.names if choice is None else POSTS
    for part in read_batches(path, names, batch):
        yield make_archived_rows(part, choice)


def make_archived_rows(part: Any, choice: AttributeChoice | None) -> list[dict[str, Any]]:
    """Returns the posts of a batch with the columns POSTS; without attributes, payload and until
    if there is no choice. A choice selects attributes by name; their types stay, and times that
    Python does not have are left out."""
    posts: list[dict[str, Any]] = part.to_pylist()
    for post in posts:
        attributes, payload = post.pop("attributes", None), post.pop("payload", None)
        if post.get("until", 0) is None:
            del post["until"]
        if choice is None:
            continue
        found = _read_attributes(attributes, choice) if attributes else {}
        if found:
            post["attributes"] = found
        if payload:
            post["payload"] = _read_payload(payload)
    return posts


def _read_attributes(data: bytes, choice: AttributeChoice) -> dict[str, Any]:
    found = {}
    for name, value in object_pb2.Attributes.FromString(data).values.items():
        if choice.types is None or name in choice.types:
            choice.note_seen(name)
            kind = value.WhichOneof("value") or ""
            if kind != "time_ms":
                found[name] = getattr(value, kind)
                continue
            try:
                found[name] = _EPOCH + timedelta(milliseconds=value.time_ms)
            except OverflowError:  # a publisher may send any 64-bit time
                choice.leave_out(name, "a time beyond the years 1 to 9999")
    return dict(sorted(found.items()))


def _read_payload(data: bytes) -> Any:
    message = object_pb2.Payload.FromString(data)
    return message.bytes if message.WhichOneof("content") == "bytes" else message.json
