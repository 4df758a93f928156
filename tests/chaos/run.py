"""One run: a service, its clients, the faults, the verdict."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, Self

from ps2stream.client.client import Client
from ps2stream.cluster.ray_instance import DAEMONS
from ps2stream.errors import Ps2StreamError
from tests.chaos.clients import Asker, Publisher, Subscriber, Updater
from tests.chaos.faults import DataServer, Faults
from tests.chaos.history import History
from tests.chaos.host import READY_S, Host, send
from tests.chaos.moves import HOLDERS, ROLES, Mover
from tests.chaos.recoveries import recoveries
from tests.chaos.withdrawals import Withdrawer
from tests.history.check import check, find_due
from tests.history.reading import read
from tests.support.kafka_broker import broker, cluster
from tests.support.postgres_server import Server, installed, server

DRAIN_S = 60.0
SETTLE_S = 5.0
LEAST_MATCHES = 20
ENDED_S = 12.0
"""10 s after SIGTERM the service has ended; the rest is the system's."""
Say = Callable[[str], None]


def teller() -> Say:
    """Tells what happens on stderr, with the seconds since now."""
    begin = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - begin:7.1f} s  {what}", file=sys.stderr, flush=True)  # noqa: T201

    return say


def run(
    minutes: float,
    seed: int,
    *,
    kills: int = 0,
    workers: int = 3,
    rate: float = 16.0,
    postgres: bool = False,
    kafka: int = 0,
    hot_s: float = 0.0,
    standbys: int = 0,
    history: Path | None = None,
    often: str = "",
) -> dict[str, Any]:
    """Figures as JSON takes them; "held" says whether the contract did. It goes on until there
    were so many `kills`. With `postgres` the service keeps everything in a server that is killed
    as well; with `kafka`, 1 or 3, its logs in so many brokers, which are killed one at a time; with
    `hot_s` most of the stream is of one place and word, of another so many seconds later, and the
    service replicates such units; `often` is done five times as often. The history of the clients
    is kept at `history`, or where it shows that the contract did not hold."""
    with ExitStack() as ending:
        servers: dict[str, DataServer] = {}
        options = [f"--hot={'replicate' if hot_s else 'off'}", f"--standbys={standbys}"]
        if postgres:
            servers["database"] = database = ending.enter_context(_database())
            options.append(f"--database-url={database.url}")
        if kafka:
            found, address = ending.enter_context(_brokers(kafka))
            servers |= found
            options.append(f"--log-url={address}")

        def faults(host: Host, say: Say) -> dict[str, Any]:
            with ReplicaWatch(host.targets) as replicas:
                found = _under_faults(
                    host,
                    lambda faults: faults.run(minutes * 60, kills, often=often),
                    Crowd(host, seed, rate, hot_s, history),
                    seed,
                    say,
                    servers,
                )
            return found | {"minutes": minutes, "plans_with_replicas": len(replicas.versions)}

        return _hosted(faults, {"workers": workers}, ("--load-period-s=2", *options))


class ReplicaWatch(threading.Thread):
    """Notes the versions of those plans that have hot units."""

    def __init__(self, targets: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.versions: set[int] = set()
        self._targets = targets
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.wait(1.0):
            with (
                suppress(Ps2StreamError, TimeoutError),
                Client(self._targets[0], timeout=5) as client,
            ):
                plan = json.loads(client.plan())
                if plan.get("replicas"):
                    self.versions.add(plan["version"])


def rehearse(seed: int, hogs_s: float) -> dict[str, Any]:
    """Some of what the others do, over one service: busy programs beside it, then each fault of
    `Faults.run_each` under load."""

    def work(host: Host, say: Say) -> dict[str, Any]:
        beside = _measure_beside_hogs(host, hogs_s)
        found = _under_faults(host, Faults.run_each, Crowd(host, seed, 6.0), seed, say)
        return found | {"held": found["held"] and beside["held"], "beside_hogs": beside}

    return _hosted(work, {"workers": 2}, ("--load-period-s=2",))


def sweep(seed: int, rounds: int = 1) -> dict[str, Any]:
    """A kill of each role at each step of a move, that many times, under load."""

    def kills(host: Host, say: Say) -> dict[str, Any]:
        mover = Mover(host, random.Random(seed), say)
        crowd = Crowd(host, seed, 16.0)
        try:
            for step, role in [(s, r) for _ in range(rounds) for s in HOLDERS for r in ROLES]:
                mover.kill_at_step(role, step)
            time.sleep(SETTLE_S)  # until the last is counted
            mover.ended()
        except TimeoutError as error:
            crowd.history.recorder.complain("faults", str(error))
        verdict, moves = settled(crowd), mover.figures()
        whole = not (moves["postings_missing"] or moves["postings_surplus"])
        return {**moves, **verdict, "held": whole and verdict["held"], "seed": seed}

    return _hosted(kills, {"workers": 3}, ())


def ray_deaths(
    seed: int, rounds: int = 1, daemons: Sequence[str] = tuple(DAEMONS)
) -> dict[str, Any]:
    """Under load kill -9 of the supervisor, and, that many times, of each of these daemons of Ray;
    in the end of its GCS, and SIGTERM while the service still starts Ray again. One actor of each
    role, as each start takes a second of CPU an actor."""

    def kills(host: Host, say: Say) -> dict[str, Any]:
        crowd = Crowd(host, seed, 6.0)
        recovery_s: dict[str, list[float]] = {name: [] for name in daemons}
        time.sleep(SETTLE_S)
        Faults(host, seed, say).kill_supervisor()
        for name in [*daemons] * rounds:
            say(f"kill Ray's {name}")
            try:
                recovery_s[name].append(_kill_daemon(host, crowd.history, name))
            except TimeoutError as error:
                crowd.history.recorder.complain("faults", f"{name}: {error}")
                break
        verdict = settled(crowd)
        send(host.daemons()["gcs_server"], signal.SIGKILL)
        begun = time.monotonic()
        code = host.stop(signal.SIGTERM)
        ended_s = round(time.monotonic() - begun, 1)
        return {
            **verdict,
            "held": verdict["held"] and ended_s < ENDED_S and code in (0, 1),
            "recovery_s": recovery_s,
            "sigterm": {"seconds": ended_s, "code": code},
        }

    return _hosted(kills, {"workers": 1, "dispatchers": 1, "mergers": 1}, ())


def beside_hogs(seconds: float) -> dict[str, Any]:
    """The service beside a busy program at niceness 0 on every core: whether each actor is still
    the same, and the latency of publications and of their matches."""
    return _hosted(lambda host, _: _measure_beside_hogs(host, seconds), {"workers": 2}, ())


def _measure_beside_hogs(host: Host, seconds: float) -> dict[str, Any]:
    before, cores = host.actors(), os.cpu_count() or 1
    spin = ["nice", "-n", "0", sys.executable, "-c", "while True: pass"]
    with ExitStack() as ending:
        for _ in range(cores):
            ending.callback(_end, subprocess.Popen(spin))
        client = ending.enter_context(Client(host.targets[0], timeout=60))
        client.insert("q", "flood", session="ann")
        matches = iter(client.subscribe("ann"))
        taken_ms: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(taken_ms) < LEAST_MATCHES:
            begun = time.monotonic()
            name = f"o{len(taken_ms)}"
            client.publish([{"id": name, "text": "a flood", "lon": 1.0, "lat": 2.0}])
            if (got := next(matches).object_id) != name:
                raise RuntimeError(f"{got} came instead of {name}")
            taken_ms.append(1000 * (time.monotonic() - begun))
            time.sleep(0.05)
        after = host.actors()
    ordered = sorted(taken_ms)
    return {
        "held": before == after,
        "cores": cores,
        "replaced": sorted(name for name in before if before[name] != after.get(name)),
        "matches": len(ordered),
        "p50_ms": round(ordered[len(ordered) // 2], 1),
        "p99_ms": round(ordered[len(ordered) * 99 // 100], 1),
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _kill_daemon(host: Host, history: History, name: str) -> float:
    """Seconds until matches flowed again, through another daemon of this name. Raises
    TimeoutError."""
    begun, old = time.monotonic(), host.daemons()[name]
    send(old, signal.SIGKILL)
    _await(host, lambda: host.daemons().get(name, old) != old)
    anew = [(time.monotonic(), name)]  # until then some actors may have gone on
    _await(host, lambda: bool(recoveries(history, anew, [])["all"]))
    return round(time.monotonic() - begun, 1)


def _await(host: Host, true: Callable[[], bool]) -> None:
    """Raises TimeoutError, also when the service ends."""
    deadline = time.monotonic() + READY_S
    while not true():
        if time.monotonic() > deadline or not host.running:
            raise TimeoutError("the service did not come back")
        time.sleep(0.1)


def _hosted(
    work: Callable[[Host, Say], dict[str, Any]], shape: dict[str, int], options: tuple[str, ...]
) -> dict[str, Any]:
    """What it finds, of a service of its own."""
    with tempfile.TemporaryDirectory("", "chaos-", "/tmp") as folder:
        log = Path(folder) / "log"
        say = teller()
        with Host(Path(folder) / "data", log, options=options, **shape) as host:
            host.start()
            say(f"the service is ready: {', '.join(host.targets)}")
            found = work(host, say)
            if host.running:
                host.stop()
        if not found["held"]:
            kept = Path(tempfile.mkdtemp(prefix="chaos-log-", dir="/tmp")) / "log"
            kept.write_bytes(log.read_bytes())
            found["log"] = str(kept)
        return found


class Served(Protocol):
    """What clients need of a service: where its dispatchers are, and what they show them."""

    targets: list[str]
    access: Mapping[str, Any]

    @property
    def dispatchers(self) -> int: ...


class Crowd:
    """The clients of a service, at work from the start. `rate`: batches a second. `path`: where
    their history is to be kept."""

    def __init__(
        self, host: Served, seed: int, rate: float, hot_s: float = 0.0, path: Path | None = None
    ) -> None:
        self.history = history = History(host.access, path)
        rest = (history, host.targets, f"{seed} ")
        sessions = ["calm 0", "calm 1", "calm 2", *(f"restless {i}" for i in range(5))]
        each = rate / (2 * host.dispatchers)
        self.updaters = [Updater(f"updater{i}", sessions, 60, 0.3, *rest) for i in range(2)]
        self.updaters.append(Withdrawer("withdrawer", sessions, 0, 0.5, *rest))
        self.publishers = [
            Publisher(f"publisher{i}", i % host.dispatchers, each, hot_s, *rest)
            for i in range(2 * host.dispatchers)
        ]
        self.subscribers = [Subscriber(s, s.startswith("restless"), *rest) for s in sessions]
        self.asker = Asker("asker", *rest)
        self.updaters[0].setup()
        for client in (*self.subscribers, *self.updaters, *self.publishers, self.asker):
            client.start()


def settled(crowd: Crowd) -> dict[str, Any]:
    """Stop the writers, wait until everything due has come, and judge the history, which is kept if
    it does not hold."""
    history = crowd.history
    history.stop.set()
    for client in (*crowd.publishers, crowd.asker):
        client.join(60)
    for updater in crowd.updaters:
        updater.join(30)
        updater.give_up.set()
        updater.join()
    path = history.path
    due = find_due(read([path]))
    deadline = time.monotonic() + DRAIN_S
    left = _count_missing(history, due)
    while left and time.monotonic() < deadline:
        time.sleep(0.5)
        now = _count_missing(history, due)
        if now < left:
            deadline = time.monotonic() + DRAIN_S
        left = now
    time.sleep(1)  # what comes twice may come late
    for subscriber in crowd.subscribers:
        subscriber.leave()
        subscriber.join(60)
    history.recorder.settle()
    history.recorder.close()
    verdict = check([path]).to_dict()
    if verdict["held"] and not history.is_kept:
        path.unlink()
        return verdict
    return {**verdict, "history": str(path)}


def _count_missing(history: History, due: Mapping[str, set[tuple[int, str]]]) -> int:
    """How many of these have not come; announced gaps may hold some."""
    found = history.sessions.items()
    return sum(max(len(due[name] - seen.matches) - seen.gaps, 0) for name, seen in found)


def _database() -> AbstractContextManager[Server]:
    programs = installed()
    if programs is None:
        raise SystemExit("there is no PostgreSQL here (Debian: apt-get install postgresql)")
    return server(programs)


@contextmanager
def _brokers(count: int) -> Iterator[tuple[dict[str, DataServer], str]]:
    """The brokers by name, and the address of a service's logs there."""
    if count == 1:
        with broker() as found:
            yield {"broker": found}, f"kafka://{found.address}/chaos?development=true"
    else:
        with cluster() as three:
            names = {f"broker {i}": each for i, each in enumerate(three.brokers, 1)}
            yield {**names}, f"kafka://{three.address}/chaos"


def _under_faults(
    host: Host,
    play: Callable[[Faults], None],
    crowd: Crowd,
    seed: int,
    say: Say,
    servers: Mapping[str, DataServer] | None = None,
) -> dict[str, Any]:
    history = crowd.history
    faults = Faults(host, seed, say, servers)
    try:
        time.sleep(SETTLE_S)
        play(faults)
        time.sleep(SETTLE_S)
        faults.mover.ended()
        faults.mergers.ended()
        faults.dispatchers.ended()
    except (RuntimeError, TimeoutError) as error:
        history.recorder.complain("faults", str(error))
    verdict = settled(crowd)
    tally = faults.tally
    moves = faults.mover.figures()
    whole = not (moves["postings_missing"] or moves["postings_surplus"])
    return {
        **verdict,
        "held": verdict["held"] and whole,
        "seed": seed,
        "kills": dict(tally.kills),
        "kills_total": tally.kills.total(),
        "stops": dict(tally.stops),
        "restarts": dict(tally.restarts),
        **moves,
        "moves_of_sessions": faults.mergers.begun,
        "changes_of_dispatchers": faults.dispatchers.begun,
        "recovery_s": recoveries(history, [*tally.killed, *tally.started], tally.stopped),
        "unanswered": dict(sorted(history.errors.items())),
    }
