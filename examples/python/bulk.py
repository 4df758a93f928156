"""Publishes a Parquet file of posts as Arrow batches: python bulk.py POSTS.parquet [HOST:PORT]

The columns lon and lat (double), text, and if present id and time, are sent as they are: no row
becomes a Python object, neither here nor in the service. Eight batches are under way at a time.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream import Client

ROWS = 4096
"""Rows of a batch, which may have up to 4 MiB."""
COLUMNS = {"id", "time", "lon", "lat", "text"}


def batches(path: str) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(path)
    names = [name for name in file.schema_arrow.names if name in COLUMNS]
    yield from file.iter_batches(batch_size=ROWS, columns=names)


def main(path: str, server: str = "localhost:7077") -> None:
    accepted = refused = 0
    begun = time.monotonic()
    source: Iterable[pa.RecordBatch] = batches(path)
    unanswered: deque[pa.RecordBatch] = deque()

    def sending() -> Iterator[pa.RecordBatch]:
        for batch in source:
            unanswered.append(batch)
            yield batch

    with Client(server) as client:
        while source:
            again, pause = [], 0
            for receipt in client.publish_stream(sending(), allow_partial=True):
                batch = unanswered.popleft()
                accepted += receipt.accepted
                refused += len(receipt.refused)
                if receipt.retry_after_ms:  # the service was full and accepted nothing of the batch
                    again.append(batch)
                    pause = max(pause, receipt.retry_after_ms)
            source = again
            time.sleep(pause / 1000)
    print(f"accepted {accepted}, refused {refused} rows in {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
