"""`ps2stream experiment`."""

from __future__ import annotations

from pathlib import Path

import click

from ps2stream.commands.output import CommandOutput, json_option, pass_output
from ps2stream.commands.shared_data import shared_file
from ps2stream.errors import invalid

NAMES = (
    "f6", "f7", "f8", "f9", "f10", "f11", "f12", "f13", "f14", "f15", "f16", "streams", "salb",
    "salb-scale", "salb-spread", "salb-subscriptions", "salb-drift", "shed-accuracy", "shed-adapt",
    "pkg-imbalance", "pkg-local", "pkg-zipf", "fish-time", "fish-memory", "fish-alpha-theta",
    "fish-ring", "hot", "w0", "w1", "w2", "clusters", "updates", "memory", "scale",
)  # fmt: skip
STREAM = "stream_tweet_words.parquet"
TUPLES, FULL_TUPLES = 1_000_000, 10_000_000
POSTS = "tweets_us_2021_2022.parquet"


@click.command()
@click.argument("name", type=click.Choice(NAMES))
@click.option(
    "--quick/--full",
    default=True,
    show_default=True,
    help="Size of the experiment: a tenth, in about a minute; or that of docs/experiments.md.",
)
@click.option(
    "--workers",
    metavar="N[,N...]",
    help="Numbers of workers, 1 to 256.  [default: 8; f11, salb*, shed-*, pkg-*, fish-*, scale: "
    "others]",
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of all draws."
)
@click.option(
    "--posts",
    metavar="FILE|none",
    help=f"File of real posts; none: no shared data, generated streams alone.  ["
    f"default: {POSTS} of PS2STREAM_DATA]",
)
@click.option(
    "--subscriptions",
    type=click.IntRange(1_000, 10_000_000),
    help="Number of subscriptions of the experiments of Le Subscribe.  [default: 3,000,000; with "
    "--full 6,000,000]",
)
@click.option(
    "--tuples",
    type=click.IntRange(1_000, 100_000_000),
    help="Length of each generated stream of the experiments of PKG and FISH, and the most of a "
    "shared one.  [default: 1,000,000; with --full 10,000,000]",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Predict real runs with --workers workers and compare them, with scale only.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Directory of NAME.json and NAME.png.",
)
@json_option
@pass_output
def experiment(
    output: CommandOutput,
    /,
    name: str,
    quick: bool,
    workers: str | None,
    seed: int,
    posts: str | None,
    subscriptions: int | None,
    tuples: int | None,
    verify: bool,
    out: Path,
) -> None:
    """Repeat an experiment of the papers, and report which of their orderings hold.

    Figures of PS2Stream: f6 baselines, f7 hybrid, f8 latency, f9 and f10 memory, f11 workers,
    f12 and f13 selection of what migrates, f14 bytes and time of migrations, f15 delays during
    migrations, f16 throughput with and without adjustment. Ours: streams, which algorithm should be
    the default, on every shared stream. S3-TM: salb words to nodes, and of the
    whole system salb-scale number of nodes, salb-spread copies of a post, salb-subscriptions number
    of subscriptions, salb-drift a mapping as time passes, shed-accuracy matches found while load is
    shed, shed-adapt the level of shedding over time. Plans are made on one part of a stream and
    judged on another. Each worker's share runs alone, one after the other, in this process, and the
    slowest one bounds the throughput; f14 and f15 run the service.
    Le Subscribe, on one core, without --workers and --posts: w0 all algorithms while the number
    of subscriptions grows, w1 and w2 comparisons too, clusters what clusters save, updates
    subscriptions that change, memory memory and load time.
    Keyed streams, simulated: of Partial Key Grouping pkg-imbalance schemes, pkg-local sources that
    know only their own loads, pkg-zipf skew and choices; of FISH fish-time, fish-memory,
    fish-alpha-theta its parameters, fish-ring workers that come and go. Ours: hot, most of the
    stream jumps to one place or word; scale, a model of 1 to 1,000 hosts by costs measured here,
    where --workers are those of --verify. docs/experiments.md has the results.
    """
    from ps2stream.experiments.plans import ExperimentSettings
    from ps2stream.experiments.suite import EXPERIMENTS, run
    from ps2stream.experiments.worlds import FULL, QUICK

    if verify and name != "scale":
        raise invalid("--verify", f"only scale is compared with real runs, not {name}")
    given = shared_file(POSTS) if posts is None else None if posts == "none" else posts
    settings = ExperimentSettings(
        size=QUICK if quick else FULL,
        workers=_parse_worker_counts(workers) if workers else EXPERIMENTS[name][not quick],
        seed=seed,
        posts=None if given is None else str(given),
        subscriptions=subscriptions or 0,
        streams=None if posts == "none" else _find_streams(),
        tuples=tuples or (TUPLES if quick else FULL_TUPLES),
        verify=verify,
        progress=lambda what: output.progress_console().print(what),
    )
    report = run(name, settings)
    try:
        data, picture = report.save(out)
    except OSError as error:
        raise invalid("--out", f"cannot write to {out}: {error.strerror}") from None
    files = {"json": str(data), "png": str(picture)}
    output.emit(report.to_dict() | {"files": files}, f"{report.text()}\n\n{data}\n{picture}")


def _find_streams() -> str | None:
    """Returns the folder of the shared keyed streams, or None."""
    found = shared_file(STREAM)
    return None if found is None else str(found.parent)


def _parse_worker_counts(text: str) -> tuple[int, ...]:
    """Parses numbers of workers into ascending order. Raises InvalidArgument."""

    parts = text.split(",")
    if not all(part.strip().isdecimal() and 1 <= int(part) <= 256 for part in parts):
        raise invalid("--workers", f"expected whole numbers from 1 to 256, got {text!r}")
    return tuple(sorted({int(part) for part in parts}))
