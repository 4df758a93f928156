"""The state of a whole service for people: how its actors are doing, and whether all is well.

A census is made from the statuses of all actors; its rates are counted since the one before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

STALE_S = 30.0
"""Age of the last census from which on the actors count as unattended."""
RECENT_S = 60.0
"""How long after a replacement it is reported as a problem."""
FREE_SHARE = 0.1
FREE_BYTES = 20_000_000_000
"""Free share and free bytes of a disk: below both it is nearly full, as in the alert
Ps2streamDiskNearlyFull. A tenth of a large disk is room for long."""
LAG_MATCHES = 100_000
"""Unacknowledged matches above which a session falls behind, as in Ps2streamSessionLag."""
Statuses = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class ActorStatus:
    """The state of an actor.

    age_s: time since its incarnation was first seen; restarts: number since the service started;
    cpu: share of a core over the last period; failure: why it does not answer, or empty.
    """

    role: str
    index: int
    epoch: int
    age_s: float
    restarts: int
    cpu: float
    resident_bytes: int
    failure: str


class ArchiveStatus(NamedTuple):
    """The state of the archive, over all dispatchers: the objects in it and the bytes of files
    that dispatchers keep; the bytes of object logs that are not in it yet; the durable objects
    that did not come into it. problems: why dispatchers cannot write, each after its name."""

    objects: int
    bytes: int
    lag_bytes: int
    lost_objects: int
    problems: tuple[str, ...]


class ServiceCensus(NamedTuple):
    """The state of the service at one moment (Unix ms).

    backlog_matches counts the matches that sessions have not acknowledged, largest_backlog_matches
    those of the session that has most; backlog_age_s is the age of the oldest. Rates are per
    second. replicated_units: of the plan, sharded_units among them; hot_changes: plan
    changes for hot units since the controller started; hot_balance: of the copies of objects, most
    over mean, 0 while unknown. archive: None if there is none. caveat: what the place of the data
    does not promise; empty if it promises all. single_copy: which durable data is on one disk only,
    and why; empty if none is. log_problems: why actors cannot write
    their logs, or the sequencer its ledger, each after the name.
    """

    taken_ms: int
    actors: tuple[ActorStatus, ...]
    sessions: int
    backlog_matches: int
    largest_backlog_matches: int
    backlog_age_s: float
    backlog_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    objects_per_second: float
    matches_per_second: float
    updates_per_second: float
    replicated_units: int
    hot_changes: int
    hot_balance: float
    sharded_units: int
    archive: ArchiveStatus | None
    caveat: str
    single_copy: str
    log_problems: tuple[str, ...] = ()


class _SeenActor(NamedTuple):
    """An actor at the last census: the epoch of its incarnation, when that was first seen
    (monotonic s), how many came before it, and its CPU time."""

    epoch: int
    since: float
    restarts: int
    cpu_seconds: float


class CensusTaker:
    """Makes a census from statuses by name (`worker-0`), and keeps what the next one needs."""

    def __init__(self) -> None:
        self._seen_before: dict[str, _SeenActor] = {}
        self._totals: dict[str, float] = {}
        self._last = 0.0

    def take(self, statuses: Statuses, now: float, now_ms: int) -> ServiceCensus:
        """Returns the census of these statuses. now: monotonic seconds; now_ms: Unix ms."""
        roles: dict[str, list[Mapping[str, Any]]] = {}
        actors = []
        for name, status in statuses.items():
            role, _, index = name.rpartition("-")
            if "up" in status or status.get("failure"):
                actors.append(self._count_actor(role, int(index), status, now))
            roles.setdefault(role, []).append(status)
        for name in self._seen_before.keys() - statuses.keys():
            del self._seen_before[name]  # a worker that a plan with fewer workers has stopped

        def total(role: str, *keys: str) -> float:
            return sum(float(s.get(key, 0)) for s in roles.get(role, ()) for key in keys)

        def highest(role: str, key: str) -> float:
            return max((float(s.get(key, 0)) for s in roles.get(role, ())), default=0.0)

        totals = {
            "objects": total("dispatcher", "objects"),
            "matches": total("worker", "matches"),
            "updates": total("sequencer", "inserts", "deletes"),
        }
        seconds = now - self._last
        # A total falls when an actor is replaced.
        rates = {
            name: max(value - self._totals[name], 0.0) / seconds
            if name in self._totals and seconds > 0
            else 0.0
            for name, value in totals.items()
        }
        self._totals, self._last = totals, now
        return ServiceCensus(
            taken_ms=now_ms,
            actors=tuple(sorted(actors)),
            sessions=int(total("merger", "sessions")),
            backlog_matches=int(total("merger", "lag")),
            largest_backlog_matches=int(highest("merger", "lag_most")),
            backlog_age_s=highest("merger", "lag_ms") / 1000,
            backlog_bytes=int(total("merger", "backlog_bytes")),
            disk_bytes=int(total("sequencer", "disk")),
            disk_free_bytes=int(total("sequencer", "disk_free")),
            objects_per_second=rates["objects"],
            matches_per_second=rates["matches"],
            updates_per_second=rates["updates"],
            replicated_units=int(highest("controller", "replicated")),
            hot_changes=int(highest("controller", "hot_changes")),
            hot_balance=highest("controller", "hot_balance"),
            sharded_units=int(highest("controller", "sharded")),
            archive=_archive_status(statuses),
            caveat=_first_text(statuses, "caveat"),
            single_copy=_first_text(statuses, "single_copy"),
            log_problems=tuple(
                f"{name} cannot write its {_name_log(name)}: {status['log_problem']}"
                for name, status in statuses.items()
                if status.get("log_problem")
            ),
        )

    def _count_actor(
        self, role: str, index: int, status: Mapping[str, Any], now: float
    ) -> ActorStatus:
        name = f"{role}-{index}"
        before = self._seen_before.get(name)
        epoch = int(status.get("epoch", before.epoch if before else 0))
        cpu_seconds = float(status.get("cpu_seconds", 0.0))
        cpu = 0.0
        if before is None or before.epoch != epoch:
            restarts = 0 if before is None else before.restarts + 1
            known = _SeenActor(epoch, now, restarts, cpu_seconds)
        else:
            if now > self._last:
                cpu = max(cpu_seconds - before.cpu_seconds, 0.0) / (now - self._last)
            known = before._replace(cpu_seconds=cpu_seconds)
        self._seen_before[name] = known
        return ActorStatus(
            role,
            index,
            epoch,
            now - known.since,
            known.restarts,
            cpu,
            int(status.get("resident_bytes", 0)),
            str(status.get("failure") or "").strip().rpartition("\n")[2],
        )


def _archive_status(statuses: Statuses) -> ArchiveStatus | None:
    found = {name: status for name, status in statuses.items() if "archived_objects" in status}
    if not found:
        return None

    def total(key: str) -> int:
        return sum(int(status[key]) for status in found.values())

    return ArchiveStatus(
        objects=total("archived_objects"),
        bytes=total("archive_bytes"),
        lag_bytes=total("archive_lag_bytes"),
        lost_objects=total("archive_lost_objects"),
        problems=tuple(
            f"{name}: {problem}"
            for name, status in sorted(found.items())
            if (problem := str(status["archive_problem"]))
        ),
    )


def _name_log(actor: str) -> str:
    return "ledger" if actor.startswith("sequencer") else "log"


def _first_text(statuses: Mapping[str, Mapping[str, Any]], name: str) -> str:
    return next((str(found[name]) for found in statuses.values() if name in found), "")


def find_problems(census: ServiceCensus | None, now_ms: int) -> list[str]:
    """Returns why a service is not healthy; empty when it is, or when there is no census yet."""
    if census is None:
        return []
    stale_s = (now_ms - census.taken_ms) / 1000
    if stale_s > STALE_S:
        return [f"the process of `ps2stream serve` has not checked the actors for {stale_s:.0f} s"]
    problems = []
    for actor in census.actors:
        name = f"{actor.role}-{actor.index}"
        if actor.failure:
            problems.append(f"{name} does not work: {actor.failure}")
        elif actor.restarts and actor.age_s < RECENT_S:
            times = "once" if actor.restarts == 1 else f"{actor.restarts} times"
            problems.append(
                f"{name} was replaced {actor.age_s:.0f} s ago, {times} since the service started"
            )
    if census.disk_free_bytes < min(FREE_SHARE * census.disk_bytes, FREE_BYTES):
        share = census.disk_free_bytes / census.disk_bytes
        problems.append(f"the disk of the data directory is nearly full: {share:.1%} is free")
    problems += census.log_problems
    if census.largest_backlog_matches > LAG_MATCHES:
        problems.append(
            f"a session has {census.largest_backlog_matches:,} unacknowledged matches, the oldest "
            f"found {census.backlog_age_s:.0f} s ago"
        )
    if census.caveat:
        problems.append(census.caveat)
    if census.archive is not None:
        problems += [f"the archive is not written by {why}" for why in census.archive.problems]
    return problems
