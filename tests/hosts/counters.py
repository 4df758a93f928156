"""What a service over hosts has used so far: CPU time by role, bytes between hosts by role, and
PostgreSQL's write-ahead log."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import psycopg

from tests.hosts.cluster import Hosts
from tests.support.postgres_server import Server

POSTGRES, CLIENTS, RAY, COMMANDS = "PostgreSQL", "clients", "Ray", "commands"
_TICK = os.sysconf("SC_CLK_TCK")
_PID = re.compile(r"pid=(\d+)")
_SENT, _RECEIVED = (re.compile(rf"bytes_{what}:(\d+)") for what in ("sent", "received"))
_MAPPED = "[::ffff:"  # what IPv4 addresses begin with where a socket takes both kinds


class Endpoint(NamedTuple):
    """An end of a TCP connection."""

    host: str
    port: str


class Traffic(NamedTuple):
    """Payload bytes of a connection that a process has sent and received so far."""

    role: str
    sent: int
    received: int


Traffics = Mapping[tuple[Endpoint, Endpoint], Traffic]
"""By the local and the other end."""


class Reading(NamedTuple):
    """The counters at one moment. cpu_s: by role; wire: bytes that the interfaces of all hosts
    have sent, headers included, 0 where hosts have none of their own; wal: bytes of the
    write-ahead log, 0 without PostgreSQL."""

    cpu_s: Mapping[str, float]
    traffics: Traffics
    wire: int
    wal: int


def read_counters(hosts: Hosts, postgres: Server | None) -> Reading:
    """Returns the counters of the processes that live now."""
    roles: dict[int, str] = {}
    for machine in hosts.machines:
        actors = machine.shells()
        roles |= {pid: actors.get(pid) or _name_role(pid) for pid in machine.pids()}
    wal = 0
    if postgres is not None:
        roles |= dict.fromkeys(_with_children(postgres.pid), POSTGRES)
        with psycopg.connect(postgres.url) as connection:
            found = connection.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
            wal = int(found[0]) if found else 0
    cpu_s: dict[str, float] = {}
    for pid, role in roles.items():
        cpu_s[role] = cpu_s.get(role, 0.0) + _read_cpu_s(pid, role == POSTGRES)
    traffics: dict[tuple[Endpoint, Endpoint], Traffic] = {}
    for host in range(len(hosts.net.hosts)):
        traffics |= _read_traffics(hosts.net.within(host), roles)
    return Reading(cpu_s, traffics, hosts.net.sent_bytes(), wal)


def cpu_between(before: Reading, after: Reading) -> dict[str, float]:
    """Returns the CPU seconds by role; those of a process that ended meanwhile are left out."""
    return {role: max(s - before.cpu_s.get(role, 0.0), 0.0) for role, s in after.cpu_s.items()}


def bytes_between(before: Traffics, after: Traffics) -> dict[str, int]:
    """Returns the bytes between different hosts, "from > to" of roles. A connection of a process
    that was not looked at, as a client's, is known by its other end."""
    found: Counter[str] = Counter()
    for ends, now in after.items():
        here, there = ends
        if here.host == there.host:
            continue
        was = before.get(ends, Traffic(now.role, 0, 0))
        other = after.get((there, here))
        role = CLIENTS if other is None else other.role
        found[f"{now.role} > {role}"] += now.sent - was.sent
        if other is None:
            found[f"{role} > {now.role}"] += now.received - was.received
    return dict(found)


def _name_role(pid: int) -> str:
    """Returns the role of a process that is no actor: a command of ours, or a part of Ray."""
    words = _read(Path(f"/proc/{pid}/cmdline")).split("\0")
    return COMMANDS if "ps2stream" in words else RAY


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    for child in _read(Path(f"/proc/{pid}/task/{pid}/children")).split():
        yield int(child)


def _read_cpu_s(pid: int, with_ended: bool) -> float:
    """Returns the CPU time of a process, on demand with that of its children that have ended."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_ended else 13])) / _TICK


def _read(path: Path) -> str:
    """Returns what a file of /proc says; nothing once the process is gone."""
    with contextlib.suppress(OSError):
        return path.read_text("utf-8", "replace")
    return ""


def _read_traffics(
    within: list[str], roles: Mapping[int, str]
) -> dict[tuple[Endpoint, Endpoint], Traffic]:
    done = subprocess.run(
        [*within, "ss", "-HtnipO", "state", "established"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(parse_connections(done.stdout, roles))


def parse_connections(
    table: str, roles: Mapping[int, str]
) -> Iterator[tuple[tuple[Endpoint, Endpoint], Traffic]]:
    """Yields the connections of the processes in `roles`, of the lines that `ss` prints."""
    for line in table.splitlines():
        pid = _PID.search(line)
        if pid is None or (role := roles.get(int(pid[1]))) is None:
            continue
        ends = [_read_end(word) for word in line.split()[2:4]]
        sent, received = (
            int(match[1]) if (match := what.search(line)) else 0 for what in (_SENT, _RECEIVED)
        )
        yield (ends[0], ends[1]), Traffic(role, sent, received)


def _read_end(word: str) -> Endpoint:
    host, _, port = word.rpartition(":")
    if host.startswith(_MAPPED):
        host = host.removeprefix(_MAPPED).removesuffix("]")
    return Endpoint(host, port)
