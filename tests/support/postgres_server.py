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
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

from ps2stream.observability.process import is_running

_ROOTS = ("/usr/lib/postgresql", "/usr/local/lib/postgresql", "/opt/homebrew/opt")
USER = "tester"


def installed() -> Path | None:
    """The folder of initdb and postgres; None where there is none."""
    found = [p.parent for root in _ROOTS for p in Path(root).glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    found += [Path(on_path).resolve().parent] if on_path else []
    return max(found, default=None)


class Server:
    """Synced like one in production. Ends with its process, by id. address: listens there, too,
    for its network; within: what the command begins with, of a host of its own. `standbys`: those
    that its commits wait for (synchronous_standby_names). With `source` it is a copy of that
    server, and follows it as its standby `name`."""

    def __init__(
        self,
        programs: Path,
        folder: Path,
        address: str = "",
        within: Sequence[str] = (),
        standbys: str = "",
        source: Server | None = None,
        name: str = "",
    ) -> None:
        self.folder = folder
        self.name = name
        self._address = address
        self._within = within
        self.data = folder / "data"
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        self._as: list[str] = []
        if os.getuid() == 0:  # it refuses to run as root
            names = [entry.pw_name for entry in pwd.getpwall()]
            user = next(n for n in ("postgres", "nobody") if n in names)
            shutil.chown(folder, user)
            self._as = ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}"]
            self._as += ["--clear-groups"]
        if source is None:
            self._run("initdb", "--no-sync", "--auth=trust", f"--username={USER}",
                      "--encoding=UTF8", "--locale=C", "--data-checksums")  # fmt: skip
            if address:
                with (self.data / "pg_hba.conf").open("a") as rules:
                    rules.write("host all,replication all samenet trust\n")
            with (self.data / "postgresql.conf").open("a") as rules:
                rules.write(f"synchronous_standby_names = '{standbys}'\n")
        else:
            self._run("pg_basebackup", "--checkpoint=fast", "--no-sync", "--write-recovery-conf",
                      f"--dbname={source.stream} application_name={name}")  # fmt: skip
        self.start()

    @property
    def stream(self) -> str:
        """Where standbys connect to, as words of libpq."""
        return f"host={self._address or self.folder} user={USER}"

    def follow(self, source: Server) -> None:
        """Has a standby follow another server."""
        self.execute(
            f"ALTER SYSTEM SET primary_conninfo = '{source.stream} application_name={self.name}'"
        )
        self.execute("SELECT pg_reload_conf()")

    def promote(self, standbys: str | None = None) -> None:
        """Makes a primary of a standby, which waits for the standbys that it waits for, or for
        these."""
        if standbys is not None:
            self.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
            self.execute("SELECT pg_reload_conf()")
        self.execute("SELECT pg_promote()")

    def received(self) -> str:
        """Up to where a standby has its primary's log; the one that has most sorts last."""
        [(found,)] = self.execute(
            "SELECT lpad(to_hex(pg_wal_lsn_diff(greatest(pg_last_wal_receive_lsn(), "
            "pg_last_wal_replay_lsn()), '0/0')::bigint), 16, '0')"
        )
        return str(found)

    def await_standbys(self, count: int) -> None:
        """Until so many follow without a lag."""
        deadline = time.monotonic() + 60
        while True:
            found = self.execute(
                "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
            )
            if found[0][0] >= count:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found[0][0]} of {count} standbys follow")
            time.sleep(0.05)

    def execute(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as db:
            found = db.execute(query.encode())
            return found.fetchall() if found.description else []

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
        """kill -9 of the postmaster and of all its children; nothing if it does not run."""
        if self._process is None:
            return
        pids = self.pids
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(60)
        self._process = None
        for pid in pids[1:]:
            while is_running(pid):
                time.sleep(0.01)

    def _run(self, program: str, *words: str) -> None:
        command = [*self._as, str(self._programs / program), "-D", str(self.data), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")


@contextlib.contextmanager
def server(
    programs: Path, address: str = "", within: Sequence[str] = (), **kind: Any
) -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="ps2s-pg-"))
    try:
        found = Server(programs, folder, address, within, **kind)
        try:
            yield found
        finally:
            found.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def primary_and_standby(programs: Path) -> Iterator[tuple[Server, Server, str]]:
    """Servers a and b, each of which waits for the other when it is the primary, and the URL of
    both."""
    with ExitStack() as ending:
        first = ending.enter_context(server(programs, standbys="ANY 1 (a, b)", name="a"))
        second = ending.enter_context(server(programs, source=first, name="b"))
        for each in (first, second):
            ending.callback(each.crash)  # sooner than in order
        first.await_standbys(1)
        yield first, second, f"postgresql://{USER}@/postgres?host={first.folder},{second.folder}"
