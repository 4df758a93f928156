"""`ps2stream cluster start` and `ps2stream cluster join`: the service on several hosts."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ps2stream import config, log
from ps2stream.commands.output import (
    CommandOutput,
    json_option,
    on_interrupt,
    parse_address,
    pass_output,
)
from ps2stream.commands.serve import settings_options
from ps2stream.errors import Unavailable, invalid

if TYPE_CHECKING:
    from ps2stream.cluster.ray_node import RayNode

C = TypeVar("C", bound=Callable[..., Any])
LOOK_S = 0.2
STOP_S = 60.0
_OURS = ("ray_address", "node_ip", "metrics_port", "dashboard_port")


def _node_options(*without: str) -> Callable[[Any], Any]:
    """Returns a decorator that adds the options of this host, followed by those of `serve`."""

    def add(command: Any) -> Any:
        command = settings_options(*_OURS, *without)(command)
        for option in (
            click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE",
                         envvar="PS2STREAM_CONFIG", show_envvar=True,
                         help="TOML file of settings."),
            click.option("--verbose", is_flag=True, help="Log at level debug."),
            click.option("--metrics-port", type=click.IntRange(0, 65535), metavar="NUMBER",
                         help="Port of this host that serves its actors' metrics to Prometheus."),
            click.option("--ray-ports", metavar="LOW-HIGH",
                         help="Range of 64 ports or more that Ray listens on.  [default: any]"),
            click.option("--roles", metavar="SPEC",
                         help="Actors that may run here, such as worker=4,dispatcher=1; a role "
                         "without a number allows any number of them, `none` allows no actor.  "
                         "[default: all roles]"),
            click.option("--node-ip", metavar="IP",
                         help="Address at which the other hosts reach this one."),
        ):  # fmt: skip
            command = option(command)
        return json_option(command)

    return add


@click.group()
def cluster() -> None:
    """Run the service on several hosts, in a Ray cluster.

    Run `start` on the first host and `join` on the others. The hosts share Ray's token, and
    the service keeps all its data in PostgreSQL (database_url). docs/hosts.md shows how.
    """


@cluster.command()
@click.option("--port", "head_port", type=click.IntRange(1, 65535), default=6379,
              show_default=True, metavar="NUMBER",
              help="Port at which other hosts join.")  # fmt: skip
@click.option(
    "--no-serve", is_flag=True, help="Start Ray alone; the service runs from another host."
)
@click.option("--serve-port", type=click.IntRange(0, 65535), metavar="NUMBER",
              help="Port of the service's first dispatcher: the setting `port`.")  # fmt: skip
@_node_options("port")
@pass_output
def start(
    output: CommandOutput, /, head_port: int, no_serve: bool, serve_port: int | None, **given: Any
) -> None:
    """Make this host the first of a cluster, until interrupted.

    Starts Ray's head and the service, which waits up to nodes_s seconds for hosts with room
    for its actors. Creates the token that the hosts share, unless there is one.
    """
    words = ["--head", f"--port={head_port}", "--include-dashboard=false"]
    _run_node(output, words, not no_serve, given | {"port": serve_port}, begins=True)


@cluster.command()
@click.argument("head", metavar="HEAD:PORT", callback=parse_address)
@click.option("--serve", "serves", is_flag=True, help="Run the service from this host.")
@_node_options()
@pass_output
def join(output: CommandOutput, /, head: str, serves: bool, **given: Any) -> None:
    """Add this host to the cluster of HEAD:PORT, until interrupted."""
    _run_node(output, [f"--address={head}"], serves, given)


def _run_node(
    output: CommandOutput,
    first: list[str],
    serves: bool,
    given: dict[str, Any],
    begins: bool = False,
) -> None:
    """Runs Ray, and the service where it `serves`, in the foreground. `begins` on the first host
    of a cluster. Raises Unavailable when Ray ends."""
    from ps2stream.cluster import ray_node as nodes
    from ps2stream.cluster.kernel_cache import choose_folder
    from ps2stream.cluster.roles import resources, units

    file, verbose, node_ip = given.pop("file"), given.pop("verbose"), given.pop("node_ip")
    offered = units(given.pop("roles"))
    ports, metrics_port = _parse_ports(given.pop("ray_ports")), given.pop("metrics_port") or 0
    flags = {name: value for name, value in given.items() if value is not None}
    ours = {"node_ip": node_ip, "metrics_port": 0, "dashboard_port": 0}
    settings = config.load(flags | ours | ({"ray_address": "auto"} if serves else {}), config=file)
    _share_token(output, begins, settings.niceness)
    choose_folder(os.environ)
    log.configure(as_json=output.json or settings.log_format == "json")
    if not serves:  # otherwise the service does so
        from ps2stream.cluster.warm import prepare_host

        prepare_host(settings.index)
    words = nodes.words(resources(offered), node_ip=node_ip, ports=ports, metrics_port=metrics_port)
    done = threading.Event()
    with on_interrupt(done.set), nodes.RayNode([*first, *words]) as node:
        _await_ray(node, done)
        if not done.is_set():
            shown = ", ".join(f"{role} {n}" for role, n in offered.items()) or "none"
            output.emit(
                {"event": "node", "address": node.address, "roles": offered},
                f"this host belongs to the cluster {node.address}; actors that may run here: "
                f"{shown}; stop it with Ctrl-C",
            )
        child = None
        if serves and not done.is_set():
            switches = ["--json"] * output.json + ["--verbose"] * verbose
            switches += [f"--config={file}"] * (file is not None)
            flags |= ours | {"ray_address": node.address}
            options = [f"--{k.replace('_', '-')}={v}" for k, v in flags.items() if v is not None]
            child = nodes.serving([*switches, *options])
        try:
            while not done.wait(LOOK_S) and (child is None or child.poll() is None):
                node.check()
        finally:
            code = _end_service(child)
    if code and not done.is_set():
        click.get_current_context().exit(code)
    if child is None:
        output.emit({"event": "stopped"}, "stopped")


def _share_token(output: CommandOutput, begins: bool, niceness: int) -> None:
    """Puts the hosts' common token into the environment; the first host makes one where there is
    none. Raises FailedPrecondition where no token is found."""
    from ps2stream.cluster.ray_environment import prepare, provide

    made = provide(os.environ) if begins else None
    if made is not None:
        output.emit(
            {"event": "token", "path": str(made)},
            f"the token that the hosts share is in {made}: copy it to {made} on every host that "
            "joins, readable by its user alone (chmod 600); whoever has it can run code on all "
            "hosts",
        )
    prepare(os.environ, joins=True, niceness=niceness)


def _await_ray(node: RayNode, done: threading.Event) -> None:
    from ps2stream.cluster.ray_node import UP_S

    waited = 0.0
    while not node.await_up() and not done.wait(LOOK_S):
        waited += LOOK_S
        if waited > UP_S:
            problem = f"Ray did not start on this host within {UP_S:.0f} s: {node.last()}"
            raise Unavailable(problem)


def _end_service(child: subprocess.Popen[bytes] | None) -> int:
    """Ends the service's process, where there is one, and returns its exit code."""
    if child is None:
        return 0
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()


def _parse_ports(given: str | None) -> range:
    """Parses LOW-HIGH; empty for None. Raises InvalidArgument."""
    from ps2stream.cluster.ray_node import LEAST_PORTS

    if given is None:
        return range(0)
    low, _, high = given.partition("-")
    if low.isdecimal() and high.isdecimal() and int(low) > 0 and int(high) < 1 << 16:
        ports = range(int(low), int(high) + 1)
        if len(ports) >= LEAST_PORTS:
            return ports
    problem = f"expected LOW-HIGH from 1 to 65535 with at least {LEAST_PORTS} ports, got {given!r}"
    raise invalid("--ray-ports", problem)
