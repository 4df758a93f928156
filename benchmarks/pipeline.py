"""`ps2stream bench pipeline`: the whole service, gRPC in and gRPC out.

Three phases on one service: load the queries; *saturated*, in which publisher and updater send as
fast as they are answered; *half load*, open loop at half the rate that was reached, or at a given
rate: a batch's latency counts from the moment it was meant to be sent, whether the sender was
late or not, to the arrival of each delivery of its objects. Publisher and subscriber are
processes of their own, so that their CPU time is counted separately. Objects, inserts and deletes
come 10 : 1 : 1, all as Arrow or bulk batches, through the public API.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ps2stream.benchmarks import workload
from ps2stream.benchmarks.figures import add_figures, merge_rounds, summarise_values
from ps2stream.benchmarks.literal_queries import make_twins
from ps2stream.benchmarks.pipeline_run import SERVER_CPU, PipelineRun
from ps2stream.benchmarks.service_access import ServiceAccess
from ps2stream.benchmarks.yardstick import (
    YardstickSpeed,
    describe_runs,
    measure_speed,
    open_yardstick,
)
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings, default_workers
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.routing.plan import built_in_plan

T = TypeVar("T")


class PipelineVariant(NamedTuple):
    """The settings in which services that are compared differ: level of publication, number of
    workers, objects a publication, and the share of queries with a phrase, a prefix or NOT."""

    level: str
    workers: int
    batch: int
    literals: float = 0.0

    def describe(self) -> str:
        """Returns a name for the variant."""
        name = f"{self.level}, workers {self.workers}, batch {self.batch}"
        return f"{name}, literals {self.literals:g}" if self.literals else name


def run_pipeline(
    queries: int = 1_000_000,
    group: str = "q1",
    source: str = "synthetic",
    mo: float | None = None,
    seconds: float = 10.0,
    batches: Sequence[int] = (1024,),
    rate: float | None = None,
    seed: int = 1,
    workers: Sequence[int] = (),
    mergers: int = 1,
    max_in_flight: int = 16,
    runtime: str = "ray",
    levels: Sequence[str] = ("durable",),
    rounds: int = 1,
    against: str | None = None,
    literals: float = 0.0,
) -> dict[str, Any]:
    """Returns the measured figures, JSON-able. `rate`: tuples per second of the latency phase.
    `mo` scales the squares' sides so that the sample of the engine benchmark gives about that
    many matches per object.

    Each round measures every combination of `levels`, `workers` and `batches` (objects per
    publication) on a new service, in turn, every second round in reverse, so that a machine that
    grows slower favours none. With several rounds every figure has a median, min and max.
    `against`: a yardstick's engine.py, run before the first round and after the last.
    `literals`: the share of queries with a phrase, a prefix or NOT; their twins of plain words
    (literal_queries.py) are compared.
    """
    analysis = Analysis(salt=seed)
    analyzer = Analyzer(analysis)
    updates = min(int(seconds * 60_000), 600_000)
    load = workload.make(source, group, queries, updates, max(batches) * 100, seed, analyzer)
    if mo is not None:
        from ps2stream.benchmarks.tuning import tune_workload

        load, _ = tune_workload(
            load, mo, analyzer, analyzer.analyse(load.posts.text_off, load.posts.text)
        )
    workers = tuple(workers) or (default_workers(),)
    loads = {0.0: load}
    if literals:
        loads[literals], loads[0.0] = make_twins(load, literals, analyzer, seed)
    variants = [
        PipelineVariant(*each)
        for each in itertools.product(levels, workers, batches, sorted(loads))
    ]
    found: dict[PipelineVariant, list[dict[str, Any]]] = {variant: [] for variant in variants}
    out: dict[str, Any] = {
        "benchmark": "pipeline",
        "settings": {
            "queries": queries,
            "group": group,
            "workload": source,
            "batch": _unpack_only(batches),
            "seconds": seconds,
            "seed": seed,
            "workers": _unpack_only(workers),
            "mergers": mergers,
            "dispatchers": 1,
            "max_in_flight": max_in_flight,
            "runtime": runtime,
            "level": _unpack_only(levels),
            "rounds": rounds,
            "literals": literals,
            "cores": os.cpu_count(),
        },
    }
    with contextlib.ExitStack() as stack:
        yardstick = stack.enter_context(open_yardstick(against, queries)) if against else None
        if yardstick is not None:
            yardstick.run()
        for variant in _alternate(variants, rounds):
            with PrivateFolder() as folder:
                settings = Settings(
                    port=0,
                    data_dir=folder.path / "data",
                    mergers=mergers,
                    max_in_flight=max_in_flight,
                    session_quota=1 << 30,
                    runtime=runtime,
                    workers=variant.workers,
                )
                places = load.posts.lon, load.posts.lat
                plan = built_in_plan(analysis, load.grid, variant.workers, places, load.counts)
                with start(settings, plan) as service:
                    own = loads[variant.literals]
                    measured = _OwnService(service)
                    run = PipelineRun(measured, own, variant.batch, rate, seconds, variant.level)
                    found[variant].append(run.measure())
        if yardstick is not None:
            yardstick.run()
            out["yardstick"] = describe_runs(yardstick)
            for figures in itertools.chain.from_iterable(found.values()):
                figures |= compare_with_yardstick(figures, measure_speed(yardstick))
    merged = {variant: merge_rounds(figures) for variant, figures in found.items()}
    if len(variants) == 1:
        return out | merged[variants[0]]
    return {
        **out,
        "variants": {variant.describe(): figures for variant, figures in merged.items()},
        **compare_variants(found),
        "verified": add_figures([figures["verified"] for figures in merged.values()]),
    }


def _alternate(variants: Sequence[T], rounds: int) -> Iterator[T]:
    for number in range(rounds):
        yield from reversed(variants) if number % 2 else variants


def compare_with_yardstick(figures: dict[str, Any], speed: YardstickSpeed) -> dict[str, float]:
    """Returns how many times the yardstick's tuples per second the service reached, and how many
    times its time a tuple the service's CPU time a tuple was."""
    full = figures["saturated"]
    return {
        "over_yardstick": full["tuples_per_second"] / speed.tuples_per_second,
        "cpu_over_yardstick": full[SERVER_CPU] / speed.us_per_tuple,
    }


def compare_variants(found: Mapping[PipelineVariant, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """Returns the ratios of the tuples per second of variants that differ from the first in one
    setting, in the same round: that of the first level over another level, and of other numbers
    of workers or objects, or shares of literals, over the first; of these also the ratio of the
    tuples per second of the server's CPU time."""
    first = next(iter(found))
    out: dict[str, Any] = {}
    for variant, figures in found.items():
        changed = [
            name for name in variant._fields if getattr(variant, name) != getattr(first, name)
        ]
        if len(changed) != 1:
            continue
        [name] = changed
        ratios = [
            each["saturated"]["tuples_per_second"] / base["saturated"]["tuples_per_second"]
            for each, base in zip(figures, found[first], strict=True)
        ]
        if name == "literals":
            costs = [
                base["saturated"][SERVER_CPU] / each["saturated"][SERVER_CPU]
                for each, base in zip(figures, found[first], strict=True)
                if each["saturated"][SERVER_CPU]  # unknown where all actors are one process
            ]
            if costs:
                out["literals_over_words_cpu"] = _summarise_rounds(costs)
            key = "literals_over_words"
        elif name == "level":
            key, ratios = f"{first.level}_over_{variant.level}", [1 / ratio for ratio in ratios]
        else:
            key = f"{name}_{getattr(variant, name)}_over_{getattr(first, name)}"
        out[key] = _summarise_rounds(ratios)
    return out


def _summarise_rounds(values: Sequence[float]) -> float | dict[str, float]:
    """Returns the only value, or median, min and max of several."""
    return values[0] if len(values) == 1 else summarise_values(values)


def _unpack_only(values: Sequence[T]) -> T | list[T]:
    """Returns the only value, or a list of several."""
    return values[0] if len(values) == 1 else list(values)


@dataclasses.dataclass
class _OwnService:
    """The service that this process started, as what is measured."""

    service: RunningService

    @property
    def access(self) -> ServiceAccess:
        return ServiceAccess(self.service.targets[0])

    def is_idle(self) -> bool:
        return not self.service.status()["dispatcher-0"]["in_flight"]

    def read_cpu(self) -> dict[str, float]:
        """Returns the CPU seconds so far of each actor, and of Ray's own daemons together."""
        spent = {
            name: status["cpu_seconds"]
            for name, status in self.service.status().items()
            if "cpu_seconds" in status
        }
        return spent | {"ray_daemons": _read_daemons_cpu()}


def _read_daemons_cpu() -> float:
    """Returns the CPU seconds of raylet and gcs_server among the children of this process."""
    tick = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 2 :].split()
        if name in ("raylet", "gcs_server") and int(fields[1]) == os.getpid():
            total += (int(fields[11]) + int(fields[12])) / tick
    return total
