"""Settings: who wins, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from pydantic import ValidationError

from ps2stream import config
from ps2stream.errors import InvalidArgument
from ps2stream.security import TenantQuota


def test_defaults() -> None:
    settings = config.load(environ={})
    assert (settings.host, settings.port, settings.dispatchers) == ("127.0.0.1", 7077, 1)
    assert settings.runtime == "ray"
    assert [config.default_workers(n) for n in (1, 2, 3, 8)] == [1, 1, 1, 6]


def test_flags_beat_environment_beats_file_beats_defaults(tmp_path: Path) -> None:
    file = tmp_path / "ps2stream.toml"
    file.write_text('port = 1\nworkers = 2\nmergers = 2\nstop_words = "en"\n')
    environ = {"PS2STREAM_WORKERS": "3", "PS2STREAM_MERGERS": "3", "HOME": "/"}
    settings = config.load({"mergers": 4, "host": None}, config=file, environ=environ)
    assert (settings.port, settings.workers, settings.mergers) == (1, 3, 4)
    assert (settings.host, settings.stop_words) == ("127.0.0.1", "en")
    assert config.load(environ={"PS2STREAM_CONFIG": str(file)}).port == 1


def test_environment_text_becomes_values() -> None:
    environ = {"PS2STREAM_STOP_WORDS": "de", "PS2STREAM_DATA_DIR": "x", "PS2STREAM_DATA": "y"}
    settings = config.load(environ=environ)
    assert settings.stop_words == "de"
    assert settings.data_dir == Path("x")


def test_settings_are_frozen() -> None:
    settings = config.load(environ={})
    with pytest.raises(ValidationError, match="frozen"):
        settings.__setattr__("port", 1)


def refused(**given: object) -> str:
    with pytest.raises(InvalidArgument) as caught:
        config.load(given, environ={})
    return str(caught.value)


def test_bad_values_are_named() -> None:
    assert "port: must be at most 65535, got 70000" in refused(port=70000)
    assert "workers: must be at least 1, got 0" in refused(workers=0)
    assert "runtime: must be 'ray' or 'local', got 'spark'" in refused(runtime="spark")
    assert "workers: must be a whole number, got 'many'" in refused(workers="many")
    assert "is too high for 3 dispatchers" in refused(port=65534, dispatchers=3)


def test_an_archive_is_a_directory_of_its_own(tmp_path: Path) -> None:
    (file := tmp_path / "file").touch()
    assert f"archive: {file} is no directory" in refused(archive=file)
    told = refused(archive=tmp_path, data_dir=tmp_path)
    assert "archive: must be another directory than data_dir" in told
    for path in (tmp_path, tmp_path / "new"):
        assert config.load({"archive": path}, environ={}).archive == path


def test_unknown_keys_are_named(tmp_path: Path) -> None:
    file = tmp_path / "ps2stream.toml"
    file.write_text("prot = 1\n")
    with pytest.raises(InvalidArgument) as caught:
        config.load(config=file, environ={"PS2STREAM_WORKER": "1"})
    assert [v.field for v in caught.value.violations] == ["prot", "worker"]
    assert f"unknown setting (from {file})" in str(caught.value)
    assert "unknown setting (from environment); did you mean workers?" in str(caught.value)


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="No such file"):
        config.load(config=tmp_path / "none.toml", environ={})
    file = tmp_path / "bad.toml"
    file.write_text("port =")
    with pytest.raises(InvalidArgument, match="is not TOML"):
        config.load(config=file, environ={})


def test_the_docs_list_every_setting_with_its_default(root: Path) -> None:
    text = (root / "docs" / "configuration.md").read_text("utf-8")
    for name, field in config.Settings.model_fields.items():
        default = "max(1, cores - 2)" if name == "workers" else field.default
        shown = "none" if default in (None, {}) else f"`{default}`"
        assert f"| `{name}` | {shown} |" in text


def test_foldings_are_names_with_commas() -> None:
    assert config.load(environ={"PS2STREAM_FOLD": "digits, accents"}).fold == "digits, accents"
    problem = refused(fold="vowels")
    assert "fold: expected some of accents, arabic-marks, digits" in problem
    assert problem.count("got") == 1


def test_quotas_are_tables_of_the_file(tmp_path: Path, root: Path) -> None:
    file = tmp_path / "ps2stream.toml"
    file.write_text("[quotas.default]\nqueries = 5\n[quotas.acme]\nstreams = 2\n")
    quotas = config.load(config=file, environ={}).security.quotas
    assert (quotas.of("acme").queries, quotas.of("acme").streams) == (5, 2)
    for bad, problem in (
        ("[quotas.acme]\nquery = 1", "quotas.acme.query: unknown key"),
        ("[quotas.acme]\nqueries = 0", "quotas.acme.queries: must be at least 1"),
        ('[quotas."a b"]\nqueries = 1', "quotas"),
    ):
        file.write_text(bad)
        with pytest.raises(InvalidArgument, match=problem):
            config.load(config=file, environ={})
    text = (root / "docs" / "configuration.md").read_text("utf-8")
    for field in dataclasses.fields(TenantQuota):
        assert f"| `{field.name}` | {field.metadata['description']} |" in text
