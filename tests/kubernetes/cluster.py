"""A whole cluster: control plane, two nodes, DNS, a volume and KubeRay's operator."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.hosts.net import Namespaces
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.images import OPERATOR
from tests.kubernetes.node import ClusterNode
from tests.kubernetes.processes import wait_until
from tests.kubernetes.programs import KUBERAY, module_folder, node_environment

OPERATOR_NAMESPACE = "kuberay"
_ADDONS = Path(__file__).parent / "addons.yaml"
_MODULE = "github.com/ray-project/kuberay/ray-operator"


class Cluster:
    """`with running(...)`. `plane` answers kubectl; `nodes` may be killed."""

    def __init__(self, plane: ControlPlane, nodes: list[ClusterNode], programs: Path) -> None:
        self.plane, self.nodes = plane, nodes
        self._programs = programs

    def start_node(self, node: ClusterNode) -> None:
        """Starts a node, or starts it again after `kill`."""
        node.start({each.pods: each.address for each in self.nodes if each is not node})

    def await_nodes(self, seconds: float) -> float:
        """Waits until every node is ready; returns the seconds."""

        def are_ready() -> bool:
            self.plane.processes.check()
            for node in self.nodes:
                node.check()
            found = self.plane.read("nodes")
            return len(found) == len(self.nodes) and all(map(is_ready, found))

        return wait_until(are_ready, "all nodes are ready", seconds)

    def install_addons(self) -> None:
        """Installs DNS and the volume, and KubeRay's operator as its module's kustomization says,
        with its image built here."""
        disk = self.nodes[0].folder / "disk"
        disk.mkdir(exist_ok=True)
        disk.chmod(0o777)
        text = _ADDONS.read_text("utf-8").replace("{folder}", str(disk))
        self.plane.apply(*yaml.safe_load_all(text))
        self.plane.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR_NAMESPACE}}
        )
        self.plane.apply(*operator_manifests(self._programs / "kubectl"))

    def await_addons(self, seconds: float) -> float:
        """Waits until DNS and operator are ready; returns the seconds."""

        def are_ready() -> bool:
            self.plane.processes.check()
            namespaces = ("kube-system", OPERATOR_NAMESPACE)
            return all(any(map(is_ready, self.plane.read("pods", "-n", n))) for n in namespaces)

        return wait_until(are_ready, "DNS and operator are ready", seconds)

    def run(self, *command: str, seconds: float = 900, **environ: str) -> str:
        """Runs a command of this machine with kubectl, helm and the cluster's kubeconfig; returns
        its output. Raises RuntimeError with what it printed."""
        environment = os.environ | {
            "PATH": f"{self._programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.plane.kubeconfig("admin")),
        } | environ  # fmt: skip
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout


def operator_manifests(kubectl: Path) -> list[dict[str, Any]]:
    """Returns the objects of KubeRay's operator, in its namespace, with its image built here."""
    source = module_folder(_MODULE, KUBERAY) / "config" / "default"
    text = subprocess.run(
        [kubectl, "kustomize", source], check=True, capture_output=True, text=True
    ).stdout
    found: list[dict[str, Any]] = [each for each in yaml.safe_load_all(text) if each]
    for each in found:
        if "namespace" in each["metadata"]:
            each["metadata"]["namespace"] = OPERATOR_NAMESPACE
        for subject in each.get("subjects", ()):
            subject["namespace"] = OPERATOR_NAMESPACE
        if each["kind"] == "Deployment":
            [container] = each["spec"]["template"]["spec"]["containers"]
            container |= {"image": OPERATOR, "imagePullPolicy": "Never"}
    return found


def is_ready(found: dict[str, Any]) -> bool:
    """Whether a node or a pod has the condition Ready, and is not about to go."""
    conditions = found.get("status", {}).get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in found["metadata"]


@contextlib.contextmanager
def running(cache: Path) -> Iterator[Cluster]:
    """Runs a cluster of two nodes with the programs and images in `cache`, which `build` made; at
    the end nothing of it is left but logs in `cache`/log. Raises BlockingIOError when another
    run has this cache."""
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with _run_cluster(cache) as cluster:
            yield cluster


@contextlib.contextmanager
def _run_cluster(cache: Path) -> Iterator[Cluster]:
    run = cache / "run"
    if run.exists():
        shutil.rmtree(run)
    (run / "plane").mkdir(parents=True)
    net = Namespaces(2)
    nodes: list[ClusterNode] = []
    plane = None
    try:
        net.make()
        address = net.hosts[0].rpartition(".")[0] + ".1"
        plane = ControlPlane(run / "plane", cache / "bin", address)
        environ = node_environment(cache / "bin", cache / "packages")
        names = [f"node-{i + 1}" for i in range(2)]
        plane.start(names)
        nodes += [ClusterNode(net, i, plane, cache, environ) for i in range(2)]
        cluster = Cluster(plane, nodes, cache / "bin")
        for node in nodes:
            cluster.start_node(node)
        yield cluster
    finally:
        for node in nodes:
            node.kill()
        if plane is not None:
            plane.end()
        net.end()
        _keep_logs(run, cache / "log")
        _remove_run(run)


def _keep_logs(run: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for log in run.glob("**/*.log"):
        inner = log.relative_to(run).parts
        if "containerd" not in inner and "kubelet" not in inner[:-1]:
            target = folder.joinpath(*inner)
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # a link to a log of a container that is gone
                shutil.copyfile(log, target)


def _remove_run(run: Path) -> None:
    for _ in range(20):  # the kernel unmounts what a node had shortly after its end
        with contextlib.suppress(OSError):
            shutil.rmtree(run)
            return
        time.sleep(0.5)
    shutil.rmtree(run)
