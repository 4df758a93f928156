"""The cursors of streams and pages over HTTP: opaque, and of one identity and one session.

A cursor is the place in a session that the service's own cursors name, the name of the session or
of the query that was made for the stream, and a keyed digest of all that. The key comes from the
caller's token alone. So a cursor outlives the map that gave it, and of another token it is unknown.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import hmac
import struct

from google.protobuf.message import DecodeError

from ps2stream.errors import NotFound
from ps2stream.v1 import delivery_pb2

MAX_TEXT = 512
"""Characters of the longest cursor that is looked at."""
_DIGEST = 12
_PLACE = struct.Struct(">BQQQ")
_EPHEMERAL, _SESSION = 1, 2
UNKNOWN = "the cursor is not known here, or its query has ended; begin anew without it"
"""What is said of every cursor that leads nowhere, whatever the reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class StreamCursor:
    """A place in a session. `name` is that of the session, or the id of an `ephemeral` query;
    `place` is the service's cursor, and `number` that of the last match that was dealt with."""

    name: str
    ephemeral: bool
    place: bytes

    @property
    def number(self) -> int:
        return delivery_pb2.Cursor.FromString(self.place).session_seq


class CursorWriter:
    """Writes the cursors of one stream. `key` belongs to the identity."""

    def __init__(self, key: bytes, name: str, ephemeral: bool, place: bytes) -> None:
        self._key = key
        self._name = name.encode()
        self._kind = _EPHEMERAL if ephemeral else _SESSION
        kept = delivery_pb2.Cursor.FromString(place)
        self._of = kept.incarnation, kept.session

    def write(self, number: int) -> str:
        """Returns the cursor behind the match of this number."""
        incarnation, session = self._of
        data = _PLACE.pack(self._kind, incarnation, session, number) + self._name
        return base64.urlsafe_b64encode(_digest(self._key, data) + data).decode().rstrip("=")

    def write_id(self, number: int) -> str:
        """Returns a name of the match of this number that stays the same whoever receives it."""
        incarnation, session = self._of
        return f"{incarnation:x}-{session:x}-{number}"


def read_cursor(key: bytes, text: str) -> StreamCursor:
    """Reads a cursor. Raises NotFound for any that was not written with this key."""
    try:
        if not text.isascii() or len(text) > MAX_TEXT:
            raise NotFound(UNKNOWN)
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        digest, data = raw[:_DIGEST], raw[_DIGEST:]
        if not hmac.compare_digest(digest, _digest(key, data)):
            raise NotFound(UNKNOWN)
        kind, incarnation, session, number = _PLACE.unpack_from(data)
        name = data[_PLACE.size :].decode()
        place = delivery_pb2.Cursor(incarnation=incarnation, session_seq=number, session=session)
    except (binascii.Error, struct.error, UnicodeError, ValueError, DecodeError):
        raise NotFound(UNKNOWN) from None
    return StreamCursor(name, kind == _EPHEMERAL, place.SerializeToString())


def write_page(key: bytes, session: str, token: str) -> str:
    """Returns the cursor of a page of a session's queries, "" for those of all sessions: the
    service's token, and a digest by the key of the identity."""
    data = f"{session}\n{token}".encode("utf-8", "replace")
    digest = hashlib.blake2b(data, digest_size=12, key=key, person=b"ps2s-page")
    return f"{token}-{digest.hexdigest()}"


def read_page(key: bytes, session: str, cursor: str) -> str:
    """Returns the service's token of a cursor, "" of an empty one. Raises NotFound for any that
    `write_page` did not write with this key and session."""
    token = cursor.rpartition("-")[0]
    written = write_page(key, session, token).encode("utf-8", "replace")
    if cursor and not hmac.compare_digest(written, cursor.encode("utf-8", "replace")):
        raise NotFound("the cursor (after) is not known here; begin anew without it")
    return token


def _digest(key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST, key=key, person=b"ps2s-cursor").digest()
