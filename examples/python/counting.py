"""Counts a session's matches by query, each match once, even after crashes:
python counting.py STATE.db SESSION [HOST:PORT]

The counts and the place in the session are stored in one database, in one transaction. So no match
is counted twice and none is left out, even if this program or the service is killed at any point.
Prints the counts as they grow, as one JSON object per line.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter

from ps2stream import Client

TABLES = """
CREATE TABLE IF NOT EXISTS counts (query TEXT PRIMARY KEY, matches INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS place (session TEXT PRIMARY KEY, cursor BLOB NOT NULL);
"""
COUNT = """
INSERT INTO counts VALUES (?, ?)
ON CONFLICT (query) DO UPDATE SET matches = matches + excluded.matches
"""


def main(path: str, session: str, server: str = "localhost:7077") -> None:
    state = sqlite3.connect(path)
    state.executescript(TABLES)
    kept = state.execute("SELECT cursor FROM place WHERE session = ?", (session,)).fetchone()
    cursor = kept[0] if kept else b""
    with (
        Client(server) as client,
        client.subscribe(session, cursor=cursor, text=False, position=False, time=False) as found,
    ):
        for batch in found.batches():
            with state:  # one transaction; the cursor includes the batch in hand
                state.executemany(COUNT, Counter(batch.query_ids).items())
                state.execute("INSERT OR REPLACE INTO place VALUES (?, ?)", (session, found.cursor))
            print(
                json.dumps(dict(state.execute("SELECT * FROM counts ORDER BY query"))), flush=True
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
