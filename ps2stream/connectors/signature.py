"""Signatures of webhooks, after Standard Webhooks 1.0: HMAC-SHA256 of id, time and body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path

from ps2stream.errors import invalid

PREFIX = "whsec_"
KEY_BYTES = range(24, 65)


def read_secrets(path: Path) -> list[bytes]:
    """Reads the keys of a file: a secret a line, `whsec_` and base64, the first the newest. With
    more than one, receivers may have either. Raises InvalidArgument, never showing one."""
    try:
        lines = path.read_text("utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot read {path}: {getattr(error, 'strerror', error)}"
        raise invalid("secret_file", problem) from None
    keys = []
    for number, line in enumerate(lines, 1):
        try:
            key = base64.b64decode(line.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            key = b""
        if len(key) not in KEY_BYTES:
            problem = f"{path}: secret {number}: expected {PREFIX} and base64 of 24 to 64 bytes"
            raise invalid("secret_file", problem)
        keys.append(key)
    if not keys:
        raise invalid("secret_file", f"{path} holds no secret")
    return keys


def signed(keys: Sequence[bytes], id: str, at: int, body: bytes) -> dict[str, str]:
    """Returns the three headers of a message. at: Unix seconds of this attempt."""
    what = b"%s.%d.%s" % (id.encode(), at, body)
    digests = (hmac.new(key, what, hashlib.sha256).digest() for key in keys)
    signatures = " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": signatures,
    }
