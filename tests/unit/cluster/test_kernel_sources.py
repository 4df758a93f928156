"""What makes the code of kernels stale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ps2stream.cluster import kernel_cache
from ps2stream.cluster.kernel_cache import MARKER, SOURCES, VARIABLE, KernelCache
from ps2stream.cluster.kernel_sources import digest_kernels

KERNEL = "@njit(cache=True)\ndef add(a, b):\n    return a + b\n"


def make_package(folder: Path) -> Path:
    package = folder / "package"
    (package / "space").mkdir(parents=True)
    (package / "far.py").write_text("LIMIT = 1\n")
    (package / "near.py").write_text("from ps2stream.far import (\n    LIMIT,\n)\n")
    (package / "space" / "inner.py").write_text("from ps2stream.near import LIMIT\n" + KERNEL)
    (package / "outer.py").write_text("from ps2stream.space.inner import add\n" + KERNEL)
    (package / "other.py").write_text("from ps2stream.absent import x\n" + KERNEL)
    (package / "space" / "shape.py").write_text("SIDES = 4\n")
    (package / "whole.py").write_text("from ps2stream.space import shape\n" + KERNEL)
    counter = KERNEL.replace("@njit(cache=True)", "@kernel")
    (package / "counter.py").write_text("from ps2stream.space import shape\n" + counter)
    (package / "plain.py").write_text("from ps2stream.far import LIMIT\n")
    return package


def name_changed(package: Path, before: dict[str, str]) -> list[str]:
    now = digest_kernels(package, [package])
    assert now.keys() == before.keys()
    return sorted(Path(path).stem for path in now if now[path] != before[path])


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ("far", ["inner", "outer"]),
        ("space.inner", ["inner", "outer"]),
        ("outer", ["outer"]),
        ("other", ["other"]),
        ("space.shape", ["counter", "whole"]),
        ("plain", []),
    ],
)
def test_a_kernel_is_made_from_all_that_its_module_imports_in_turn(
    tmp_path: Path, changed: str, stale: list[str]
) -> None:
    package = make_package(tmp_path)
    before = digest_kernels(package, [package])
    kernels = ["counter", "inner", "other", "outer", "whole"]
    assert sorted(Path(path).stem for path in before) == kernels
    assert name_changed(package, before) == []
    source = package.joinpath(*changed.split(".")).with_suffix(".py")
    source.write_text(source.read_text() + "# changed\n")
    assert name_changed(package, before) == stale


def test_code_is_removed_when_what_it_was_made_from_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, code = make_package(tmp_path), tmp_path / "code"
    (code / "space_1f").mkdir(parents=True)
    names = "space_1f/inner.add-1.nbc", "outer.add-1.nbi", "other.add.nbc"
    files = [code / name for name in names]
    monkeypatch.setattr(kernel_cache, "PACKAGE", package)
    cache = KernelCache(["Space"], {VARIABLE: str(code)})

    def list_left() -> list[str]:
        cache.discard_stale()
        return [path.name for path in files if path.exists()]

    for path in files:
        path.write_text("code")
    assert not list_left()  # nothing says what they are
    for path in files:
        path.write_text("code")
    cache.mark()
    assert cache.complete
    assert len(list_left()) == 3
    (package / "far.py").write_text("LIMIT = 2\n")
    assert list_left() == ["other.add.nbc"]
    assert not (code / MARKER).exists()


@pytest.mark.takes_turns
@pytest.mark.parametrize(
    "program",
    [
        "import ps2stream.inprocess",
        "import ps2stream.experiments",
        "import ps2stream.benchmarks",
        "from ps2stream.cli import main; main('plan --engine numpy --objects posts.jsonl'.split())",
        "from ps2stream.cli import main; main(['match', '--queries', 'a.csv', '--objects', 'b'])",
    ],
)
def test_programs_that_compile_as_they_go_take_no_code_of_another_version(
    tmp_path: Path, root: Path, program: str
) -> None:
    (tmp_path / "posts.jsonl").write_text("{}\n")
    (tmp_path / "a.csv").write_text("id,expression\n")
    (tmp_path / "b").write_text("{}\n")
    (stale := tmp_path / "text_kernels.find-1.py311.nbi").write_text("code")
    (other := tmp_path / "of_somebody_else.nbi").write_text("code")
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env=os.environ | {VARIABLE: str(tmp_path), "PYTHONPATH": str(root)},
        check=False, capture_output=True, timeout=120,
    )  # fmt: skip
    assert not stale.exists()
    assert other.exists()
    assert (tmp_path / SOURCES).exists()
