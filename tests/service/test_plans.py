"""Starting a service with a plan file: what fits, and what is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from ps2stream import Client
from ps2stream.cluster.service import fitted_plan, start
from ps2stream.config import Settings
from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.plan import text_plan
from ps2stream.routing.plan_file import save_plan
from ps2stream.space.grid import Grid


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    save_plan(text_plan(Analysis(salt=0), Grid(), 3), path)
    return path


def test_the_plan_says_how_many_workers_unless_they_are_given(plan: Path, tmp_path: Path) -> None:
    common = {"runtime": "local", "port": 0, "data_dir": tmp_path / "data", "plan": plan}
    assert fitted_plan(Settings(**common), None).workers == 3
    assert fitted_plan(Settings(**common, workers=3), None).workers == 3
    with pytest.raises(PlanError, match="made for 3 workers; this service has 2"):
        fitted_plan(Settings(**common, workers=2), None)


def test_a_foreign_plan_is_refused_without_telling_the_salt(plan: Path, tmp_path: Path) -> None:
    settings = Settings(runtime="local", port=0, data_dir=tmp_path / "data", plan=plan)
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        client.insert("q", "flood")
    salt = fitted_plan(settings, None).analysis.salt
    other = text_plan(Analysis(salt=0, stemmer="english"), Grid(), 3)
    with pytest.raises(PlanError, match=r"stemmer = 'english'; .* has None") as caught:
        fitted_plan(settings, other)
    assert str(salt) not in str(caught.value)
