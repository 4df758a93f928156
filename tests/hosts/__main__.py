"""`python -m tests.hosts cut kill "kill amid a move"`: these faults, in this order."""

from __future__ import annotations

import json
import signal
import sys

from tests.hosts.run import run
from tests.support.postgres_server import installed, server

signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
programs = installed()
if programs is None:
    raise SystemExit("there is no PostgreSQL here (Debian: apt-get install postgresql)")
with server(programs) as postgres:
    found = run(postgres, sys.argv[1:])
print(json.dumps(found, indent=1, default=str))  # noqa: T201
sys.exit(not found["held"])
