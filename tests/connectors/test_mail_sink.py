"""Service to mail: digests for those who agreed, each until the mail server has it."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.connectors.conftest import Program, World
from tests.support.mail_server import USER, MailBox, mail_server

pytestmark = [pytest.mark.slow, pytest.mark.takes_turns]

SENDER = "alerts@example.org"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[MailBox]:
    with mail_server(tmp_path) as found:
        yield found


def publish(world: World, session: str, *texts: str) -> None:
    with world.client() as client:
        client.insert(session, "flat", session=session)
        rows = [
            {"id": str(n), "lon": 1, "lat": 2, "text": t, "time": 5} for n, t in enumerate(texts)
        ]
        client.publish(rows)


def server_of(box: MailBox) -> list[str]:
    where = ["--smtp", f"smtp://localhost:{box.port}", "--smtp-ca", str(box.ca)]
    who = ["--username", USER, "--password-file", str(box.password_file)]
    return [*where, *who, "--from", SENDER]


def mail(world: World, session: str, box: MailBox, *more: str) -> Program:
    return world.connect("mail", "--session", session, *server_of(box), *more)


def run(*words: str, given: str = "") -> tuple[int, dict[str, Any]]:
    """The exit code of a command, and what it says or its error."""
    done = subprocess.run(
        [sys.executable, "-m", "ps2stream", "connect", *words, "--json"],
        input=given,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    found: dict[str, Any] = json.loads(done.stdout or done.stderr.splitlines()[-1])
    return done.returncode, found


def numbers_in(box: MailBox) -> list[int]:
    line = re.compile(r"^\w+: flat (\d+)", re.MULTILINE)
    return [int(n) for m in box.mails for n in line.findall(m.text)]


def test_killed_mail_loses_nothing_and_keeps_the_order(
    world: World, box: MailBox, tmp_path: Path
) -> None:
    recipients = tmp_path / "recipients"
    recipients.write_text("me@example.org # the operator\n")
    publish(world, "mailed", *(f"flat {n}" for n in range(6)))
    how = ("--recipients", str(recipients), "--batch", "1", "--interval", "0")
    box.script = [None, "450 4.2.0 try later", None]
    connector = mail(world, "mailed", box, *how)
    box.until(2)
    connector.kill()
    world.kill()
    world.start()
    connector = mail(world, "mailed", box, *how)
    while "flat 5" not in box.mails[-1].text:
        box.until(len(box.mails) + 1)
    connector.stop()
    numbers = numbers_in(box)
    assert sorted(set(numbers)) == list(range(6))
    assert sum(b <= a for a, b in pairwise(numbers)) <= 1, "once a kill"
    ids = {m.message["Message-ID"] for m in box.mails}
    assert len(ids) == 6, "a mail that came twice had the same id"
    assert {tuple(m.recipients) for m in box.mails} == {("me@example.org",)}


def test_only_who_confirms_gets_mail(world: World, box: MailBox, tmp_path: Path) -> None:
    secrets, confirmed = tmp_path / "secrets", tmp_path / "confirmed"
    secrets.write_text("whsec_" + base64.b64encode(bytes(range(32))).decode() + "\n")
    publish(world, "joined", "flat 0", "flat 1", "flat 2")
    how = ("--confirmed", str(confirmed), "--interval", "0", "--batch", "3")
    connector = mail(world, "joined", box, *how)
    connector.until(lambda line: line.get("retries", 0) > 0)  # nobody is on the list
    secret = ("--session", "joined", "--secret-file", str(secrets))
    for address in ("me@example.org", "you@example.org"):
        code, told = run("mail-invite", *secret, *server_of(box), address)
        assert (code, told["address"]) == (0, address)
    mine = box.until(2)[0]
    assert mine.recipients == ["me@example.org"]
    [token] = re.findall(r"^\S+\.\S+$", mine.text, re.MULTILINE)
    accept = ("mail-confirm", *secret, "--confirmed", str(confirmed))
    code, error = run(*accept, given=token[:-4])
    assert (code, error["error"]["violations"][0]["field"]) == (2, "token")
    other = ("--session", "other", *secret[2:], "--confirmed", str(confirmed))
    code, error = run("mail-confirm", *other, given=token)
    assert (code, error["error"]["violations"][0]["field"]) == (2, "session")
    assert run(*accept, given=token) == (
        0,
        {"event": "confirmed", "session": "joined", "address": "me@example.org", "new": True},
    )
    connector.until(lambda line: line.get("done") == 3)
    connector.stop()
    assert [m.recipients for m in box.mails[2:]] == [["me@example.org"]]
    assert box.mails[2].message["Subject"] == "3 matches in joined"


def test_a_wrong_login_ends_the_sink(world: World, box: MailBox, tmp_path: Path) -> None:
    recipients, wrong = tmp_path / "recipients", tmp_path / "wrong"
    recipients.write_text("me@example.org\n")
    wrong.write_text("hidden")
    publish(world, "locked", "flat 0")
    how = ("--recipients", str(recipients), "--interval", "0", "--password-file", str(wrong))
    connector = mail(world, "locked", box, *how)
    code, error = connector.failed()
    assert (code, error["code"]) == (7, "failed_precondition")
    assert "hidden" not in connector.complained
