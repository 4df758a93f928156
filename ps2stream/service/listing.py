"""Live queries of one tenant, or of all, page by page."""

from __future__ import annotations

from typing import TypeVar

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import invalid
from ps2stream.service import query_columns
from ps2stream.service.calls import wait
from ps2stream.service.open_calls import OpenCall
from ps2stream.v1 import admin_pb2, pubsub_pb2

PAGE = 100
MAX_PAGE = 1000
PAGE_BYTES = 2 << 20
"""A page of long queries is cut short, so that it stays below what clients take."""
A = TypeVar("A", pubsub_pb2.ListQueriesResponse, admin_pb2.ListAllQueriesResponse)


def page(
    gateway: DispatcherGateway,
    session: int,
    size: int,
    token: str,
    answer: A,
    call: OpenCall,
) -> A:
    """Fills `answer` with the page that follows on `token` and returns it. `session` is a number, 0
    for all; `size` is 0 for PAGE. Raises InvalidArgument."""
    if size < 0:
        raise invalid("page_size", f"expected 0 or more, got {size}")
    size = min(size or PAGE, MAX_PAGE)
    reply = wait(gateway.lookup(None, session, _parse_page_token(token), size), call)
    answer.total_live = reply.live
    found = query_columns.describe(reply)
    total = 0
    for at, (query, handle) in enumerate(found):
        answer.queries.append(query)
        total += query.ByteSize()
        more = reply.more or at + 1 < len(found)
        if more and (total > PAGE_BYTES or at + 1 == len(found)):
            answer.next_page_token = str(handle)
            break
    return answer


def _parse_page_token(token: str) -> int:
    if not token:
        return 0
    if not (token.isascii() and token.isdigit() and len(token) <= 18):
        raise invalid("page_token", "is not a next_page_token of this service")
    return int(token)
