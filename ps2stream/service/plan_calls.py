"""The calls of ps2stream.v1.Admin that change the plan of the running service."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import (
    FailedPrecondition,
    PlanError,
    Unavailable,
    invalid,
)
from ps2stream.limits import DISPATCHERS, PLAN_BYTES, REQUEST_BYTES
from ps2stream.planner.adjust.scale import scaled
from ps2stream.protocol.messages.handover import DispatchersReply, MergersReply
from ps2stream.protocol.messages.plan import PlanAction, PlanChangeReply
from ps2stream.protocol.session_map import MAX_MERGERS
from ps2stream.routing.plan import MAX_WORKERS, RoutingPlan
from ps2stream.routing.plan_changes import PlanState, strategy_of
from ps2stream.service.calls import parse, wait
from ps2stream.service.open_calls import OpenCall
from ps2stream.space.grid import CELLS_MAX, Grid, cells_of
from ps2stream.v1 import admin_pb2

Call = Callable[[bytes, OpenCall], bytes]
FIELDS = {
    "from": "from_version",
    "to": "to_version",
    "begun": "began_lsn",
    "begun_ms": "began_ms",
    "switched": "switched_lsn",
    "ended": "ended_lsn",
    "apart": "coexisting_lsn",
    "apart_ms": "coexisting_ms",
}
"""The API's names for what the sequencer calls otherwise in its JSON."""

UNMOVED = "this service does not support plan changes"


class PlanCalls:
    """The calls about plans. The sequencer decides; what it refuses is FAILED_PRECONDITION, with
    its reason."""

    def __init__(self, gateway: DispatcherGateway) -> None:
        self._gateway = gateway
        self.calls: dict[str, Call] = {
            "ApplyPlan": self._apply_plan,
            "UnitePlans": self._unite_plans,
            "AbortMigration": self._abort_migration,
            "GetMigrations": self._get_migrations,
            "GetPlan": self._get_plan,
            "ScaleWorkers": self._scale_workers,
            "ScaleMergers": self._scale_mergers,
            "ScaleDispatchers": self._scale_dispatchers,
        }

    def _apply_plan(self, data: bytes, call: OpenCall) -> bytes:
        # The message adds the plan's tag and length.
        request = parse(admin_pb2.ApplyPlanRequest, data, PLAN_BYTES + 16, "plan_bytes")
        try:
            body = json.loads(request.plan)
            self._check_grid(body, request.regrid)
            plan = RoutingPlan.from_dict(body, self._gateway.analyzer.analysis)
            plan.compile(self._gateway.analyzer)
        except PlanError as error:
            raise invalid("plan", str(error)) from None
        except (ValueError, TypeError, RecursionError) as error:
            raise invalid("plan", f"is not a plan in JSON: {error}") from None
        if request.regrid and request.coexist:
            raise invalid("regrid", "a plan with another grid cannot coexist with the present one")
        ask = PlanAction.COEXIST if request.coexist else PlanAction.MOVE
        ask = PlanAction.REGRID if request.regrid else ask
        return self._begin_plan_change(plan, admin_pb2.ApplyPlanResponse, call, ask)

    def _check_grid(self, body: Any, regrid: bool) -> None:
        """Checks the plan's grid before a map of its cells is made, which may be large."""
        if not isinstance(body, dict) or not isinstance(body.get("grid"), dict):
            return  # RoutingPlan.from_dict refuses it with the reason
        ours, theirs = self._gateway.grid, Grid.from_dict(body["grid"])
        if regrid and theirs.size > CELLS_MAX:
            raise invalid("plan", f"its grid has {theirs.size:,} cells, over {CELLS_MAX:,}")
        if ours != theirs and not regrid:
            raise FailedPrecondition(
                f"plan: its grid, {cells_of(theirs)}, is not that of the service, "
                f"{cells_of(ours)}, which only a restart changes: `ps2stream apply --regrid` keeps "
                "the plan for the next start"
            )

    def _scale_workers(self, data: bytes, call: OpenCall) -> bytes:
        request = parse(admin_pb2.ScaleWorkersRequest, data, REQUEST_BYTES, "request_bytes")
        if not 1 <= request.workers <= MAX_WORKERS:
            problem = f"expected 1 to {MAX_WORKERS} workers, got {request.workers}"
            raise invalid("workers", problem)
        reply = wait(self._gateway.strategy(), call)
        change = self._read_plan_change(reply)
        follow = change.following
        if request.workers == change.plan.workers == (follow or change.plan).workers:
            version = change.serving.version
            return _serialize_answer(admin_pb2.ScaleWorkersResponse(lsn=reply.lsn, version=version))
        if follow is not None and follow.workers == request.workers:
            lsn = change.begun or change.apart
            return _serialize_answer(
                admin_pb2.ScaleWorkersResponse(lsn=lsn, version=follow.version)
            )
        if problem := change.occupied:
            raise FailedPrecondition(problem)
        plan = scaled(change.plan, request.workers, self._gateway.weights())
        return self._begin_plan_change(plan, admin_pb2.ScaleWorkersResponse, call)

    def _scale_mergers(self, data: bytes, call: OpenCall) -> bytes:
        request = parse(admin_pb2.ScaleMergersRequest, data, REQUEST_BYTES, "request_bytes")
        if request.mergers > MAX_MERGERS:
            problem = f"expected 1 to {MAX_MERGERS} mergers, or 0, got {request.mergers}"
            raise invalid("mergers", problem)
        reply = _check_reply(wait(self._gateway.mergers(request.mergers), call))
        answer = admin_pb2.ScaleMergersResponse(
            mergers=reply.mergers, lsn=reply.lsn, moving=bool(reply.moving)
        )
        return _serialize_answer(answer)

    def _scale_dispatchers(self, data: bytes, call: OpenCall) -> bytes:
        request = parse(admin_pb2.ScaleDispatchersRequest, data, REQUEST_BYTES, "request_bytes")
        if request.dispatchers > DISPATCHERS:
            problem = f"expected 1 to {DISPATCHERS} dispatchers, or 0, got {request.dispatchers}"
            raise invalid("dispatchers", problem)
        reply = _check_reply(wait(self._gateway.dispatchers(request.dispatchers), call))
        answer = admin_pb2.ScaleDispatchersResponse(
            dispatchers=reply.dispatchers, lsn=reply.lsn, moving=bool(reply.moving)
        )
        return _serialize_answer(answer)

    def _begin_plan_change(
        self,
        plan: RoutingPlan,
        kind: type[admin_pb2.ApplyPlanResponse | admin_pb2.ScaleWorkersResponse],
        call: OpenCall,
        ask: PlanAction = PlanAction.MOVE,
    ) -> bytes:
        raw = json.dumps(plan.to_dict()).encode()
        reply = _check_reply(wait(self._gateway.strategy(raw, ask), call))
        return _serialize_answer(kind(lsn=reply.lsn, version=plan.version))

    def _unite_plans(self, data: bytes, call: OpenCall) -> bytes:
        parse(admin_pb2.UnitePlansRequest, data, REQUEST_BYTES, "request_bytes")
        reply = _check_reply(wait(self._gateway.strategy(ask=PlanAction.UNITE), call))
        change = self._read_plan_change(reply)
        version = (change.following or change.plan).version
        return _serialize_answer(admin_pb2.UnitePlansResponse(lsn=reply.lsn, version=version))

    def _abort_migration(self, data: bytes, call: OpenCall) -> bytes:
        parse(admin_pb2.AbortMigrationRequest, data, REQUEST_BYTES, "request_bytes")
        reply = _check_reply(wait(self._gateway.strategy(ask=PlanAction.MOVE), call))
        version = self._read_plan_change(reply).plan.version
        return _serialize_answer(admin_pb2.AbortMigrationResponse(lsn=reply.lsn, version=version))

    def _get_plan(self, data: bytes, call: OpenCall) -> bytes:
        parse(admin_pb2.GetPlanRequest, data, REQUEST_BYTES, "request_bytes")
        change = self._read_plan_change(wait(self._gateway.strategy(), call))
        plan = json.dumps(change.plan.to_dict()).encode()
        return _serialize_answer(admin_pb2.GetPlanResponse(plan=plan))

    def _get_migrations(self, data: bytes, call: OpenCall) -> bytes:
        parse(admin_pb2.GetMigrationsRequest, data, REQUEST_BYTES, "request_bytes")
        reply = wait(self._gateway.strategy(), call)
        fields = json.loads(reply.state.tobytes())
        if not fields:
            raise FailedPrecondition(UNMOVED)
        state = admin_pb2.MigrationState.Value(f"MIGRATION_STATE_{fields.pop('state')}")
        ended = fields.pop("moves")
        fields.pop("apart_for", None)
        fields |= {"live_queries": reply.live, "old_queries": reply.old}
        answer = admin_pb2.GetMigrationsResponse(state=state, **_rename_fields(fields))
        for migration in ended:
            name = f"MIGRATION_OUTCOME_{migration.pop('outcome').upper()}"
            outcome = admin_pb2.MigrationOutcome.Value(name)
            answer.migrations.add(**_rename_fields(migration), outcome=outcome)
        return _serialize_answer(answer)

    def _read_plan_change(self, reply: PlanChangeReply) -> PlanState:
        if not len(reply.strategy):
            raise FailedPrecondition(UNMOVED)
        return strategy_of(reply.strategy, self._gateway.analyzer.analysis)


def _rename_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {FIELDS.get(name, name): value for name, value in fields.items()}


Answer = TypeVar("Answer", PlanChangeReply, MergersReply, DispatchersReply)


def _check_reply(reply: Answer) -> Answer:
    problem = reply.problem.tobytes().decode()
    if problem:
        raise (Unavailable if reply.wait else FailedPrecondition)(problem)
    return reply


def _serialize_answer(answer: Message) -> bytes:
    return answer.SerializeToString()
