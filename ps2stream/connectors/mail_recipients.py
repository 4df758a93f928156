"""Who gets mail: addresses on the operator's list, and those whose owners have confirmed.

An address is confirmed by a token that was mailed to it. The token names the address, the session
and its end, and is signed, so that nobody needs to remember who was invited.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import hmac
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ps2stream.errors import FailedPrecondition, invalid

MOST_RECIPIENTS = 100
LIST_BYTES = 1 << 20
TOKEN_BYTES = 4096
VALID_S = 7 * 86_400
"""Seconds for which a token is valid."""
ADDRESS_BYTES = 254
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"({_ATOM}(?:\.{_ATOM})*)@({_LABEL}(?:\.{_LABEL})+)")
_PURPOSE = b"ps2stream mail confirmation\0"


class ConfirmedAddress(NamedTuple):
    """What a token says: an address and the session whose matches are mailed to it."""

    address: str
    session: str


def check_address(text: str, field: str) -> str:
    """Returns a plain mail address. Raises InvalidArgument; there are no addresses with quotes,
    comments, names or characters outside of ASCII, and so none that could be a header."""
    found = _ADDRESS.fullmatch(text)
    if found is None or len(text) > ADDRESS_BYTES or len(found[1]) > 64:
        raise invalid(field, f"expected a mail address such as me@example.org, got {text[:60]!r}")
    return text


def read_recipients(files: Sequence[tuple[str, Path | None]]) -> list[str]:
    """Returns the addresses of some files, each once: one a line, with comments after #. files:
    (field, path). Raises InvalidArgument."""
    found: dict[str, str] = {}
    for field, path in files:
        for number, line in enumerate(_read_lines(field, path), 1):
            if text := line.partition("#")[0].strip():
                address = check_address(text, f"{field}, line {number}")
                found.setdefault(address.lower(), address)
    if len(found) > MOST_RECIPIENTS:
        problem = f"expected at most {MOST_RECIPIENTS} addresses, got {len(found)}"
        raise invalid("recipients", problem)
    return list(found.values())


def sign_token(key: bytes, who: ConfirmedAddress, until: int) -> str:
    """Returns a token that is valid until that Unix time in seconds."""
    body = json.dumps([who.address, who.session, until], ensure_ascii=False).encode()
    return f"{_encode(body)}.{_encode(_make_digest(key, body))}"


def read_token(keys: Sequence[bytes], token: str, now: float) -> ConfirmedAddress:
    """Returns what a token says that one of the keys has signed. Raises InvalidArgument without
    showing it."""
    wrong = invalid("token", "is none that was mailed by mail-invite with one of these secrets")
    text = token.strip()
    if len(text) > TOKEN_BYTES:
        raise wrong
    try:
        body, digest = (_decode(each) for each in text.split("."))
    except (ValueError, binascii.Error):
        raise wrong from None
    if not any(hmac.compare_digest(_make_digest(key, body), digest) for key in keys):
        raise wrong
    address, session, until = json.loads(body)
    if now > until:
        raise FailedPrecondition("the token has expired; send another one by mail-invite")
    return ConfirmedAddress(address, session)


def add_confirmed(path: Path, address: str) -> bool:
    """Adds an address to a file, synced, unless it is there; returns whether it was new. Several
    processes may add at once. Raises InvalidArgument."""
    try:
        with path.open("a+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            known = {each.lower() for each in read_recipients([("confirmed", path)])}
            if address.lower() in known:
                return False
            if len(known) >= MOST_RECIPIENTS:
                raise invalid("confirmed", f"{path} has {len(known)} addresses, which is the limit")
            file.write(f"{address}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise invalid("confirmed", f"cannot write {path}: {error.strerror}") from None
    return True


def _read_lines(field: str, path: Path | None) -> list[str]:
    if path is None:
        return []
    try:
        with path.open("rb") as file:
            data = file.read(LIST_BYTES + 1)
        text = data.decode("utf-8")
    except FileNotFoundError:
        if field == "confirmed":  # nobody has, yet
            return []
        raise invalid(field, f"there is no file {path}") from None
    except OSError as error:
        raise invalid(field, f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise invalid(field, f"{path} is not UTF-8") from None
    if len(data) > LIST_BYTES:
        raise invalid(field, f"{path} has more than {LIST_BYTES} bytes")
    return text.splitlines()


def _make_digest(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, _PURPOSE + body, hashlib.sha256)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    padded = text + "=" * (-len(text) % 4)
    return base64.b64decode(padded, altchars=b"-_", validate=True)
