"""`ps2stream calibrate`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ps2stream.commands.output import CommandOutput, guard_output_file, json_option, pass_output
from ps2stream.commands.progress import StepReporter


@click.command()
@click.option("--input", metavar="FILE", help="File of posts to match.  [default: synthetic posts]")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Seed of the posts and queries.",
)
@click.option(
    "-o",
    "--output",
    "path",
    metavar="FILE",
    default="costs.json",
    show_default=True,
    help="File that c1 to c4 are written to.",
)
@json_option
@pass_output
def calibrate(output: CommandOutput, /, input: str | None, seed: int, path: str) -> None:
    """Measure the costs that plans are made with, on this machine.

    Times the workers' index on several mixes of objects, candidates (an object and a posting
    of one of its terms), inserts and deletes, and fits the cost of each: c1 to c4 of the load
    model, in microseconds. Pass the file to `plan --costs FILE`. Takes about a minute of one
    core; run it on a machine like those of the workers, with nothing else running.
    """
    from ps2stream.benchmarks import calibrate as bench

    with guard_output_file(path), StepReporter(output) as report:
        found = bench.calibrate(input or "synthetic", seed, progress=report)
        Path(path).write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    c1, c2, c3, c4 = (found[name] for name in ("c1", "c2", "c3", "c4"))
    output.emit(
        {"costs": path, **found},
        f"candidate {c1:.4f}, object {c2:.3f}, posting inserted {c3:.3f}, deleted {c4:.3f} us; "
        f"median error {found['error']:.0%}; written to {path}",
    )
