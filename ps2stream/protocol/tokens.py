"""Tokens: `ps2s_<id>_<secret>`, of which only a SHA-256 of the secret is kept.

The secret is 256 random bits, so a slow hash would gain nothing: there is no list of likely
secrets to try.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ps2stream.protocol.frame import U8, Frame
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.security import TENANT, AccessScope

ID_BYTES = 8
SECRET_BYTES = 32
MAX_TOKENS = 10_000
_FORM = re.compile(rf"ps2s_([0-9a-f]{{{2 * ID_BYTES}}})_([0-9a-f]{{{2 * SECRET_BYTES}}})")
_NOBODY = bytes(32)


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """A token as it is kept. Times are Unix milliseconds; expires_ms 0: it never expires."""

    id: str
    digest: bytes
    tenant: str
    scopes: frozenset[AccessScope]
    created_ms: int
    expires_ms: int = 0

    def expired(self, now_ms: int) -> bool:
        """Returns whether the token is no longer valid."""
        return 0 < self.expires_ms <= now_ms


@dataclasses.dataclass(frozen=True, eq=False)
class TokensRequest(Frame):
    """dispatcher -> sequencer: requests that the tokens `add` (as `encode` writes them) be kept
    and the one of the id `drop` be dropped, and what tokens there are then. Both may be empty."""

    KIND = 60
    dispatcher: int
    seq: int
    add: U8
    drop: U8


@dataclasses.dataclass(frozen=True, eq=False)
class TokensReply(Frame):
    """sequencer -> dispatcher: returns a Status, and the tokens that there are now."""

    KIND = 61
    seq: int
    status: int
    tokens: U8


class NewToken(NamedTuple):
    """A new token, and the text to show once."""

    token: Token
    text: str


def make(
    random: bytes, tenant: str, scopes: frozenset[AccessScope], created_ms: int, expires_ms: int = 0
) -> NewToken:
    """Makes a token from ID_BYTES + SECRET_BYTES random bytes of the operating system."""
    if len(random) != ID_BYTES + SECRET_BYTES:
        raise ValueError(f"{len(random)} random bytes")
    id_, secret = random[:ID_BYTES].hex(), random[ID_BYTES:]
    token = Token(id_, _hash_secret(secret), tenant, scopes, created_ms, expires_ms)
    return NewToken(token, f"ps2s_{id_}_{secret.hex()}")


def made_elsewhere(
    text: str, tenant: str, scopes: frozenset[AccessScope], created_ms: int
) -> Token:
    """Returns the token of this text. Raises ValueError, without showing the text, for one of
    another form or with digits that cannot be random."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError(
            f"expected ps2s_, {2 * ID_BYTES} hexadecimal digits, _ and {2 * SECRET_BYTES} more"
        )
    if len(set(form[2])) < 8:
        raise ValueError("its digits are not random")
    return Token(form[1], _hash_secret(bytes.fromhex(form[2])), tenant, scopes, created_ms)


def changed(
    held: Sequence[Token], add: Sequence[Token], drop: str
) -> tuple[UpdateStatus, Sequence[Token]]:
    """Returns the status and the tokens after a change; the same tokens where it is refused, or
    where nothing is to change."""
    if not add and not drop:
        return UpdateStatus.OK, held
    taken = {token.id for token in held}
    if drop and drop not in taken:
        return UpdateStatus.NOT_FOUND, held
    if any(token.id in taken for token in add):
        return UpdateStatus.ALREADY_EXISTS, held
    if add and len(held) + len(add) > MAX_TOKENS:
        return UpdateStatus.RESOURCE_EXHAUSTED, held
    return UpdateStatus.OK, [token for token in held if token.id != drop] + list(add)


class TokenIndex:
    """A table of tokens by id."""

    def __init__(self, tokens: Sequence[Token] = ()) -> None:
        self._by_id = {token.id: token for token in tokens}

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, id: str) -> Token | None:
        return self._by_id.get(id)

    def bearer(self, text: str) -> Token | None:
        """Returns the token that `text` is the secret of, whether it has expired or not."""
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        token = self._by_id.get(form[1])
        # An unknown id costs what a wrong secret does.
        kept = _NOBODY if token is None else token.digest
        good = hmac.compare_digest(kept, _hash_secret(bytes.fromhex(form[2])))
        return token if good else None


def encode(tokens: Sequence[Token]) -> bytes:
    """Returns the tokens as JSON, for messages and files."""
    rows = []
    for token in tokens:
        row: dict[str, Any] = {f: getattr(token, f) for f in Token.__slots__}
        rows.append(row | {"digest": token.digest.hex(), "scopes": sorted(token.scopes)})
    return json.dumps(rows, separators=(",", ":")).encode()


def decode(data: bytes) -> list[Token]:
    """Reads the tokens that `encode` wrote. Raises ValueError for anything else."""
    try:
        return [_read_token(**row) for row in json.loads(data)]
    except (TypeError, RecursionError) as error:
        raise ValueError(f"no tokens: {error}") from None


def _read_token(
    id: str, digest: str, tenant: str, scopes: list[str], created_ms: int, expires_ms: int
) -> Token:
    if not re.fullmatch("[0-9a-f]{16}", id) or (tenant and not TENANT.fullmatch(tenant)):
        raise ValueError("a token's id or tenant is invalid")
    hashed = bytes.fromhex(digest)
    if len(hashed) != len(_NOBODY):
        raise ValueError("a token's digest is invalid")
    found = frozenset(AccessScope(scope) for scope in scopes)
    return Token(id, hashed, tenant, found, int(created_ms), int(expires_ms))


def _hash_secret(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
