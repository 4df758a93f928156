"""Methods of the service PubSub by how they are called."""

from __future__ import annotations

UNARY = ("InsertQuery", "DeleteQuery", "GetQuery", "ListQueries", "Publish", "WithdrawObjects")
STREAMS = ("InsertQueries", "DeleteQueries", "PublishStream", "Deliver")
