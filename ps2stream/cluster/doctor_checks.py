"""The checks of `ps2stream doctor`, which change nothing."""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from ps2stream.cluster.running_service import place_of, ports
from ps2stream.config import Settings
from ps2stream.errors import (
    DataDirectoryError,
    FailedPrecondition,
    Ps2StreamError,
    Unavailable,
)
from ps2stream.extras import describe_install, name_missing_extra
from ps2stream.service.endpoint_checks import try_binding
from ps2stream.store.access import find_foreign, find_obstacle
from ps2stream.store.inspection import inspect
from ps2stream.store.ledger import Ledger
from ps2stream.store.pairing import FoundLog

PYTHON = (3, 11)
SQLITE = (3, 51, 3)
"""The first version without a bug that damages write-ahead logs."""
JAVA = 17
FILES = 4096
LOW_BYTES, LOW_SHARE = 1 << 30, 0.1
SHARED_BYTES = 160 << 20
"""Ray's object store, and some more."""
_PACKAGES = ("apsw", "grpcio", "numba", "numpy", "protobuf", "pyarrow", "pyzmq")


class CheckFinding(NamedTuple):
    """The result of a check: its subject, what it found, and what to do; no advice if it is ok."""

    verdict: Literal["ok", "warn", "fail"]
    what: str
    found: str
    advice: str = ""


def check_all(settings: Settings) -> Iterator[CheckFinding]:
    """Makes all checks, those of the machine first."""
    yield check_python()
    yield check_packages(settings.runtime)
    yield check_files()
    yield check_java()
    if settings.runtime == "ray":
        yield check_shared_memory(Path("/dev/shm"))
    runs = False
    if settings.database_url is None:
        runs = is_locked(settings.data_dir)
        yield from check_directory(settings.data_dir, find_logs(settings))
    else:
        yield check_database(settings)
    if settings.log_url is not None:
        yield check_brokers(settings)
    for port in ports(settings):
        if port:
            yield check_port(settings.host, port, runs)


def check_python() -> CheckFinding:
    """Checks the version of this interpreter."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON:
        return CheckFinding("fail", "python", found, "install Python 3.11 or newer")
    return CheckFinding("ok", "python", found)


def check_packages(runtime: str) -> CheckFinding:
    """Checks the packages that the service needs, and the version of SQLite."""
    import apsw

    versions: dict[str, str] = {}
    for name in (*_PACKAGES, "ray") if runtime == "ray" else _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            extra = "server" if runtime == "ray" else "local"
            return CheckFinding("fail", "packages", f"{name} is missing", describe_install(extra))
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    library = apsw.sqlite_lib_version()
    if tuple(map(int, library.split("."))) < SQLITE:
        return CheckFinding("fail", "packages", f"SQLite {library}", "pip install -U apsw")
    return CheckFinding("ok", "packages", f"{listed}, SQLite {library}")


def check_files() -> CheckFinding:
    """Checks how many files a process may have open."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most < FILES:
        advice = f"raise it to {FILES} or more: LimitNOFILE of the systemd unit, or ulimit -n"
        return CheckFinding("warn", "open files", f"at most {most}", advice)
    return CheckFinding("ok", "open files", f"at most {most}" if most >= 0 else "any number")


def check_java() -> CheckFinding:
    """Checks the version of Java, which only planning with Spark needs."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install Java {JAVA} or newer where plans are made (`ps2stream plan`)"
    if program is None:
        return CheckFinding("warn", "java", "none", advice)
    try:
        output = subprocess.run(
            [program, "-version"], check=False, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return CheckFinding("warn", "java", f"{program} does not run: {error}", advice)
    version = re.search(r'version "(\d+)([^"]*)"', output.stderr)
    if version is None or int(version[1]) < JAVA:
        return CheckFinding("warn", "java", " ".join(output.stderr.split()[:3]) or program, advice)
    return CheckFinding("ok", "java", version[1] + version[2])


def check_shared_memory(folder: Path) -> CheckFinding:
    """Checks whether Ray has room for its object store."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        advice = 'mount a tmpfs there, or use runtime = "local"'
        return CheckFinding("fail", "shared memory", f"{folder}: {error.strerror}", advice)
    if free < SHARED_BYTES:
        advice = f"make it {SHARED_BYTES >> 20} MiB or more, with Docker by --shm-size"
        return CheckFinding("warn", "shared memory", f"{free >> 20} MiB free in {folder}", advice)
    return CheckFinding("ok", "shared memory", f"{free >> 20} MiB free in {folder}")


def check_port(host: str, port: int, runs: bool) -> CheckFinding:
    """Checks whether the port is free; with `runs` the service itself may have it."""
    if (error := try_binding(host, port)) is not None:
        if runs:
            return CheckFinding("ok", f"port {port}", "in use, and the service runs")
        advice = "stop the program that uses it (ss -ltnp lists it), or set another port"
        return CheckFinding("fail", f"port {port}", f"{host}: {error.strerror}", advice)
    return CheckFinding("ok", f"port {port}", "free")


def is_locked(folder: Path) -> bool:
    """Returns whether a service runs on the data directory."""
    try:
        with (folder / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def check_database(settings: Settings) -> CheckFinding:
    """Checks whether the database answers, and outlives the loss of its host."""
    place = place_of(settings.model_copy(update={"log_url": None, "log_config": None}))
    try:
        single_copy = place.find_single_copy()
    except (DataDirectoryError, Unavailable) as error:
        return CheckFinding("fail", "database", str(error), "see that its primary answers")
    if single_copy:
        advice = (
            "give it one, or set database_replicated if its storage is replicated otherwise; until "
            "then the loss of its disk loses what was acknowledged"
        )
        return CheckFinding("warn", "database", f"{place}: {single_copy}", advice)
    return CheckFinding("ok", "database", f"{place}, each commit on two hosts or more")


def check_brokers(settings: Settings) -> CheckFinding:
    """Checks whether the brokers answer, and keep what they acknowledge."""
    with name_missing_extra("log_url"):
        from ps2stream.store.kafka_cluster import KafkaAdmin, KafkaCluster

    vouched = settings.log_transactions_replicated
    cluster = KafkaCluster.parse(settings.log_url or "", settings.log_config, vouched)
    try:
        admin = KafkaAdmin(cluster)
        names = admin.list_logs()
        for name in names:
            admin.check_log(name)
        if names:
            admin.check_transactions()
    except Ps2StreamError as error:
        advice = "docs/configuration.md#kafka says what the brokers and their user need"
        return CheckFinding("fail", "brokers", str(error), advice)
    found = f"{cluster}: {', '.join(names) or 'no log yet'}"
    if cluster.caveat:
        return CheckFinding("warn", "brokers", f"{found}; {cluster.caveat}", "use three brokers")
    return CheckFinding("ok", "brokers", found)


def find_logs(settings: Settings) -> Callable[[], list[FoundLog]] | None:
    """Returns what finds the logs in Kafka; None where they are with the ledger."""
    if settings.log_url is None:
        return None

    def list_logs() -> list[FoundLog]:
        with name_missing_extra("log_url"):
            from ps2stream.store.kafka_cluster import KafkaAdmin, KafkaCluster
            from ps2stream.store.kafka_log import look_at_end

        cluster = KafkaCluster.parse(settings.log_url or "", settings.log_config)
        ends = {name: look_at_end(cluster, name) for name in KafkaAdmin(cluster).list_logs()}
        return [FoundLog(name, True, end, 0, found) for name, (end, found) in ends.items()]

    return list_logs


def check_directory(
    folder: Path, list_logs: Callable[[], list[FoundLog]] | None = None
) -> Iterator[CheckFinding]:
    """Checks rights, room, clock and format, and whether ledger and logs belong together;
    `list_logs` finds logs that are not in the directory."""
    if not folder.exists():
        yield CheckFinding(
            "ok", "data directory", f"{folder} does not exist yet; `serve` creates it"
        )
        yield _check_room(next(p for p in folder.absolute().parents if p.exists()))
        return
    yield (rights := _check_rights(folder))
    yield _check_room(folder)
    if rights.verdict == "fail":
        return  # this may be the cause of whatever else fails
    yield _check_clock(folder)
    if not _size_of(folder / "ledger.db"):
        if _size_of(folder / "mark"):
            found = "ledger.db is missing, but the file `mark` records what it had acknowledged"
            yield CheckFinding("fail", "ledger", found, "restore a backup (ps2stream restore)")
        else:
            yield CheckFinding("ok", "ledger", "none yet")
        return
    try:
        seen = inspect(folder, list_logs)
    except (FailedPrecondition, Unavailable) as error:
        yield CheckFinding("fail", "logs", str(error), "see that the brokers of log_url answer")
        return
    except DataDirectoryError as error:
        yield CheckFinding("fail", "ledger", str(error), "restore a backup (ps2stream restore)")
        return
    if seen.format != Ledger.FORMAT:
        found = f"format {seen.format}, but this version reads {Ledger.FORMAT}"
        yield CheckFinding("fail", "ledger", found, "use the version that wrote it")
        return
    yield CheckFinding("ok", "ledger", f"format {seen.format}, up to LSN {seen.lsn}")
    if seen.mismatches:
        advice = "restore a backup, or start once with --accept-loss"
        yield CheckFinding("fail", "logs", "; ".join(m.problem for m in seen.mismatches), advice)
    else:
        yield CheckFinding(
            "ok", "logs", f"{', '.join(seen.logs) or 'none'}: consistent with the ledger"
        )


def _size_of(path: Path) -> int:
    """Returns the bytes of a file; 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def _check_rights(folder: Path) -> CheckFinding:
    held = folder.stat()
    mode = stat.S_IMODE(held.st_mode)
    found = f"{folder}, owner {held.st_uid}, mode {mode:04o}"
    what = "data directory"
    if held.st_uid != os.geteuid():
        advice = f"run as its owner, not as {os.geteuid()}"
        return CheckFinding("fail" if os.geteuid() else "warn", what, found, advice)
    if (obstacle := find_obstacle(folder / "lock")) is not None:
        return CheckFinding("fail", what, f"{found}: {obstacle.strerror}", "make it writable")
    if mode & 0o077 and (foreign := find_foreign(folder)):
        advice = f"use a separate directory, or run chmod 700 {folder}"
        return CheckFinding(
            "fail", what, f"{found}, contains files of other users, such as {foreign}", advice
        )
    if mode & 0o077:
        return CheckFinding(
            "warn", what, found, f"run chmod 700 {folder}; otherwise the next start does it"
        )
    return CheckFinding("ok", what, found)


def _check_room(folder: Path) -> CheckFinding:
    room = shutil.disk_usage(folder)
    found = f"{room.free >> 20} MiB of {room.total >> 20} free"
    if room.free < LOW_BYTES or room.free < LOW_SHARE * room.total:
        advice = "free some space: on a full disk inserts and objects are refused"
        return CheckFinding("warn", "disk", found, advice)
    return CheckFinding("ok", "disk", found)


def _check_clock(folder: Path) -> CheckFinding:
    """Checks the clock: one that was set back makes retention and tokens last too long."""
    ahead_s = max((p.stat().st_mtime for p in folder.iterdir()), default=0.0) - time.time()
    if ahead_s > 60:
        advice = "correct the clock (chronyc tracking, timedatectl)"
        return CheckFinding("warn", "clock", f"{ahead_s:.0f} s behind the newest file", advice)
    return CheckFinding("ok", "clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
