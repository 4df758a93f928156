"""The whole service over PostgreSQL."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster.doctor_checks import check_database
from ps2stream.cluster.running_service import place_of
from ps2stream.cluster.service import start
from ps2stream.commands.status import status_lines
from ps2stream.config import Settings, load
from ps2stream.errors import DataDirectoryError, InvalidArgument
from ps2stream.store.places import DataDirectory, describe_promises, place
from ps2stream.store.postgres_session import PostgresDatabase
from tests.support.postgres_server import Server
from tests.support.scaled_mergers import move_and_restart

ROW = {"id": "o", "text": "a word", "lon": 1.0, "lat": 2.0}


@pytest.fixture
def settings(database: PostgresDatabase, tmp_path: Path) -> Iterator[Settings]:
    yield Settings(
        runtime="local", port=0, workers=2, dispatchers=2, mergers=2,
        data_dir=tmp_path / "unused", database_url=database.url, database_schema=database.schema,
    )  # fmt: skip
    assert not (tmp_path / "unused").exists()


def test_a_service_goes_on_where_it_was(settings: Settings) -> None:
    with start(settings) as service, Client(service.targets[0]) as client:
        client.insert("kept", "word", session="ann")
        client.insert("dropped", "word", session="ann")
        client.delete("dropped")
        client.publish([ROW])
    with start(settings) as service, Client(service.targets[1]) as client:
        assert client.status()["endpoints"] == service.targets
        assert [q.id for q in client.list()] == ["kept"]
        with client.subscribe("ann") as matches:
            assert next(iter(matches)).query_id == "kept"
            client.publish([ROW | {"id": "again"}])
            assert next(iter(matches)).object_id == "again"


def test_a_database_restarts_under_the_service(postgres: Server, settings: Settings) -> None:
    with start(settings) as service, Client(service.targets[0], timeout=30) as client:
        client.insert("before", "word", session="ann")
        postgres.crash()
        postgres.start()
        client.insert("after", "word", session="ann")
        with client.subscribe("ann") as matches:
            client.publish([ROW])
            found = iter(matches)
            assert {next(found).query_id, next(found).query_id} == {"before", "after"}


def test_a_database_on_one_disk_is_named(settings: Settings) -> None:
    problem = "the database has no synchronous standby (synchronous_standby_names is empty)"
    with start(settings) as service, Client(service.targets[0]) as client:
        while (census := client.status()["census"]) is None:
            time.sleep(0.05)
        assert census["single_copy"] == problem
        rows = status_lines(client.status())
        assert any(line.split(maxsplit=2)[2:] == [problem] for line in rows), rows
    found = check_database(settings)
    assert (found.verdict, found.what) == ("warn", "database")
    assert problem in found.found
    replicated = settings.model_copy(update={"database_replicated": True})
    assert check_database(replicated).verdict == "ok"
    assert describe_promises(place_of(replicated)) == {"caveat": "", "single_copy": ""}
    nobody = settings.model_copy(update={"database_url": SecretStr("postgresql://127.0.0.1:1/x")})
    assert check_database(nobody).verdict == "fail"


def test_sessions_move_between_mergers(settings: Settings) -> None:
    move_and_restart(lambda: start(settings))


def test_one_service_a_schema(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ps2stream.store.postgres_owner.WAIT_S", 0.3)
    with start(settings), pytest.raises(DataDirectoryError, match="in use by 'ps2stream ledger'"):
        start(settings)


def test_the_shape_of_the_logs_is_known(settings: Settings) -> None:
    with start(settings):
        pass
    with start(settings.model_copy(update={"mergers": 1})) as service:
        assert {"merger-0", "merger-1"} <= service.status().keys(), "they are those of the start"
    with pytest.raises(DataDirectoryError, match="stemmer was fixed as None"):
        start(settings.model_copy(update={"stemmer": "english"}))


def test_tokens_of_a_database(database: PostgresDatabase, settings: Settings) -> None:
    where = ["--database-url", database.url, "--database-schema", database.schema, "--json"]
    made = CliRunner().invoke(main, ["token", "create", "--scope", "admin", *where])
    assert made.exit_code == 0, made.output
    secret = json.loads(made.output)["token"]
    listed = CliRunner().invoke(main, ["token", "list", *where])
    assert json.loads(listed.output)["id"] == secret.split("_")[1]
    with start(settings.model_copy(update={"auth": True})) as service:
        with Client(service.targets[0], token=secret) as client:
            assert client.status()["live_queries"] == 0
        in_use = CliRunner().invoke(main, ["token", "list", *where])
        assert in_use.exit_code == 8
    revoked = CliRunner().invoke(main, ["token", "revoke", secret.split("_")[1], *where])
    assert revoked.exit_code == 0
    assert CliRunner().invoke(main, ["token", "list", *where]).output == ""


def test_where_things_are_kept(tmp_path: Path) -> None:
    url = "postgresql://u:secret@db/x"
    found = load(environ={"DATABASE_URL": url})
    assert found.database_url is not None
    assert found.database_url.get_secret_value() == url
    assert "secret" not in f"{found!r} {found.model_dump_json()}"
    assert load({"data_dir": tmp_path}, environ={"DATABASE_URL": url}).database_url is None
    environ = {"DATABASE_URL": url, "PS2STREAM_DATA_DIR": str(tmp_path)}
    assert load(environ=environ).database_url is None
    both = load({"data_dir": tmp_path}, environ={"PS2STREAM_DATABASE_URL": url})
    assert both.database_url == found.database_url
    assert place(tmp_path) == DataDirectory(tmp_path)
    for wrong in ("database_replicated", "log_transactions_replicated"):
        with pytest.raises(InvalidArgument, match=f"{wrong}: needs "):
            load({wrong: True}, environ={})
    assert str(place(tmp_path, url)) == "postgresql://u@db/x, schema ps2stream"


@pytest.mark.parametrize(
    "url", ["mysql://u:secret@db/x", "secret", "postgresql://u:secret@[db/x", "", 5]
)
def test_what_is_no_url_is_refused_without_its_password(url: object, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"database_url: .*\(from flag\)") as caught:
        load({"database_url": url}, environ={})
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidArgument, match=r"\(from DATABASE_URL\)"):
        load(environ={"DATABASE_URL": "mysql://u:secret@db/x"})


def test_a_url_that_psycopg_cannot_read_is_refused_without_its_password(tmp_path: Path) -> None:
    for url in ("postgresql://u:secret@db:x y/z", "postgresql://u:secret@db/x?nonsense=1"):
        with pytest.raises(InvalidArgument, match="database_url: is not of the form") as caught:
            place(tmp_path, url)
        assert "secret" not in f"{caught.value} {caught.value.__cause__}"
    schema = {"database_schema": "a; DROP TABLE x"}
    with pytest.raises(InvalidArgument, match="database_schema"):
        load(schema, environ={})
