"""Runs in a pod: publishes numbered objects and receives their matches until the file STOP exists,
and prints what was lost, doubled or false, as JSON.

python load.py SERVER PRODUCER CA TOKEN_FILE STOP [OBJECTS_A_SECOND]
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from ps2stream import Client
from ps2stream.errors import FailedPrecondition, Ps2StreamError

WAIT_S = 240.0
"""Seconds that the last matches may take."""


def publish_numbered(client: Client, producer: str, stop: Path, each_s: float) -> tuple[int, float]:
    """Publishes object n as publication n of the producer, again until it is answered; returns
    their number, and the longest time that one took."""
    seq, longest = 0, 0.0
    while not stop.exists():
        seq += 1
        begin = time.monotonic()
        while True:
            row = {"lon": 0.1, "lat": 0.1, "text": f"{producer} {seq}"}
            try:
                client.publish([row], producer=producer, seq=seq)
                break
            except (FailedPrecondition, ValueError):
                raise
            except (Ps2StreamError, TimeoutError, OSError) as error:
                sys.stderr.write(f"publication {seq} again: {error}\n")
                time.sleep(0.5)
        longest = max(longest, time.monotonic() - begin)
        time.sleep(each_s)
    return seq, longest


def receive_matches(client: Client, session: str, received: Counter[str]) -> None:
    """Counts the texts of a session's matches; each stream goes on where the last one ended."""
    cursor = b""
    while True:
        try:
            with client.subscribe(session, cursor=cursor) as matches:
                try:
                    for match in matches:
                        received[str(match.text)] += 1
                finally:
                    cursor = matches.cursor
        except (Ps2StreamError, TimeoutError, OSError) as error:
            sys.stderr.write(f"subscribed again: {error}\n")
            time.sleep(0.5)


def main() -> None:
    """Prints one line of JSON. Exit code 1 when anything was lost, came twice or came falsely."""
    server, producer, authority, token, stop_at = sys.argv[1:6]
    rate = float(sys.argv[6]) if len(sys.argv) > 6 else 5.0
    stop = Path(stop_at)
    word = Path(token).read_text().strip()
    received: Counter[str] = Counter()
    with (
        Client(server, token=word, tls_ca=authority, timeout=20.0) as client,
        Client(server, token=word, tls_ca=authority, timeout=20.0) as subscriber,
    ):
        client.insert(producer, producer, session=producer)
        reader = threading.Thread(
            target=receive_matches, args=(subscriber, producer, received), daemon=True
        )
        reader.start()
        sys.stdout.write("started\n")
        sys.stdout.flush()
        published, longest = publish_numbered(client, producer, stop, 1.0 / rate)
        wanted = {f"{producer} {seq}" for seq in range(1, published + 1)}
        deadline = time.monotonic() + WAIT_S
        while wanted - received.keys() and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(2.0)  # for what should not come
    found = {
        "published": published,
        "lost": len(wanted - received.keys()),
        "doubled": sum(count - 1 for count in received.values()),
        "false": len(received.keys() - wanted),
        "longest_s": round(longest, 1),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    sys.exit(bool(found["lost"] or found["doubled"] or found["false"]))


if __name__ == "__main__":
    main()
