"""Options of `ps2stream plan` that take several values, and the candidates that these make."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ps2stream.commands.output import FiniteRange, printable

if TYPE_CHECKING:
    from ps2stream.planner.candidates import CandidateScore
    from ps2stream.planner.job import PlanJob

Command = TypeVar("Command", bound=Callable[..., Any])

# The names of planner/algorithms.py, repeated here so that --help need not import its libraries.
ALGORITHMS = (
    "hash", "frequency", "hypergraph", "metric", "gC", "gFC", "gFCL", "gNFCL",
    "grid", "kdtree", "kdtree-load", "rtree", "lpt", "hybrid", "hybrid+", "hybrid-paper",
)  # fmt: skip
AUTO = "auto"
GRIDS = ("auto", "refine", "queries")


def parse_list(of: Any) -> Callable[[click.Context, click.Parameter, str], tuple[Any, ...]]:
    """Returns the callback of an option with one or several values of a click type, separated by
    commas, none of them twice. It returns them in their order."""

    def parse(context: click.Context, param: click.Parameter, value: str) -> tuple[Any, ...]:
        found = tuple(of.convert(part, param, context) for part in value.split(","))
        if len(set(found)) < len(found):
            raise click.BadParameter(f"{value} has a value twice.", context, param)
        return found

    return parse


class CandidateValues(NamedTuple):
    """The values of the options that may have several."""

    algorithms: tuple[str, ...]
    deltas: tuple[float, ...]
    epsilons: tuple[float, ...]
    thetas: tuple[int, ...]
    grids: tuple[str, ...]


_OPTIONS = (
    click.option(
        "--algorithm",
        "algorithms",
        callback=parse_list(click.Choice((AUTO, *ALGORITHMS))),
        metavar=f"[{'|'.join((AUTO, *ALGORITHMS))}][,...]",
        default="hybrid",
        show_default=True,
        help="Planning algorithm. hybrid: Algorithm 1 of PS2Stream, with loads by cells; hybrid+: "
        "space and text chosen by cost; hybrid-paper: Algorithm 1 as printed (its loads are always "
        "Definition 1's); the others are baselines; auto: hybrid,hybrid+,kdtree-load. Each of "
        "several is a candidate, and so is each of several values of --delta, --eps, --theta and "
        "--grid: the plan whose slowest worker has the least load is taken.",
    ),
    click.option(
        "--delta",
        "deltas",
        callback=parse_list(FiniteRange(0, 1)),
        metavar="FLOAT[,...]",
        default="0.5",
        show_default=True,
        help="Similarity of texts, 0 to 1, above which Algorithm 1 chooses space or text by cost.",
    ),
    click.option(
        "--eps",
        "epsilons",
        callback=parse_list(FiniteRange(min=0)),
        metavar="FLOAT[,...]",
        default="0.02",
        show_default=True,
        help="Drop in similarity below which Algorithm 1 stops dividing by space.",
    ),
    click.option(
        "--theta",
        "thetas",
        callback=parse_list(click.IntRange(min=0)),
        metavar="INTEGER[,...]",
        default="0",
        help="Largest number of leaves; 0: 16 per worker.",
    ),
    click.option(
        "--grid",
        "grids",
        callback=parse_list(click.Choice(GRIDS)),
        metavar=f"[{'|'.join(GRIDS)}][,...]",
        default="auto",
        show_default=True,
        help="Choice of the grid. refine: begin with the grid of the running service or of "
        "--base, else with that for the queries' median box, and try finer ones until no cell "
        "holds more than a quarter of a worker's even share of the load; queries: the one for the "
        "median box; auto: keep the grid of the running service or of --base, else refine.",
    ),
)


def candidate_options(command: Command) -> Command:
    """Adds the options of which several values make several candidates."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_values(options: dict[str, Any]) -> CandidateValues:
    """Takes the values of candidate_options out of a command's options."""
    return CandidateValues(*(options.pop(name) for name in CandidateValues._fields))


def list_candidates(job: PlanJob, values: CandidateValues) -> list[PlanJob]:
    """Returns a job for each algorithm, for each of delta, eps and theta where it heeds them, and
    for each choice of the grid, which begins with that of the job; without repetitions."""
    from ps2stream.planner import algorithms as known

    grids = dict.fromkeys(
        (
            None if choice == "queries" else job.grid,
            choice == "refine" or (choice == "auto" and job.grid is None),
        )
        for choice in values.grids
    )
    listed = [known.AUTO if name == AUTO else (name,) for name in values.algorithms]
    names = dict.fromkeys(itertools.chain(*listed))
    similarities = values.deltas, values.epsilons, values.thetas
    found: list[PlanJob] = []
    for (grid, is_refined), name in itertools.product(grids, names):
        heeded = similarities if name in known.BY_SIMILARITY else [v[:1] for v in similarities]
        for delta, eps, theta in itertools.product(*heeded):
            options = dataclasses.replace(job.options, delta=delta, eps=eps, theta=theta)
            one = dataclasses.replace(job, algorithm=name, options=options)
            found.append(dataclasses.replace(one, grid=grid, refine=is_refined))
    return found


def list_scores(
    jobs: Sequence[PlanJob], scores: Sequence[CandidateScore], best: int
) -> list[dict[str, Any]]:
    """Returns the candidates as JSON-ready data."""
    return [
        {
            "algorithm": job.algorithm,
            **{name: getattr(job.options, name) for name in ("delta", "eps")},
            "theta": job.options.leaves(job.workers),
            "refine": job.refine,
            **{k: v for k, v in score._asdict().items() if k not in ("number", "error")},
            "chosen": score.number == best,
        }
        if not score.error
        else {"algorithm": job.algorithm, "refine": job.refine, "error": score.error}
        for job, score in zip(jobs, scores, strict=True)
    ]


def format_scores(jobs: Sequence[PlanJob], scores: Sequence[CandidateScore], best: int) -> str:
    """Formats the candidates as a table; the chosen one is marked."""
    from ps2stream.planner.algorithms import BY_SIMILARITY
    from ps2stream.planner.show import ratio, scaled

    loads, unit = scaled([score.slowest for score in scores])
    rows = [["", "algorithm", "delta", "eps", "theta", "cells", f"slowest, {unit}", "balance",
             "leaves", "by text", "unplaced"]]  # fmt: skip
    for job, score, load in zip(jobs, scores, loads, strict=True):
        options = job.options
        values = [f"{options.delta:g}", f"{options.eps:g}", f"{options.leaves(job.workers)}"]
        if job.algorithm not in BY_SIMILARITY:
            values = ["-"] * 3
        row = ["*" if score.number == best else "", job.algorithm, *values]
        if score.error:
            rows.append([*row, printable(score.error)])
            continue
        cells = f"{1 << score.lon_bits} x {1 << score.lat_bits}"
        counts = (score.leaves, score.text_leaves, score.coarse)
        rows.append([*row, cells, load, ratio(score.balance), *(f"{n:,}" for n in counts)])
    full = [row for row in rows if len(row) == len(rows[0])]
    width = [max(map(len, column)) for column in zip(*full, strict=True)]
    return "\n".join(
        "  ".join(
            text.ljust(w) if at < 2 else text.rjust(w)
            for at, (text, w) in enumerate(zip(row, width, strict=False))
        ).rstrip()
        for row in rows
    )
