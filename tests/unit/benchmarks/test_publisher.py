"""The publisher of the benchmarks beside a service that has enough to do."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pyarrow as pa

from ps2stream.benchmarks.publisher import BenchmarkPublisher, PublisherJob, PublishInterval
from ps2stream.benchmarks.service_access import ServiceAccess
from ps2stream.benchmarks.workload import PostColumns
from ps2stream.protocol.frame import strings_to_column
from ps2stream.v1 import pubsub_pb2

SIZE, POSTS, BATCHES = 8, 32, 50


class BusyService:
    """Refuses every third publication, repeats too."""

    def __init__(self, again_ms: int) -> None:
        self.again_ms, self.seen = again_ms, 0
        self.accepted: list[int] = []  # the first post of each batch

    def handler(self) -> grpc.GenericRpcHandler:
        """Returns the methods of this service that the publisher calls."""
        request, answer = pubsub_pb2.PublishStreamRequest, pubsub_pb2.PublishStreamResponse
        methods = {
            "PublishStream": grpc.stream_stream_rpc_method_handler(
                self.publish, request.FromString, answer.SerializeToString
            )
        }
        for name in ("InsertQueries", "DeleteQueries"):  # of which there are none
            methods[name] = grpc.stream_stream_rpc_method_handler(lambda requests, _: requests)
        return grpc.method_handlers_generic_handler("ps2stream.v1.PubSub", methods)

    def publish(
        self, requests: Iterator[pubsub_pb2.PublishStreamRequest], _: grpc.ServicerContext
    ) -> Iterator[pubsub_pb2.PublishStreamResponse]:
        """Answers each request."""
        for request in requests:
            self.seen += 1
            if self.seen % 3 == 0:
                yield pubsub_pb2.PublishStreamResponse(retry_after_ms=self.again_ms)
                continue
            table = pa.ipc.open_stream(request.batch.arrow).read_all()
            offset = SIZE * len(self.accepted)
            self.accepted.append(int(table.column("id")[0].as_py()))
            yield pubsub_pb2.PublishStreamResponse(accepted=SIZE, first_offset=offset, lsn=7)


def publish(service: BusyService) -> PublishInterval:
    """Publishes BATCHES batches to the service."""
    where = np.zeros(POSTS), np.zeros(POSTS)
    posts = PostColumns(*where, *strings_to_column(f"post {i}" for i in range(POSTS)))
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((service.handler(),))
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    looks = iter(range(BATCHES))
    try:
        with grpc.insecure_channel(target) as channel:
            none = np.zeros((0, 4)), np.zeros(0, np.int64)
            job = PublisherJob(ServiceAccess(target), posts, [], *none, 0, SIZE, "durable")
            publisher = BenchmarkPublisher(job, channel)
            try:
                return publisher.phase(60, None, SIZE, lambda: next(looks, None) is None)
            finally:
                publisher.close()
    finally:
        server.stop(0).wait()


def test_what_is_refused_for_the_moment_is_published_again() -> None:
    service = BusyService(again_ms=5)
    interval = publish(service)
    assert service.seen > BATCHES == len(service.accepted)
    assert interval.objects == BATCHES * SIZE
    assert interval.offsets.tolist() == list(range(0, BATCHES * SIZE, SIZE))
    assert interval.rows.tolist() == service.accepted  # the posts that have these offsets
    assert sorted(interval.rows.tolist()) == sorted(k * SIZE % POSTS for k in range(BATCHES))
    assert interval.rows.tolist() != [k * SIZE % POSTS for k in range(BATCHES)]
    assert len(interval.intended) == BATCHES
