"""The call of ps2stream.v1.PubSub that withdraws objects (docs/decisions/0032)."""

from __future__ import annotations

from collections.abc import Callable

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import InvalidArgument, Violation, invalid
from ps2stream.limits import VIOLATIONS
from ps2stream.service.calls import ID_ROWS, check_deadline, name_problem, parse_batch, wait
from ps2stream.service.open_calls import OpenCall
from ps2stream.v1 import pubsub_pb2


class WithdrawCalls:
    """The calls of one tenant that withdraw objects."""

    def __init__(self, gateway: DispatcherGateway) -> None:
        self._gateway = gateway
        self.calls: dict[str, Callable[[bytes, OpenCall], bytes]] = {
            "WithdrawObjects": self._withdraw_objects
        }

    def _withdraw_objects(self, data: bytes, call: OpenCall) -> bytes:
        request = parse_batch(pubsub_pb2.WithdrawObjectsRequest, data, ID_ROWS)
        if not request.ids:
            raise invalid("ids", "holds no id")
        problems = ((i, name_problem(id, "id")) for i, id in enumerate(request.ids))
        found = [Violation(f"ids[{i}]", problem) for i, problem in problems if problem]
        if found:
            raise InvalidArgument(found[:VIOLATIONS])
        check_deadline(call)
        wait(self._gateway.withdraw_objects(list(dict.fromkeys(request.ids))), call)
        return pubsub_pb2.WithdrawObjectsResponse().SerializeToString()
