"""What guards a service's port: TLS, who may do what, and how much. Values, no I/O."""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

TENANT_BYTES = 64
TENANT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,63})")
"""A tenant's name. The empty one is the default tenant, which data directories had before."""

TenantName = Annotated[str, StringConstraints(pattern=rf"^(?:{TENANT.pattern})?$")]


class Scope(enum.StrEnum):
    """What an identity may do."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"  # insert, see and delete queries, and take their matches
    ADMIN = "admin"  # look after the whole service, all tenants


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Identity(_Value):
    """What the bearer of a client certificate is: `[identities."spiffe://example.org/feed"]`."""

    tenant: TenantName = ""
    scopes: frozenset[Scope] = Field(min_length=1)


class Security(_Value):
    """The guard of a port, as `Settings` has checked it."""

    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    auth: bool = False
    identities: Mapping[str, Identity] = {}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`. Raises ValueError when it is neither an IP
    address nor localhost."""
    return host == "localhost" or ipaddress.ip_address(host).is_loopback
