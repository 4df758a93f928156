"""The guard of a service's ports: TLS, who may do what, and how much. Values, no I/O.

The metadata of the fields are the constraints by which `Settings` checks tables of the settings.
"""

from __future__ import annotations

import dataclasses
import enum
import ipaddress
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ps2stream.errors import invalid

INTAKE_BYTES = 16 << 20
"""Bytes of publications that a dispatcher has accepted and not yet routed and synced."""
QUOTA_RETRY_MS = 1000
"""Time until a retry makes sense after a tenant has reached a quota on what it has."""
DEFAULT = "default"
"""The name of the quota that fills in what a tenant's own leaves open."""
TENANT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,63})")
"""A tenant's name. The default tenant, the only one of older data directories, has an empty one."""

TENANT_NAME = rf"^(?:{TENANT.pattern})?$"
"""What the name of a tenant matches, the default tenant's too."""

_ORIGIN = re.compile(r"https?://[^/?#@\s*]+")


class AccessScope(enum.StrEnum):
    """A permission of an identity."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"  # insert, see and delete queries, and receive their matches
    WITHDRAW = "withdraw"  # withdraw objects, whoever published them
    ADMIN = "admin"  # look after the whole service, all tenants


@dataclasses.dataclass(frozen=True)
class CertificateIdentity:
    """The bearer of a client certificate: `[identities."spiffe://example.org/feed"]`."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    scopes: frozenset[AccessScope] = dataclasses.field(metadata={"min_length": 1})
    tenant: str = dataclasses.field(default="", metadata={"pattern": TENANT_NAME})


def _quota_field(description: str) -> Any:
    return dataclasses.field(default=None, metadata={"ge": 1, "description": description})


@dataclasses.dataclass(frozen=True)
class TenantQuota:
    """The limits of one tenant; None stands for no limit."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    queries: int | None = _quota_field("live queries")
    sessions: int | None = _quota_field("sessions ever created")
    streams: int | None = _quota_field("open streams")
    objects_per_s: int | None = _quota_field("published objects")
    bytes_per_s: int | None = _quota_field("published bytes: texts, ids and 24 bytes per object")


@dataclasses.dataclass(frozen=True)
class QuotaTable:
    """The quota of each tenant: `[quotas.acme]`, over `[quotas.default]`."""

    by_tenant: Mapping[str, TenantQuota] = dataclasses.field(default_factory=dict)

    @property
    def limited(self) -> bool:
        """True when any tenant has a quota."""
        return bool(self.by_tenant)

    def of(self, tenant: str) -> TenantQuota:
        """Returns the quota of a tenant: its own table over the default one."""
        base = self.by_tenant.get(DEFAULT, TenantQuota())
        own = dataclasses.asdict(self.by_tenant.get(tenant, base))
        return dataclasses.replace(base, **{k: v for k, v in own.items() if v is not None})


NO_QUOTAS = QuotaTable()


@dataclasses.dataclass(frozen=True)
class PortSecurity:
    """The guard of a port, as `Settings` has checked it."""

    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    auth: bool = False
    identities: Mapping[str, CertificateIdentity] = dataclasses.field(default_factory=dict)
    quotas: QuotaTable = NO_QUOTAS
    intake_bytes: int = INTAKE_BYTES
    dispatchers: int = 1
    """Number of dispatchers; each grants its share of the quotas on rates and streams."""


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches `host`. Raises ValueError when it is neither an
    IP address nor localhost."""
    return host == "localhost" or ipaddress.ip_address(host).is_loopback


def check_web_options(
    host: str, https_cert: Path | None, https_key: Path | None, allow_origin: Iterable[str]
) -> None:
    """Checks the options of a command that serves HTTP. Raises InvalidArgument, naming the
    option."""
    try:
        local = is_loopback(host)
    except ValueError:
        raise invalid("--host", f"{host!r} is not an IP address or localhost") from None
    if (https_cert is None) != (https_key is None):
        raise invalid("--https-cert", "must be set together with --https-key")
    for origin in allow_origin:
        if not _ORIGIN.fullmatch(origin):
            raise invalid("--allow-origin", f"{origin!r} is not of the form https://HOST[:PORT]")
    if not local and https_cert is None:
        raise invalid(
            "--host", f"{host} is not a loopback address, which needs --https-cert and --https-key"
        )
