"""A PostgreSQL server of the tests' own: a data directory and a socket below /tmp."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg

_ROOTS = ("/usr/lib/postgresql", "/usr/local/lib/postgresql", "/opt/homebrew/opt")
USER = "tester"


def installed() -> Path | None:
    """The folder of initdb and postgres; None where there is none."""
    found = [p.parent for root in _ROOTS for p in Path(root).glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    found += [Path(on_path).parent] if on_path else []
    return max(found, default=None)


class Server:
    """Synced like one in production. Ends with its process, by id. address: listens there, too,
    for its network; within: what the command begins with, of a host of its own."""

    def __init__(
        self, programs: Path, folder: Path, address: str = "", within: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self._address = address
        self._within = within
        self.data = folder / "data"
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        self._as: list[str] = []
        if os.getuid() == 0:  # it refuses to run as root
            names = [entry.pw_name for entry in pwd.getpwall()]
            name = next(n for n in ("postgres", "nobody") if n in names)
            shutil.chown(folder, name)
            self._as = ["setpriv", f"--reuid={name}", f"--regid={pwd.getpwnam(name).pw_gid}"]
            self._as += ["--clear-groups"]
        self._run("initdb", "--no-sync", "--auth=trust", f"--username={USER}", "--encoding=UTF8",
                  "--locale=C", "--data-checksums")  # fmt: skip
        if address:
            with (self.data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet trust\n")
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/postgres?host={self.folder}"

    @property
    def network_url(self) -> str:
        """Its URL on other hosts."""
        return f"postgresql://{USER}@{self._address}/postgres"

    @property
    def pid(self) -> int:
        """The process that started the others."""
        assert self._process is not None
        return self._process.pid

    def start(self, fsync: str = "on") -> None:
        log = self.folder / "server.log"
        settings = {
            "listen_addresses": self._address,
            "unix_socket_directories": str(self.folder),
            "fsync": fsync,
            "shared_buffers": "32MB",
            "max_connections": "40",
            "log_min_messages": "fatal",
            "recovery_init_sync_method": "syncfs",
        }
        options = [word for k, v in settings.items() for word in ("-c", f"{k}={v}")]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*self._within, *self._as, str(self._programs / "postgres"), "-D", str(self.data),
                 *options],
                stdout=out, stderr=out, cwd="/",
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url).close()
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {log.read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self, how: int = signal.SIGINT) -> None:
        """SIGINT: sessions are ended; SIGQUIT: as a crash, without a word of farewell."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    @property
    def pids(self) -> list[int]:
        """The postmaster and its children."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [self._process.pid, *map(int, children.read_text().split())]

    def crash(self) -> None:
        """kill -9 of the postmaster and of all its children."""
        pids = self.pids
        assert self._process is not None
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(60)
        self._process = None
        for pid in pids[1:]:
            while Path(f"/proc/{pid}").exists():
                time.sleep(0.01)

    def _run(self, program: str, *words: str) -> None:
        command = [*self._as, str(self._programs / program), "-D", str(self.data), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")


@contextlib.contextmanager
def server(programs: Path, address: str = "", within: Sequence[str] = ()) -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="ps2s-pg-"))
    try:
        found = Server(programs, folder, address, within)
        try:
            yield found
        finally:
            found.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
