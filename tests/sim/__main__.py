"""python -m tests.sim: play seeds, or one, and shrink it.

python -m tests.sim --seeds 1000              JSON: seeds, violations, seeds an hour, coverage
python -m tests.sim --first 5000 --hours 8    as many as there is time for, from this one on
python -m tests.sim 4711                      the story of a seed
python -m tests.sim 4711 --shrink             the shortest schedule that still fails
python -m tests.sim 4711 --bug NAME           with a deliberate bug of bugs.py
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import sys
import time
from collections import Counter
from typing import Any

from ps2stream.cluster.kernel_cache import KernelCache
from tests.sim.many import CHUNK, play_all
from tests.sim.run import run

ENDLESS = 1 << 40
REPORTED = 1000
"""Seeds after which the progress is told."""


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
    parser.add_argument("--hours", type=float, default=0.0, help="play as many as fit into them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    given = parser.parse_args()
    KernelCache(()).discard_stale()  # else kernels of an earlier version play with today's frames
    if given.seed is None:
        seeds = given.seeds or (ENDLESS if given.hours else 100)
        return _many(given.first, seeds, given.jobs, given.bug, given.hours or math.inf)
    if given.shrink:
        from tests.sim.shrink import shrink

        found = shrink(given.seed, given.bug, say=_say)
    else:
        found = run(given.seed, given.bug)
    for at, what in found.story:
        out(f"{at / 1000:8.3f}  {what}")
    out("\n".join(["", *found.violations]) if found.violations else "\nno violation")
    return bool(found.violations)


def _many(first: int, count: int, jobs: int, bug: str, hours: float) -> int:
    """A failing seed and the progress are told at once on stderr, so that a night that is cut
    short is not lost."""
    begun = time.monotonic()
    failed: dict[int, list[str]] = {}
    total: Counter[str] = Counter()
    played = 0
    results = play_all(range(first, first + count), jobs, bug)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):  # stopped by hand: what was played is told
        for found in results:
            played += 1
            total.update(
                messages=found.messages, pairs=found.pairs, virtual_seconds=found.ms // 1000
            )
            total.update(found.events)
            if found.violations:
                failed[found.seed] = [v[:400] for v in found.violations[:3]]
                _say(f"{found.seed}: {failed[found.seed][0]}")
            if played % REPORTED == 0:
                _say(f"{played} seeds, up to {found.seed}, in {time.monotonic() - begun:.0f} s")
            if found.seed % CHUNK == CHUNK - 1 and time.monotonic() - begun > 3600 * hours:
                break
    results.close()
    seconds = time.monotonic() - begun
    report: dict[str, Any] = {
        "first": first,
        "seeds": played,
        "violations": len(failed),
        "seconds": round(seconds, 1),
        "jobs": jobs,
        "seeds_an_hour": round(3600 * played / seconds),
        "totals": dict(sorted(total.items())),
        "failed": {str(seed): failed[seed] for seed in sorted(failed)},
    }
    out(json.dumps(report, indent=1, ensure_ascii=False))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
