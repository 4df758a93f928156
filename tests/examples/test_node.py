"""examples/node: a client in another language, from the protos alone, judged by brute force."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from tests.support.certificates import Authority
from tests.support.example_posts import QUERIES, expected, posts
from tests.support.replay import steps

FOLDER = Path("examples") / "node"


@pytest.fixture(scope="module")
def node(root: Path) -> Path:
    """The folder of the example, with what its lock names."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("there is no Node here (Debian: apt-get install nodejs npm)")
    folder = root / FOLDER
    there, lock = folder / "node_modules" / ".package-lock.json", folder / "package-lock.json"
    if not there.is_file() or there.stat().st_mtime < lock.stat().st_mtime:
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
        subprocess.run(["npm", "ci", *options], cwd=folder, check=True, capture_output=True)
    return folder


def program(node: Path, target: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["node", "client.mjs", "--server", target, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=node,
    )


def run(node: Path, target: str, *arguments: str, given: str = "") -> list[dict[str, Any]]:
    process = program(node, target, *arguments)
    out, err = process.communicate(given, timeout=60)
    assert (process.returncode, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def pairs(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(match["query"], match["object"]) for match in found]


def insert_all(node: Path, target: str, session: str, prefix: str = "") -> None:
    for name, (expression, circle) in QUERIES.items():
        where = [f"--circle={','.join(map(str, circle))}"] if circle else []
        session_ = f"--session={session}"
        (done,) = run(node, target, "insert", prefix + name, expression, session_, *where)
        assert int(done["lsn"]) > 0


def test_the_lock_names_no_registry(root: Path) -> None:
    lock = json.loads((root / FOLDER / "package-lock.json").read_text())
    for name, package in lock["packages"].items():
        assert "resolved" not in package, name
        assert not name or package["integrity"].startswith("sha512-"), name


@pytest.mark.takes_turns
def test_matches_are_those_of_brute_force_over_breaks_and_a_restart(
    node: Path, tmp_path: Path, killed: list[subprocess.Popen[str]]
) -> None:
    """It stops and goes on by its cursor; it lives on when the service is started anew."""
    data = tmp_path / "data"
    state = str(tmp_path / "cursor.json")
    subscribe = ("subscribe", "--session", "s", "--state", state)
    rows = posts(600, seed=3)
    first, second = rows[:300], rows[300:]
    with start(Settings(runtime="local", port=0, workers=2, data_dir=data)) as running:
        target = running.targets[0]
        insert_all(node, target, "s")
        receipts = run(node, target, "publish", given=lines(first))
        assert sum(receipt["accepted"] for receipt in receipts) == len(first)
        found = run(node, target, *subscribe, "--limit", "5")
        process = program(node, target, *subscribe)
        killed.append(process)
        with Client(target) as client:  # in batches of their own, so that there are many
            for at in range(0, 150, 10):
                client.publish(second[at : at + 10])
        assert process.stdout is not None
        while len(found) < len(expected(rows[:450])):
            found.append(json.loads(process.stdout.readline()))
    port = int(target.rpartition(":")[2])
    with start(Settings(runtime="local", port=port, workers=2, data_dir=data)):
        run(node, target, "publish", given=lines(second[150:]))
        while len(found) < len(expected(rows)):
            found.append(json.loads(process.stdout.readline()))
        (deleted,) = run(node, target, "delete", "town")
        assert int(deleted["lsn"]) == len(QUERIES) + 1
    assert [int(match["number"]) for match in found] == list(range(1, len(found) + 1))
    assert len(set(pairs(found))) == len(found)
    assert set(pairs(found)) == expected(rows)
    fields = ("lon", "lat", "text", "attributes")
    sent = {row["id"]: [row[name] for name in fields] for row in rows}
    assert all([m[name] for name in fields] == sent[m["object"]] for m in found)


@pytest.mark.takes_turns
def test_what_it_took_is_acknowledged_and_granted(node: Path, target: str, client: Client) -> None:
    """More batches than the window holds; without a cursor, others go on where it was."""
    client.insert("many", "many", session="many")
    process = program(node, target, "subscribe", "--session", "many", "--limit", "300")
    for i in range(300):
        client.publish([{"id": str(i), "lon": 0.0, "lat": 0.0, "text": "many"}], level="accepted")
    out, err = process.communicate(timeout=60)
    assert err == ""
    assert [json.loads(line)["object"] for line in out.splitlines()] == [str(i) for i in range(300)]
    client.publish([{"id": "last", "lon": 0.0, "lat": 0.0, "text": "many"}])
    with client.subscribe("many") as matches:
        batch = next(matches.batches())
    assert batch.first > 256 - 64


def test_errors_are_told_as_the_service_gives_them(node: Path, target: str) -> None:
    for arguments, code, words in (
        (("insert", "bad", "flood AND"), 3, "query.expression: column"),
        (("delete", "never"), 5, "there is no query 'never'"),
    ):
        process = program(node, target, *arguments)
        out, err = process.communicate(timeout=60)
        told = json.loads(err)
        assert (process.returncode, out, told["code"]) == (1, "", code)
        assert words in told["error"]


@pytest.mark.takes_turns
def test_tls_and_tokens(node: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    data, token = tmp_path / "data", tmp_path / "token"
    made = CliRunner().invoke(
        main, ["token", "create", "--data-dir", str(data), "--scope", "subscribe"]
    )
    assert made.exit_code == 0, made.output
    token.write_text(made.stdout)
    token.chmod(0o600)
    settings = Settings(
        runtime="local", port=0, workers=1, data_dir=data, auth=True,
        tls_cert=pair.cert, tls_key=pair.key,
    )  # fmt: skip
    with start(settings) as running:
        target = running.targets[0].replace("127.0.0.1", "localhost")  # as certificates name it
        tls = ("--tls-ca", str(authority.ca))
        (done,) = run(node, target, "insert", "a", "storm", *tls, "--token-file", str(token))
        assert done["lsn"] == "1"
        refused = program(node, target, "insert", "b", "storm", *tls)
        assert json.loads(refused.communicate(timeout=60)[1])["code"] == 16
    plain = program(node, "example.org:7077", "insert", "a", "b", "--token-file", str(token))
    assert "would travel in plaintext" in plain.communicate(timeout=60)[1]


def test_the_commands_of_the_guide_print_what_it_says(
    node: Path, root: Path, tmp_path: Path
) -> None:
    text = (root / "docs" / "howto" / "client.md").read_text("utf-8")
    (block,) = (b for b in re.findall(r"```console\n(.*?)```", text, re.DOTALL) if "npm" in b)
    told = list(steps(block))
    assert [command for command, _ in told[:2]] == ["cd examples/node", "npm ci"]
    with start(Settings(runtime="local", port=0, workers=1, data_dir=tmp_path / "data")) as running:
        for command, expected_ in told[2:]:
            here = command.replace("client.mjs", f"client.mjs --server {running.targets[0]}")
            here = here.replace("cursor.json", str(tmp_path / "cursor.json"))
            done = subprocess.run(
                ["sh", "-c", here], cwd=node, capture_output=True, text=True, check=True, timeout=60
            )
            assert done.stdout.strip() == expected_, command
