"""Prints what ps2stream requires with some extras, without the extras that they include by name.

python scripts/extra_requirements.py EXTRA...
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def list_requirements(pyproject: Path, extras: list[str]) -> list[str]:
    """Returns the requirements of the package and of its extras, each once."""
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    found = list(project["dependencies"])
    left = list(extras)
    for extra in left:
        for requirement in project["optional-dependencies"][extra]:
            own = re.fullmatch(r"ps2stream\[(.*)\]", requirement)
            if own is None:
                found.append(requirement)
            else:
                left += own[1].split(",")
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    sys.stdout.writelines(
        f"{line}\n" for line in list_requirements(Path("pyproject.toml"), sys.argv[1:])
    )
