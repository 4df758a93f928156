"""The TLS of a port: certificate, key and client CA from files, which are read again when they
change."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from typing import Any

import grpc

from ps2stream.errors import InvalidArgument, invalid
from ps2stream.security import PortSecurity

log = logging.getLogger("ps2stream.service")
Stamp = tuple[tuple[int, int, int], ...]


def credentials(security: PortSecurity) -> grpc.ServerCredentials | None:
    """Returns the port's credentials, None without a certificate. Connections that are made after
    the files were replaced get the new ones, or the old ones while those cannot be used. Raises
    InvalidArgument, naming the setting, for a file that cannot be used now."""
    if security.tls_cert is None or security.tls_key is None:
        return None
    files = _CertificateFiles(security)
    renewed: Any = files.renewed  # None is in the documentation, and not in the types
    return grpc.dynamic_ssl_server_credentials(
        files.read(), renewed, require_client_authentication=bool(security.tls_client_ca)
    )


class _CertificateFiles:
    """The PEM files of a port, and the state in which they were last read."""

    def __init__(self, security: PortSecurity) -> None:
        found = {name: getattr(security, name) for name in ("tls_cert", "tls_key", "tls_client_ca")}
        self._paths: dict[str, Path] = {k: v for k, v in found.items() if v is not None}
        self._lock = threading.Lock()
        self._stamp: Stamp = ()

    def read(self) -> grpc.ServerCertificateConfiguration:
        """Reads and checks the files."""
        self._stamp = self._stamp_files()
        held = {name: path.read_bytes() for name, path in self._paths.items()}
        self._check_files()
        pair = (held["tls_key"], held["tls_cert"])
        return grpc.ssl_server_certificate_configuration([pair], held.get("tls_client_ca"))

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Reads the files again if they changed; None means as before. gRPC calls this at each
        handshake."""
        with self._lock:
            try:
                if self._stamp_files() == self._stamp:
                    return None
                found = self.read()
            except (InvalidArgument, OSError) as error:
                log.error("the certificate was not renewed: %s", error)
                return None
        log.info("the certificate has been renewed")
        return found

    def _stamp_files(self) -> Stamp:
        # The inode counts too: a new file may have the size and the second of the old one.
        return tuple(
            (s.st_ino, s.st_mtime_ns, s.st_size) for s in starmap(_stat_file, self._paths.items())
        )

    def _check_files(self) -> None:
        """Checks the files, for gRPC itself would only report that the handshake failed."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with _name_setting("tls_cert, tls_key", "do not belong together, or are not in PEM"):
            context.load_cert_chain(self._paths["tls_cert"], self._paths["tls_key"], password="")
        if (authority := self._paths.get("tls_client_ca")) is not None:
            with _name_setting("tls_client_ca", "is not in PEM"):
                context.load_verify_locations(authority)


def _stat_file(name: str, path: Path) -> os.stat_result:
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno())
    except OSError as error:
        raise invalid(name, f"{path}: {error.strerror}") from None


@contextmanager
def _name_setting(name: str, problem: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        raise invalid(name, f"{problem} ({error.reason or error})") from None
