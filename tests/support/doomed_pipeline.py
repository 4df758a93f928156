"""`ps2stream`, whose pipeline halts between publishing and commit if wanted."""

from __future__ import annotations

from ps2stream.connectors import spark_publisher
from tests.support.doomed import BEFORE_COMMIT, halt_after

if __name__ == "__main__":
    from ps2stream.cli import main

    publisher = spark_publisher.EpochPublisher
    publisher.publish = halt_after(publisher.publish, BEFORE_COMMIT)  # type: ignore[method-assign]
    main()
