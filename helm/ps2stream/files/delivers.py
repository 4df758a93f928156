"""Subscribe, publish, and wait for the match: what `helm test` runs."""

import argparse
import secrets
import signal
import sys
from pathlib import Path

from ps2stream import Circle, Client

parser = argparse.ArgumentParser()
parser.add_argument("--server", required=True)
parser.add_argument("--token-file", type=Path)
for name in ("--tls-ca", "--tls-cert", "--tls-key"):
    parser.add_argument(name)
given = vars(parser.parse_args())
server, token = given.pop("server"), given.pop("token_file")
if token is not None:
    given["token"] = token.read_text().strip()

signal.alarm(120)
word = f"test{secrets.token_hex(8)}"
with Client(server, timeout=100.0, **given) as client:  # new pods pass the policies after a while
    client.insert(word, word, Circle(0.0, 0.0, 1.0), session="helm-test")
    try:
        with client.subscribe("helm-test") as matches:
            client.publish([{"lon": 0.0, "lat": 0.0, "text": word}])
            found = next(match for match in matches if match.query_id == word)
    finally:
        client.delete(word)
sys.stdout.write(f"delivered: query {found.query_id}, offset {found.offset}\n")
