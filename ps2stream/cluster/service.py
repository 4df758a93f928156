"""The start of the whole service from its settings.

    with start(settings) as service:
        print(service.targets)

`runtime = "ray"` puts each machine into its own Ray actor; `"local"` keeps all of
them in this process. Both serve the same gRPC API.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import secrets
import threading
from collections.abc import Callable

from ps2stream.archive.layout import ArchiveLimits
from ps2stream.cluster.archive_writer import check_folder
from ps2stream.cluster.local_service import LocalService
from ps2stream.cluster.ray_service import RayService
from ps2stream.cluster.running_service import RunningService, place_of
from ps2stream.cluster.start_checks import check_start
from ps2stream.cluster.start_stages import StartStage
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm import compile_kernels, load_kernels
from ps2stream.config import Settings
from ps2stream.controller.policy import ControllerPolicy
from ps2stream.errors import DataDirectoryError, PlanError
from ps2stream.foldings import read_foldings
from ps2stream.language.analyzer import Analysis
from ps2stream.planner.adjust.decide import Rules
from ps2stream.planner.adjust.strategy import HOUR_MS, CoexistenceLimit
from ps2stream.protocol.ticks import TICK_S
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import RoutingPlan, built_in_plan
from ps2stream.routing.plan_file import load_plan
from ps2stream.space.grid import Grid

log = logging.getLogger("ps2stream.cluster")


def start(
    settings: Settings,
    plan: RoutingPlan | None = None,
    stopping: threading.Event | None = None,
    accept_loss: bool = False,
    begin_stage: Callable[[StartStage], None] = lambda _: None,
) -> RunningService:
    """Starts everything, replays the ledger, and serves.

    `plan` overrides `settings.plan`; once `stopping` is set, hosts are not waited for;
    `accept_loss` goes on without what the data directory lacks, and announces gaps;
    `begin_stage` is called with each stage as it begins. Raises
    DataDirectoryError, PlanError, InvalidArgument (a port in use, a refused address) or
    Unavailable; what was started is stopped again.
    """
    plan = fitted_plan(settings, plan)
    topology = dataclasses.replace(
        topology_of(settings, plan),
        dispatchers=fitted_dispatchers(settings),
        mergers=fitted_mergers(settings),
    )
    if topology.archive is not None and settings.ray_address is None:
        check_folder(topology.archive.path)  # with an address, dispatchers may be on other hosts
    check_start(settings)
    begin_stage(StartStage.KERNELS)
    compile_kernels(topology)
    if settings.runtime == "local":
        load_kernels(topology)
        begin_stage(StartStage.REPLAY)
        return LocalService(settings, topology, accept_loss)
    stopping = stopping or threading.Event()
    return RayService(settings, topology, stopping, accept_loss, begin_stage)


def topology_of(settings: Settings, plan: RoutingPlan) -> Topology:
    """Returns the topology that carries out `plan` with these settings."""
    return Topology(
        plan,
        dispatchers=settings.dispatchers,
        mergers=settings.mergers,
        max_in_flight=settings.max_in_flight,
        session_quota=settings.session_quota,
        retention_bytes=settings.retention_bytes,
        retention_ms=max(1, round(settings.retention_hours * 3_600_000)),
        sample_objects=settings.sample_objects,
        valid_objects_bytes=settings.valid_objects_bytes,
        archive=archive_of(settings),
        shed=None if settings.shed == "off" else settings.shed,
        quotas=settings.security.quotas,
        policy=policy_of(settings, plan.workers),
        index=settings.index,
    )


def archive_of(settings: Settings) -> ArchiveLimits | None:
    """Returns where the archive is and what it keeps; None if there is none."""
    if settings.archive is None:
        return None
    path = settings.archive.absolute()
    return ArchiveLimits(path, settings.archive_bytes, settings.archive_hours, settings.archive_s)


def policy_of(settings: Settings, workers: int) -> ControllerPolicy:
    """Returns the controller's policy, by which at most half of the workers give units at once."""
    costs = Costs()
    if settings.costs is not None:
        from ps2stream.planner.job import read_costs

        costs = read_costs(str(settings.costs))
    return ControllerPolicy(
        Rules(costs, sigma=settings.sigma, pairs=max(1, workers // 2)),
        period_ticks=round(settings.load_period_s / TICK_S),
        automatic=settings.adjust == "local",
        hot=settings.hot == "replicate",
        sunset=CoexistenceLimit(settings.sunset_share, round(settings.sunset_hours * HOUR_MS)),
    )


def fitted_mergers(settings: Settings) -> int:
    """Returns the number of mergers that the data directory was last used with, and that of the
    settings for a new one."""
    place = place_of(settings)
    recorded = place.recorded_mergers()
    if recorded is None:
        return settings.mergers
    if "mergers" in settings.model_fields_set and settings.mergers != int(recorded):
        log.warning(
            "%s was last used with %s mergers, and the service keeps this number; `ps2stream scale "
            "--mergers` changes it", place, recorded,
        )  # fmt: skip
    return int(recorded)


def fitted_dispatchers(settings: Settings) -> int:
    """Returns the number of dispatchers that the data directory was last used with, if the setting
    is what it was when their number was changed, and that of the settings otherwise."""
    place = place_of(settings)
    recorded = place.recorded_dispatchers()
    if recorded is None:
        return settings.dispatchers
    dispatchers, configured = map(int, recorded.split())
    if settings.dispatchers != configured:
        return settings.dispatchers
    if dispatchers != configured:
        log.info("%s was last used with %d dispatchers, and is again", place, dispatchers)
    return dispatchers


def fitted_plan(settings: Settings, plan: RoutingPlan | None) -> RoutingPlan:
    """Returns the plan under the text analysis that the data directory has recorded.

    Without a plan it is the one that waits for this start, or that the directory last changed to,
    or the built-in one. A new
    directory takes the plan's analysis, or that of the settings and a random salt. A plan carries
    term strings and a plan file no salt, so the salts may differ. Raises PlanError or
    DataDirectoryError when stemmer, stop words or character data differ.
    """
    if plan is None and settings.plan is not None:
        has_workers = "workers" in settings.model_fields_set
        plan = load_plan(settings.plan, workers=settings.workers if has_workers else None)
    fold = read_foldings(settings.fold) if settings.fold is not None else None
    place = place_of(settings)
    recorded = place.recorded_analysis()
    if recorded is not None:
        analysis = Analysis.from_dict(json.loads(recorded))
    elif plan is not None:
        salt = plan.analysis.salt or secrets.randbits(63)
        analysis = dataclasses.replace(plan.analysis, salt=salt)
    else:
        analysis = Analysis(
            salt=secrets.randbits(63),
            stemmer=settings.stemmer,
            stop_words=settings.stop_words,
            fold=fold or (),
        )
    choices = {
        "stemmer": settings.stemmer,
        "stop_words": settings.stop_words,
        "fold": fold,
    }
    for name, wanted in choices.items():
        fixed = getattr(analysis, name)
        if wanted is not None and wanted != fixed:
            raise DataDirectoryError(
                f"{place}: {name} was fixed as {fixed!r} when the data was created, so it cannot "
                f"be {wanted!r}: the queries would match other words"
            )
    pending = place.pending_plan()
    if plan is not None and pending:
        log.warning(
            "%s has a plan that waits for this start (`ps2stream apply --regrid`); it is dropped, "
            "because the service was given another plan", place,
        )  # fmt: skip
    if plan is None:
        last = place.recorded_plan()
        if last is None and not pending:
            return built_in_plan(analysis, Grid(), settings.workers)
        plan = _plan_to_start_under(last, pending, analysis)
        if "workers" in settings.model_fields_set and settings.workers != plan.workers:
            log.warning(
                "%s was last used with %d workers, and the service keeps this number; `ps2stream "
                "scale` changes it",
                place, plan.workers,
            )  # fmt: skip
    salted = dataclasses.replace(plan.analysis, salt=analysis.salt)
    if salted != analysis:
        theirs, ours = salted.to_dict(), analysis.to_dict()
        name = next(name for name in ours if ours[name] != theirs[name])
        raise PlanError(
            f"plan: made for a text analysis with {name} = {theirs[name]!r}; "
            f"{place} has {ours[name]!r}"
        )
    return dataclasses.replace(plan, analysis=analysis)


def _plan_to_start_under(last: str | None, pending: str | None, analysis: Analysis) -> RoutingPlan:
    """Returns the pending plan (JSON), or without one the last one (JSON). Live plan changes may
    have come after the request; the pending plan then follows the last of them."""
    if not pending:
        assert last is not None
        return RoutingPlan.from_dict(json.loads(last), analysis)
    plan = RoutingPlan.from_dict(json.loads(pending), analysis)
    version = 0 if last is None else int(json.loads(last)["version"])
    if version >= plan.version:
        plan = dataclasses.replace(plan, version=version + 1, base_version=version)
    log.info("the service starts under plan version %d, whose grid is new", plan.version)
    return plan
