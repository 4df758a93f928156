"""Nodes of a cluster: each has containerd, a kubelet, kube-proxy and kube-router in namespaces and
control groups of its own, on a network of hosts."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.hosts.net import Net
from tests.kubernetes.control_plane import DNS_SERVICE, PODS, ControlPlane
from tests.kubernetes.images import PAUSE
from tests.kubernetes.processes import DIES_WITH_US

CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = (
    "blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids",
    "systemd",
)  # fmt: skip
CPU_SHARES = 12 * 1024
SCRIPT = Path(__file__).parent / "node.sh"


class ClusterNode:
    """Host `number` of `net` as a node. `start` starts it, `kill` ends all that runs on it."""

    def __init__(
        self, net: Net, number: int, plane: ControlPlane, cache: Path, environ: Mapping[str, str]
    ) -> None:
        self.name = f"node-{number + 1}"
        self.address = net.hosts[number]
        self.pods = f"10.244.{number + 1}"
        self.folder = plane.folder.parent / self.name
        self.folder.mkdir(exist_ok=True)
        self._within = net.within(number)
        self._space = self._within[-1]
        self._plane, self._environ = plane, environ
        self._packages, self._images = cache / "packages", cache / "images"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, others: Mapping[str, str]) -> None:
        """Starts the node; returns at once. `others`: the pods' networks of other nodes, and where
        they are."""
        self._write_files()
        self._route(others)
        groups = list(self._make_cgroups())
        join = "".join(f"echo $$ >{group}/cgroup.procs; " for group in groups)
        inner = "exec unshare --mount --cgroup --pid --uts --ipc --fork --kill-child --mount-proc"
        command = f'{join}{inner} sh {SCRIPT} "$0" "$1" "$2"'
        network = [*DIES_WITH_US, "nsenter", f"--net=/run/netns/{self._space}"]
        with (self.folder / "node.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*network, "sh", "-c", command, str(self.folder), self.name, str(self._images)],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=dict(self._environ),
                start_new_session=True,
            )  # fmt: skip

    def check(self) -> None:
        """Raises RuntimeError with its log if the node has ended."""
        if self._process is not None and self._process.poll() is not None:
            log = (self.folder / "node.log").read_text("utf-8", "replace")
            raise RuntimeError(f"{self.name} ended with {self._process.returncode}: {log[-2000:]}")

    def kill(self) -> None:
        """Ends the node as a loss of power does: every process at once, without a word."""
        if self._process is not None:
            self._process.kill()  # the kernel kills process 1 of its namespace, and so all others
            self._process.wait()
            self._process = None
        for group in self._find_cgroups():
            for inner in sorted(group.glob("**/"), key=lambda path: -len(path.parts)):
                _remove_cgroup(inner)

    def _find_cgroups(self) -> Iterator[Path]:
        """Yields the node's control group of each controller, below our own, whose limits apply."""
        own: dict[str, str] = {}
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            own |= dict.fromkeys(controllers.removeprefix("name=").split(","), path)
        for controller in CONTROLLERS:
            if controller in own:
                found = CGROUPS / controller / own[controller].strip("/")
                yield found / f"ps2stream-{self._space}"

    def _make_cgroups(self) -> Iterator[Path]:
        for group in self._find_cgroups():
            group.mkdir(exist_ok=True)
            if group.parts[4] == "cpuset":  # a new one is empty
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (group / name).write_text((group.parent / name).read_text())
            if group.parts[4] == "cpu":  # or all pods together weigh as much as one process here
                (group / "cpu.shares").write_text(str(CPU_SHARES))
            yield group

    def _route(self, others: Mapping[str, str]) -> None:
        gateway = self.address.rpartition(".")[0] + ".1"
        self._run("ip", "route", "replace", "default", "via", gateway)
        for pods, address in others.items():
            self._run("ip", "route", "replace", f"{pods}.0/24", "via", address)
        # This machine, where the API server is, has no route to pods.
        rule = ["-s", PODS, "-d", f"{gateway}/32", "-j", "MASQUERADE"]
        self._run("iptables", "-t", "nat", "-A", "POSTROUTING", *rule)

    def _run(self, *words: str) -> None:
        command = ["nsenter", f"--net=/run/netns/{self._space}", *words]
        done = subprocess.run(
            command, env=dict(self._environ), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr}")

    def _write_files(self) -> None:
        for user, file in ((self.name, "kubelet"), ("kube-router", "kube-router")):
            (self.folder / f"{file}.kubeconfig").write_text(
                self._plane.kubeconfig(user).read_text()
            )
        (self.folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        network = self.folder / "cni"
        network.mkdir(exist_ok=True)
        (network / "10-bridge.conflist").write_text(_NETWORK % {"subnet": f"{self.pods}.0/24"})
        (self.folder / "containerd.toml").write_text(
            _CONTAINERD
            % {
                "folder": self.folder,
                "pause": PAUSE,
                "plugins": self._packages / "usr" / "lib" / "cni",
            }
        )
        kubelet = KUBELET | {
            "authentication": {"x509": {"clientCAFile": str(self._plane.authority)}},
            "resolvConf": str(self.folder / "resolv.conf"),
            "podLogsDir": "/var/log/pods",
            "volumePluginDir": str(self.folder / "plugins"),
        }
        (self.folder / "kubelet.yaml").write_text(yaml.safe_dump(kubelet))
        proxy = _PROXY | {"clientConnection": {"kubeconfig": str(self._plane.kubeconfig("proxy"))}}
        (self.folder / "proxy.yaml").write_text(yaml.safe_dump(proxy))


def _remove_cgroup(folder: Path) -> None:
    deadline = time.monotonic() + 10
    while folder.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # it is busy until the last process is gone
            folder.rmdir()
            return
        time.sleep(0.1)


KUBELET: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "failSwapOn": False,
    "clusterDNS": [DNS_SERVICE],
    "clusterDomain": "cluster.local",
    "oomScoreAdj": 0,
    "seccompDefault": True,
    "featureGates": {"KubeletInUserNamespace": True},  # what it may not set is no error
    "evictionHard": {"nodefs.available": "3%", "imagefs.available": "3%", "memory.available": "1%"},
    "imageGCHighThresholdPercent": 100,
}
_PROXY = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "mode": "iptables",
    "clusterCIDR": PODS,
    "oomScoreAdj": 0,
    "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s",
                  "tcpCloseWaitTimeout": "0s"},
}  # fmt: skip
_NETWORK = """{
  "cniVersion": "0.4.0", "name": "pods",
  "plugins": [
    {"type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "%(subnet)s"}]],
              "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
"""
_CONTAINERD = """version = 2
root = "%(folder)s/containerd"
state = "/run/containerd"
[plugins."io.containerd.internal.v1.opt"]
path = "%(folder)s/opt"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "%(pause)s"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "%(plugins)s"
conf_dir = "%(folder)s/cni"
"""
