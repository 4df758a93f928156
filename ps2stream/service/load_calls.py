"""The calls of ps2stream.v1.Admin that report loads, and migrate what is too hot."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import ParseDict

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import FailedPrecondition
from ps2stream.limits import REQUEST_BYTES
from ps2stream.protocol.messages.loads import AdjustReply
from ps2stream.protocol.messages.plan import PlanAction
from ps2stream.routing.plan_changes import versions
from ps2stream.service.calls import parse, wait
from ps2stream.service.open_calls import OpenCall
from ps2stream.v1 import admin_pb2

Call = Callable[[bytes, OpenCall], bytes]
ALGORITHM = "gr+"


class LoadCalls:
    """The calls about loads. The controller measures and proposes, the sequencer decides."""

    def __init__(self, gateway: DispatcherGateway) -> None:
        self._gateway = gateway
        self.calls: dict[str, Call] = {"GetLoad": self._get_load, "Rebalance": self._rebalance_load}

    def _get_load(self, data: bytes, call: OpenCall) -> bytes:
        parse(admin_pb2.GetLoadRequest, data, REQUEST_BYTES, "request_bytes")
        report = _read_report(wait(self._gateway.adjustment(), call))
        change = wait(self._gateway.strategy(), call).strategy
        if len(change):  # the controller may not know of it yet
            reported = report["plan_version"]
            version, following, coexisting = versions(change)
            report |= {"plan_version": version, "following_version": following}
            report["coexisting"] = coexisting
            if version != reported:  # the leaves and replicas are of another plan
                report.pop("leaves", None)
                report.pop("replicated", None)
        return ParseDict(report, admin_pb2.GetLoadResponse()).SerializeToString()

    def _rebalance_load(self, data: bytes, call: OpenCall) -> bytes:
        request = parse(admin_pb2.RebalanceRequest, data, REQUEST_BYTES, "request_bytes")
        reply = wait(self._gateway.adjustment(request.algorithm or ALGORITHM), call)
        if problem := reply.problem.tobytes().decode():
            raise FailedPrecondition(problem)
        report = _read_report(reply)
        answer = admin_pb2.RebalanceResponse(sigma=report["sigma"])
        ParseDict(report["adjustment"], answer)
        if len(reply.plan) and not request.dry_run:
            plan = reply.plan.tobytes()
            began = wait(self._gateway.strategy(plan, PlanAction.MOVE), call)
            if problem := began.problem.tobytes().decode():
                raise FailedPrecondition(problem)
            answer.plan_version = json.loads(plan)["version"]
        return answer.SerializeToString()


def _read_report(reply: AdjustReply) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(reply.told.tobytes())
    return report
