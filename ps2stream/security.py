"""The guard of a service's ports: TLS, who may do what, and how much. Values, no I/O."""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

INTAKE_BYTES = 16 << 20
"""Bytes of publications that a dispatcher has accepted and not yet routed and synced."""
QUOTA_RETRY_MS = 1000
"""Time until a retry makes sense after a tenant has reached a quota on what it has."""
DEFAULT = "default"
"""The name of the quota that fills in what a tenant's own leaves open."""
TENANT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,63})")
"""A tenant's name. The default tenant, the only one of older data directories, has an empty one."""

TenantName = Annotated[str, StringConstraints(pattern=rf"^(?:{TENANT.pattern})?$")]


class AccessScope(enum.StrEnum):
    """A permission of an identity."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"  # insert, see and delete queries, and receive their matches
    ADMIN = "admin"  # look after the whole service, all tenants


class _FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CertificateIdentity(_FrozenModel):
    """The bearer of a client certificate: `[identities."spiffe://example.org/feed"]`."""

    tenant: TenantName = ""
    scopes: frozenset[AccessScope] = Field(min_length=1)


class TenantQuota(_FrozenModel):
    """The limits of one tenant; None stands for no limit."""

    queries: int | None = Field(default=None, ge=1, description="live queries")
    sessions: int | None = Field(default=None, ge=1, description="sessions ever created")
    streams: int | None = Field(default=None, ge=1, description="open streams")
    objects_per_s: int | None = Field(default=None, ge=1, description="published objects")
    bytes_per_s: int | None = Field(
        default=None, ge=1, description="published bytes: texts, ids and 24 bytes per object"
    )


class QuotaTable(_FrozenModel):
    """The quota of each tenant: `[quotas.acme]`, over `[quotas.default]`."""

    by_tenant: Mapping[str, TenantQuota] = {}

    @property
    def limited(self) -> bool:
        """True when any tenant has a quota."""
        return bool(self.by_tenant)

    def of(self, tenant: str) -> TenantQuota:
        """Returns the quota of a tenant: its own table over the default one."""
        base = self.by_tenant.get(DEFAULT, TenantQuota())
        own = self.by_tenant.get(tenant)
        return base if own is None else base.model_copy(update=own.model_dump(exclude_unset=True))


NO_QUOTAS = QuotaTable()


class PortSecurity(_FrozenModel):
    """The guard of a port, as `Settings` has checked it."""

    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    auth: bool = False
    identities: Mapping[str, CertificateIdentity] = {}
    quotas: QuotaTable = NO_QUOTAS
    intake_bytes: int = INTAKE_BYTES
    dispatchers: int = 1
    """Number of dispatchers; each grants its share of the quotas on rates and streams."""


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches `host`. Raises ValueError when it is neither an
    IP address nor localhost."""
    return host == "localhost" or ipaddress.ip_address(host).is_loopback
