"""Spark's daemon of Python workers that publish small chunks, and halt amid them if wanted."""

from __future__ import annotations

from pyspark.daemon import manager

from ps2stream.connectors import pipeline_rows
from ps2stream.connectors.pipeline_sender import PartitionPublisher
from tests.support.doomed import AMID, CHUNK_ROWS, halt_after

if __name__ == "__main__":
    pipeline_rows.cut_chunks.__defaults__ = (CHUNK_ROWS, pipeline_rows.CHUNK_BYTES)
    PartitionPublisher._take_answer = halt_after(PartitionPublisher._take_answer, AMID)  # type: ignore[method-assign]
    manager()
