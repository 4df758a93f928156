"""Publications of one stream that wait to be sent: they leave as one message.

A message of gRPC costs the same for a publication of one object as for one of a thousand. So what
has gathered while the message before was written is sent together, once the service has said that
it takes that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ps2stream.v1 import pubsub_pb2

JOINED_REQUESTS = 64
"""Most publications of a message."""
JOINED_BYTES = 128 << 10
"""The size up to which they are joined: the service handles such a message at once."""


class RequestJoiner:
    """Joins the encoded requests of a PublishStream once `is_allowed`."""

    def __init__(self) -> None:
        self.is_allowed = False

    def join(self, requests: Sequence[bytes]) -> Iterator[bytes]:
        """Yields as few messages as may be of these requests, in order."""
        first = 0
        while first < len(requests):
            end, size = first + 1, len(requests[first])
            while end < len(requests) and end - first < JOINED_REQUESTS:
                size += len(requests[end])
                if size > JOINED_BYTES:
                    break
                end += 1
            yield _join_requests(requests[first:end])
            first = end


def _join_requests(requests: Sequence[bytes]) -> bytes:
    if len(requests) == 1:
        return requests[0]
    rest = pubsub_pb2.PublishStreamRequest(following=requests[1:])
    return requests[0] + rest.SerializeToString()
