"""A subscriber and a publisher in one program: python first.py [HOST:PORT]"""

from __future__ import annotations

import sys
from itertools import islice

from ps2stream import Circle, Client

POSTS = [
    {"id": "1", "lon": -0.1, "lat": 51.5, "text": "Flood by the river!"},
    {"id": "2", "lon": -0.1, "lat": 51.5, "text": "A quiet evening by the river"},
    {"id": "3", "lon": 2.35, "lat": 48.85, "text": "Flood by the river!"},
    {"id": "4", "lon": 0.05, "lat": 51.6, "text": "The creek: flood again"},
]


def main(server: str = "localhost:7077") -> None:
    with Client(server) as client:
        client.insert(
            "thames", "flood AND (river OR creek)", Circle(-0.12, 51.5, 30), session="first"
        )
        with client.subscribe("first") as matches:
            client.publish(POSTS)
            for match in islice(matches, 2):
                print(match.query_id, match.object_id, match.text)
        client.delete("thames")


if __name__ == "__main__":
    main(*sys.argv[1:])
