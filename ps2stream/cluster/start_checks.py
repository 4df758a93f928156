"""What would end a start on this host, found before the seconds that Ray and the kernels take.

Each is checked again by whoever opens it, since another program may come in between.
"""

from __future__ import annotations

import time

from ps2stream.cluster.private_folder import end_abandoned
from ps2stream.cluster.running_service import ports
from ps2stream.config import Settings
from ps2stream.errors import DataDirectoryError, InvalidArgument
from ps2stream.service.endpoint_checks import check_endpoint
from ps2stream.store.directory import lock_directory

RELEASE_S = 1.0
"""How long the system may take to free what a process held that has been killed."""
PAUSE_S = 0.05


def check_start(settings: Settings) -> None:
    """Checks the ports, the TLS files and the lock of the data directory, once no process of a
    killed service is left. Of a service on other hosts as well it checks nothing. Raises
    InvalidArgument, naming the setting, and DataDirectoryError."""
    if settings.ray_address is not None:
        return
    patience_s = RELEASE_S if end_abandoned(holds_sockets=True) else 0.0
    deadline = time.monotonic() + patience_s
    while True:
        try:
            _check_once(settings)
            break
        except (InvalidArgument, DataDirectoryError):
            if time.monotonic() >= deadline:
                raise
        time.sleep(PAUSE_S)


def _check_once(settings: Settings) -> None:
    for port in ports(settings):
        check_endpoint(settings.host, port, settings.security)
    if settings.database_url is None:
        lock_directory(settings.data_dir.absolute()).close()
