"""`ps2stream backup` of a service that runs, and `ps2stream restore`."""

from __future__ import annotations

import json
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner

from ps2stream import Client
from ps2stream.cli import main
from ps2stream.client.matches import Gap
from ps2stream.cluster.local_service import LocalService
from ps2stream.cluster.service import fitted_plan, topology_of
from ps2stream.config import Settings
from ps2stream.protocol.session_numbers import LEAP
from ps2stream.space.regions import Circle


@contextmanager
def serving(folder: Path) -> Iterator[Client]:
    settings = Settings(runtime="local", port=0, workers=1, data_dir=folder)
    topology = topology_of(settings, fitted_plan(settings, None))
    with LocalService(settings, topology) as service, Client(service.targets[0]) as client:
        yield client


def run(*command: str | Path) -> tuple[int, str]:
    found = CliRunner().invoke(main, [str(word) for word in command])
    return found.exit_code, found.output


def publish(client: Client, *names: str) -> None:
    client.publish([{"id": name, "lon": 0.0, "lat": 0.0, "text": "flood"} for name in names])


def take(client: Client, last: str, cursor: bytes = b"") -> tuple[list[str], list[int], list[Gap]]:
    """Until this object has come: ids of objects, their numbers, gaps."""
    names: list[str] = []
    numbers: list[int] = []
    gaps: list[Gap] = []
    with client.subscribe("s", cursor=cursor) as matches:
        for batch in matches.batches():
            if batch.gap is not None:
                gaps.append(batch.gap)
            else:
                numbers += range(batch.first, batch.last + 1)
            names += [match.object_id for match in batch]
            if last in names:
                break
    return names, numbers, gaps


def test_what_was_acknowledged_before_a_backup_is_there_after_it(tmp_path: Path) -> None:
    """Backed up under load, lost, and restored elsewhere."""
    acknowledged: list[str] = []
    enough, done = threading.Event(), threading.Event()

    def load(client: Client) -> None:
        while not done.is_set():
            some = [f"o{len(acknowledged) + i}" for i in range(50)]
            publish(client, *some)
            acknowledged.extend(some)
            if len(acknowledged) >= 1_000:
                enough.set()

    with serving(tmp_path / "data") as client:
        client.insert("q", "flood", Circle(0.0, 0.0, 5.0), session="s")
        publisher = threading.Thread(target=load, args=(client,))
        publisher.start()
        assert enough.wait(60)
        before = acknowledged.copy()
        code, said = run("backup", tmp_path / "copy", "--data-dir", tmp_path / "data", "--json")
        assert code == 0, said
        assert json.loads(said)["lsn"] == 1
        done.set()
        publisher.join()
        publish(client, "after")
        with client.subscribe("s") as matches:
            for match in matches:
                if match.object_id == "after":
                    break
            cursor = matches.cursor
    shutil.rmtree(tmp_path / "data")

    code, said = run("restore", tmp_path / "copy", "--data-dir", tmp_path / "new")
    assert code == 0, said
    for path in (tmp_path / "new").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    with serving(tmp_path / "new") as client:
        publish(client, "new")
        names, numbers, gaps = take(client, "new")
        assert set(before) <= set(names)
        assert len(names) == len(set(names))
        [gap] = gaps
        assert gap.count == 0
        rest = len(names) - (gap.first - 1)
        assert numbers == [*range(1, gap.first), *range(gap.last + 1, gap.last + 1 + rest)]
    with serving(tmp_path / "new") as client:  # the numbers go on from there
        publish(client, "newer")
        assert take(client, "newer")[1][-1] == numbers[-1] + 1

    assert run("restore", tmp_path / "copy", "--data-dir", tmp_path / "newest")[0] == 0
    with serving(tmp_path / "newest") as client:  # with a cursor from after the backup
        publish(client, "newest")
        names, numbers, [gap] = take(client, "newest", cursor)
        assert gap.last >= LEAP
        assert gap.count == 0
        assert names[-1] == "newest"
        assert numbers[-1] > gap.last


def test_a_backup_of_a_stopped_service_and_its_tokens(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as client:
        client.insert("q", "flood", Circle(0.0, 0.0, 5.0), session="s")
    where = ["--data-dir", str(tmp_path / "data")]
    assert run("token", "create", "--scope", "admin", *where)[0] == 0
    assert run("backup", tmp_path / "copy", *where)[0] == 0
    assert run("restore", tmp_path / "copy", "--data-dir", tmp_path / "new")[0] == 0
    with serving(tmp_path / "new") as client:
        assert [query.id for query in client.list()] == ["q"]
    listed = [run("token", "list", "--json", "--data-dir", tmp_path / n) for n in ("data", "new")]
    assert listed[0] == listed[1]


def test_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "data"):
        pass
    data = ["--data-dir", str(tmp_path / "data")]
    assert run("backup", tmp_path / "copy", "--data-dir", tmp_path / "none")[0] == 8
    assert run("backup", tmp_path / "data", *data)[0] == 7
    assert run("backup", tmp_path / "copy", *data)[0] == 0
    assert run("restore", tmp_path / "copy", *data)[0] == 7
    assert run("restore", tmp_path / "data", "--data-dir", tmp_path / "new")[0] == 8
    code, said = run("serve", "--runtime", "local", "--port", "0", "--data-dir", tmp_path / "copy")
    assert (code, "ps2stream restore" in said) == (8, True)
    assert run("backup", tmp_path / "data" / "inside", *data)[0] == 7
    assert run("restore", tmp_path / "copy", "--data-dir", tmp_path / "copy" / "inside")[0] == 7
    assert not {tmp_path / "data" / "inside", tmp_path / "copy" / "inside"} & {*tmp_path.rglob("*")}
    damaged: list[tuple[dict[str, object], str]] = [
        ({"files": []}, "is damaged"),
        ({"lsn": "many"}, "is damaged"),
        ({"created": None}, "is damaged"),
        ({"format": 2, "version": "9.9", "files": 0}, "restore it with ps2stream 9.9"),
    ]
    manifest = tmp_path / "copy" / "backup.json"
    good = manifest.read_text()
    for change, problem in damaged:
        manifest.write_text(json.dumps(json.loads(good) | change))
        code, said = run("restore", tmp_path / "copy", "--data-dir", tmp_path / "new")
        assert (code, problem in said) == (8, True), (change, said)
    manifest.write_text(good)
    ledger = tmp_path / "copy" / "ledger.db"
    raw = bytearray(ledger.read_bytes())
    raw[-1] ^= 1
    ledger.write_bytes(raw)
    code, said = run("restore", tmp_path / "copy", "--data-dir", tmp_path / "new")
    assert (code, "ledger.db is damaged" in said) == (8, True)
    assert not (tmp_path / "new").exists()
