"""One run: a service, its clients, the faults, the verdict."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Protocol

from tests.chaos.clients import Publisher, Subscriber, Updater
from tests.chaos.faults import Faults
from tests.chaos.history import History
from tests.chaos.host import Host
from tests.chaos.moves import HOLDERS, ROLES, Mover
from tests.chaos.verdict import Verdict, expected, judge, missing, recoveries
from tests.postgres_server import Server, installed, server

DRAIN_S = 60.0
SETTLE_S = 5.0
TRIES = 3
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
) -> dict[str, Any]:
    """Figures as JSON takes them; "held" says whether the contract did. It goes on until there
    were so many `kills`. With `postgres` the service keeps everything in a server that is killed
    as well."""
    with ExitStack() as ending:
        database = ending.enter_context(_database()) if postgres else None
        options = () if database is None else (f"--database-url={database.url}",)

        def faults(host: Host, say: Say) -> dict[str, Any]:
            return _under_faults(host, (minutes, kills), seed, rate, say, database)

        return _hosted(faults, workers, ("--load-period-s=2", *options))


def sweep(seed: int, rounds: int = 1, roles: Sequence[str] = ROLES) -> dict[str, Any]:
    """A kill of each role at each step of a move, that many times, under load."""

    def kills(host: Host, say: Say) -> dict[str, Any]:
        mover = Mover(host, random.Random(seed), say)
        crowd = Crowd(host, seed, 16.0)
        try:
            for step, role in [(s, r) for _ in range(rounds) for s in HOLDERS for r in roles]:
                for _ in range(TRIES):
                    time.sleep(SETTLE_S / 5)
                    killed = mover.move(role, step)
                    mover.ended(DRAIN_S)
                    if killed:
                        break
            time.sleep(SETTLE_S)  # until the last is counted
            mover.ended(DRAIN_S)
        except TimeoutError as error:
            crowd.history.problems.append(str(error))
        verdict, moves = settled(crowd), mover.figures()
        whole = not (verdict.broken or moves["postings_missing"] or moves["postings_surplus"])
        return {"held": whole, "seed": seed, **moves, **vars(verdict)}

    return _hosted(kills, 3, ())


def _hosted(
    work: Callable[[Host, Say], dict[str, Any]], workers: int, options: tuple[str, ...]
) -> dict[str, Any]:
    """What it finds, of a service of its own."""
    with tempfile.TemporaryDirectory("", "chaos-", "/tmp") as folder:
        log = Path(folder) / "log"
        say = teller()
        with Host(Path(folder) / "data", log, workers=workers, options=options) as host:
            host.start()
            say(f"the service is ready: {', '.join(host.targets)}")
            found = work(host, say)
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
    """The clients of a service, at work from the start. `rate`: batches a second."""

    def __init__(self, host: Served, seed: int, rate: float) -> None:
        self.history = history = History(host.access)
        rest = (history, host.targets, f"{seed} ")
        sessions = ["calm 0", "calm 1", "calm 2", *(f"restless {i}" for i in range(5))]
        each = rate / (2 * host.dispatchers)
        self.updaters = [Updater(f"updater{i}", sessions, 60, 0.3, *rest) for i in range(2)]
        self.publishers = [
            Publisher(f"publisher{i}", i % host.dispatchers, each, *rest)
            for i in range(2 * host.dispatchers)
        ]
        self.subscribers = [Subscriber(s, s.startswith("restless"), *rest) for s in sessions]
        self.updaters[0].setup()
        for client in (*self.subscribers, *self.updaters, *self.publishers):
            client.start()


def settled(crowd: Crowd) -> Verdict:
    """Stop the writers, wait until everything due has come, and judge."""
    history = crowd.history
    history.stop.set()
    for publisher in crowd.publishers:
        publisher.join(60)
    for updater in crowd.updaters:
        updater.join(30)
        updater.give_up.set()
        updater.join()
    due = expected(history)
    deadline = time.monotonic() + DRAIN_S
    left = missing(history, due)
    while left and time.monotonic() < deadline:
        time.sleep(0.5)
        now = missing(history, due)
        if now < left:
            deadline = time.monotonic() + DRAIN_S
        left = now
    time.sleep(1)  # what comes twice may come late
    for subscriber in crowd.subscribers:
        subscriber.leave()
        subscriber.join(60)
    return judge(history, due)


def _database() -> AbstractContextManager[Server]:
    programs = installed()
    if programs is None:
        raise SystemExit("there is no PostgreSQL here (Debian: apt-get install postgresql)")
    return server(programs)


def _under_faults(
    host: Host,
    extent: tuple[float, int],
    seed: int,
    rate: float,
    say: Say,
    database: Server | None,
) -> dict[str, Any]:
    minutes, kills = extent
    crowd = Crowd(host, seed, rate)
    history = crowd.history
    faults = Faults(host, seed, say, database)
    try:
        time.sleep(SETTLE_S)
        faults.run(minutes * 60, kills)
        time.sleep(SETTLE_S)
        faults.mover.ended(DRAIN_S)
    except (RuntimeError, TimeoutError) as error:
        history.problems.append(str(error))
    verdict = settled(crowd)
    tally = faults.tally
    moves = faults.mover.figures()
    return {
        "held": not (verdict.broken or moves["postings_missing"] or moves["postings_surplus"]),
        "minutes": minutes,
        "seed": seed,
        "kills": dict(tally.kills),
        "kills_total": tally.kills.total(),
        "stops": dict(tally.stops),
        "restarts": dict(tally.restarts),
        **moves,
        **vars(verdict),
        "updates": sum(bool(c.inserted) + bool(c.deleted) for c in history.queries.values()),
        "recovery_s": recoveries(history, [*tally.killed, *tally.started], tally.stopped),
        "unanswered": dict(sorted(history.errors.items())),
    }
