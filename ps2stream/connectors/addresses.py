"""Addresses that a sink may send to: those of the Internet, of this machine, or any."""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit

from ps2stream.errors import PermissionDenied, invalid
from ps2stream.security import is_loopback

NAT64 = ipaddress.ip_network("64:ff9b::/96")
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressReach(enum.Enum):
    """Which addresses a URL may lead to."""

    PUBLIC = "public"  # those of the Internet alone: a tenant chose the URL
    USUAL = "usual"  # these, and this machine where the URL names it literally
    ANY = "any"  # private networks, too: the operator's intranet


def check_url(url: str, reach: AddressReach, field: str = "url") -> None:
    """Raises InvalidArgument unless it is https, or http to this machine where that may be reached,
    without a password; PermissionDenied for an address in it that is out of reach. A name is only
    checked once it is resolved: see check_address."""
    try:
        where = urlsplit(url)
        host, _ = where.hostname or "", where.port
    except ValueError:
        raise invalid(field, "expected an https URL") from None
    if where.scheme not in ("http", "https") or not host:
        raise invalid(field, "expected an https URL")
    if any(c <= " " or c in "\\\x7f" for c in url):
        raise invalid(field, "must not contain spaces, backslashes or control characters")
    if where.username or where.password:
        raise invalid(
            field,
            "must not contain a name or password, because other users can see the options of a "
            "command",
        )
    here = names_this_machine(url)
    if where.scheme == "http" and (reach is AddressReach.PUBLIC or not here):
        raise invalid(field, f"matches would travel in plaintext to {host}; use https")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return
    check_address(host, reach, field, here=here)


def check_address(address: str, reach: AddressReach, field: str = "url", *, here: bool) -> None:
    """Raises PermissionDenied for an address that must not be connected to. here: the URL literally
    names this machine."""
    if reach is AddressReach.ANY or is_public(address):
        return
    if reach is AddressReach.USUAL and here and ipaddress.ip_address(address).is_loopback:
        return
    remedy = "" if reach is AddressReach.PUBLIC else "; --allow-private permits it"
    raise PermissionDenied(f"{field}: leads to {address}, which is not a public address{remedy}")


def names_this_machine(url: str) -> bool:
    """Returns whether the host of a URL is localhost or a loopback address, literally."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def is_public(address: str) -> bool:
    """Returns whether an IP address is one of the Internet: not private, loopback, link-local,
    shared, multicast or reserved, and none that embeds such an IPv4 address. Raises ValueError."""
    return all(map(_is_global, _embedded(ipaddress.ip_address(address.partition("%")[0]))))


def _is_global(address: IpAddress) -> bool:
    odd = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    reserved = address.is_reserved and address not in NAT64
    return address.is_global and not (address.is_multicast or reserved or odd)


def _embedded(address: IpAddress) -> Iterator[IpAddress]:
    """Yields the address, and the IPv4 addresses to which a gateway might translate it. Of a mapped
    one only the IPv4 address counts."""
    if isinstance(address, ipaddress.IPv4Address):
        yield address
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
        return
    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in NAT64:
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
