"""Measures memory and disk of a service by queries and posts: python scripts/sizing.py [QUERIES
POSTS]

Starts a service of one actor per role on this machine, inserts queries, publishes durable posts
that match a session without a subscriber, and prints what each added as JSON. docs/operations.md
has the figures.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from ps2stream.benchmarks import memory
from ps2stream.benchmarks.workload import make
from ps2stream.client.client import Client
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.frame import column_to_strings
from ps2stream.space.regions import Rect

BATCH, POLL_S = 1000, 0.1
ROOMY = 1 << 40


def measure(service: RunningService, folder: Path, queries: int, posts: int) -> dict[str, Any]:
    """Returns bytes of memory per query by actor, and of disk per query, post and match."""
    world = make("synthetic", "q1", queries, 0, posts, 1, Analyzer(Analysis(salt=1)))
    texts = column_to_strings(world.posts.text_off, world.posts.text)
    lon, lat = world.posts.lon.tolist(), world.posts.lat.tolist()
    with Client(service.targets[0], timeout=600) as client:
        empty, bare = memory.resident(service), disk(folder)
        client.insert_many(
            (
                (f"query-{i}", expression, Rect(*rect))
                for i, (expression, rect) in enumerate(
                    zip(world.expressions(), world.interests.rect.tolist(), strict=True)
                )
            ),
            session="sizing",
        )
        full, stored = memory.resident(service), disk(folder)
        for at in range(0, posts, BATCH):
            rows = slice(at, at + BATCH)
            client.publish({"lon": lon[rows], "lat": lat[rows], "text": texts[rows]})
        log = wait_for_matches(service)
    text = len(world.posts.text) / posts
    return {
        "queries": queries,
        "posts": posts,
        "memory_bytes_empty": empty,
        "memory_bytes_per_query": {
            actor: round((full[actor] - empty[actor]) / queries) for actor in empty
        },
        "disk_bytes_empty": bare,
        "disk_bytes_per_query": round((stored - bare) / queries),
        "text_bytes_per_post": round(text),
        "matches_per_post": round(log["lag"] / posts, 3),
        "disk_bytes_per_match": round(log["backlog_bytes"] / log["lag"]),
    }


def wait_for_matches(service: RunningService) -> dict[str, Any]:
    """Returns the merger's counters once every post is matched."""
    while True:
        found = service.status()
        if not found["dispatcher-0"]["in_flight"]:
            return dict(found["merger-0"])
        time.sleep(POLL_S)


def disk(folder: Path) -> int:
    """Returns the bytes on disk of the data directory."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))


if __name__ == "__main__":
    wanted, published = (int(word) for word in sys.argv[1:] or ("200000", "200000"))
    with PrivateFolder() as made:
        settings = Settings(
            port=0, workers=1, data_dir=made.path / "data", session_quota=ROOMY,
            retention_bytes=ROOMY,
        )  # fmt: skip
        with start(settings) as running:
            found = measure(running, made.path / "data", wanted, published)
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
