"""Certificates for tests: an authority, and what it signs."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Pair(NamedTuple):
    """Files in PEM."""

    cert: Path
    key: Path


class Authority:
    """A CA whose certificate is the file `ca`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(self._name, self._key.public_key())
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._number = 0
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, spiffe: str = "", file: str = "", hosts: Sequence[str] = ()) -> Pair:
        """A certificate for 127.0.0.1, localhost and other addresses with this common name, and
        perhaps a SPIFFE id; in the files `file`.pem and .key."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternative: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            *(x509.IPAddress(ipaddress.ip_address(host)) for host in ("127.0.0.1", *hosts)),
        ]
        if spiffe:
            alternative.append(x509.UniformResourceIdentifier(spiffe))
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(subject, key.public_key()).add_extension(
            x509.SubjectAlternativeName(alternative), critical=False
        )
        self._number += 1
        stem = file or f"issued-{self._number}"
        pair = Pair(self._folder / f"{stem}.pem", self._folder / f"{stem}.key")
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        pair.cert.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
