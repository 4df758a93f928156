"""`python -m tests.kubernetes`: the chart on a real Kubernetes, which is built and run here."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import click

from tests.kubernetes.checks import ChartChecks
from tests.kubernetes.cluster import running
from tests.kubernetes.images import ImageStore
from tests.kubernetes.programs import build_programs, missing_programs, unpack_packages
from tests.kubernetes.report import Report

_CACHE = Path.home() / ".cache" / "ps2stream" / "kubernetes"


@click.command()
@click.option(
    "--cache",
    type=click.Path(path_type=Path, file_okay=False),
    default=_CACHE,
    show_default=True,
    help="Folder of programs, images and logs, outside of the repository.",
)
@click.option("--jobs", default=1, show_default=True, help="Number of compilers at a time.")
@click.option("--build-only", is_flag=True, help="Build programs and images, and start no cluster.")
@click.option("--only", multiple=True, help="Name of a check to run; several are run in order.")
def main(cache: Path, jobs: int, build_only: bool, only: tuple[str, ...]) -> None:
    """Build Kubernetes, run a cluster of two nodes on this machine, and check the chart on it.

    Needs root, Go, buildah and mmdebstrap. Exit code 1 when a check failed.
    """
    missing = list(missing_programs())
    if missing:
        raise click.ClickException("this machine lacks:\n  " + "\n  ".join(missing))
    report = Report(click.echo)
    cache = cache.resolve()
    for name in build_programs(cache / "bin", jobs):
        report.tell(f"building {name}")
    unpack_packages(cache / "packages")
    for name in ImageStore(cache, cache / "bin").build():
        report.tell(f"image {name}")
    if build_only:
        return
    report.tell("starting the cluster")
    with running(cache) as cluster:
        with report.check("two nodes with containerd and kubelet are ready") as found:
            found.append(f"{cluster.await_nodes(600):.0f} s")
        with report.check("DNS and KubeRay's operator are ready") as found:
            cluster.install_addons()
            found.append(f"{cluster.await_addons(300):.0f} s")
        if report.has_passed():
            ChartChecks(cluster, report).run(only)
    click.echo(f"\n{report.table()}\n\nlogs: {cache / 'log'}, disk: {_count_gigabytes(cache)}")
    sys.exit(not report.has_passed())


def _count_gigabytes(folder: Path) -> str:
    used = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_symlink())
    return f"{used / 1e9:.1f} GB, {shutil.disk_usage(folder).free / 1e9:.0f} GB free"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
