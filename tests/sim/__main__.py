"""python -m tests.sim: play seeds, or one, and shrink it.

python -m tests.sim --seeds 1000 --jobs 2     JSON: seeds, violations, seconds, coverage
python -m tests.sim 4711                      the story of a seed
python -m tests.sim 4711 --shrink             the shortest schedule that still fails
python -m tests.sim 4711 --bug NAME           with a deliberate bug of bugs.py
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from typing import Any

from tests.sim.many import play_all
from tests.sim.run import run


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def out(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--shrink", action="store_true", help="drop events while it still fails")
    parser.add_argument("--bug", default="", help="a deliberate bug, see bugs.py")
    parser.add_argument("--seeds", type=int, default=0, help="play so many")
    parser.add_argument("--first", type=int, default=0, help="from this one on")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    if given.seed is None:
        return _many(given.first, given.seeds or 100, given.jobs, given.bug)
    if given.shrink:
        from tests.sim.shrink import shrink

        found = shrink(given.seed, given.bug, say=_say)
    else:
        found = run(given.seed, given.bug)
    for at, what in found.story:
        out(f"{at / 1000:8.3f}  {what}")
    out("\n".join(["", *found.violations]) if found.violations else "\nno violation")
    return bool(found.violations)


def _many(first: int, count: int, jobs: int, bug: str) -> int:
    begun = time.monotonic()
    failed: dict[int, list[str]] = {}
    total: Counter[str] = Counter()
    for found in play_all(range(first, first + count), jobs, bug):
        total.update(messages=found.messages, pairs=found.pairs, virtual_seconds=found.ms // 1000)
        total.update(found.events)
        if found.violations:
            failed[found.seed] = [v[:400] for v in found.violations[:3]]
    report: dict[str, Any] = {
        "seeds": count,
        "violations": len(failed),
        "seconds": round(time.monotonic() - begun, 1),
        "totals": dict(sorted(total.items())),
        "failed": {str(seed): failed[seed] for seed in sorted(failed)},
    }
    out(json.dumps(report, indent=1, ensure_ascii=False))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
