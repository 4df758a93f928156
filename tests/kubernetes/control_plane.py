"""The control plane of a cluster: etcd, API server, controller manager and scheduler, as processes
of this machine."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.processes import ProcessGroup, wait_until
from tests.support.certificates import Authority

SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
PODS = "10.244.0.0/16"
UNREACHABLE_S = 20
"""Seconds after which pods of a node that is gone are replaced; Kubernetes' default is 300."""
GRACE_S = 20
"""Seconds after which a silent node counts as gone; Kubernetes' default is 50."""
_USERS = {
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
    "kube-router": ("kube-router", "system:masters"),
}
"""Who calls the API server: its name, and its group, if any."""


class ControlPlane:
    """Starts with `start`; `address` is one of this machine that nodes reach. Its files are in
    `folder`. Port of etcd and API server: `port` and the two below it."""

    def __init__(self, folder: Path, programs: Path, address: str, port: int = 16443) -> None:
        self.folder = folder
        self.url = f"https://{address}:{port}"
        self._address, self._port = address, port
        self._programs = programs
        self.processes = ProcessGroup(folder)
        self._authority = Authority(folder)
        self._api = self._authority.issue("api", file="api", hosts=[address, API_SERVICE])
        self._caller = self._authority.issue("kube-apiserver", file="caller")
        self._accounts = self._authority.issue("accounts", file="accounts")
        self._tokens: dict[str, str] = {}

    @property
    def authority(self) -> Path:
        """The certificate authority of API server and kubelets."""
        return self._authority.ca

    def start(self, nodes: list[str]) -> None:
        """Starts the four; returns when the API server is ready. Raises RuntimeError or
        TimeoutError."""
        users = dict(_USERS)
        users |= {node: (f"system:node:{node}", "system:nodes") for node in nodes}
        self._write_tokens(users)
        etcd = [f"http://127.0.0.1:{self._port - 1}", f"http://127.0.0.1:{self._port - 2}"]
        self._start(
            "etcd", f"--data-dir={self.folder / 'etcd'}", f"--listen-client-urls={etcd[0]}",
            f"--advertise-client-urls={etcd[0]}", f"--listen-peer-urls={etcd[1]}",
            f"--initial-advertise-peer-urls={etcd[1]}", f"--initial-cluster=default={etcd[1]}",
            "--unsafe-no-fsync",
        )  # fmt: skip
        self._start(
            "kube-apiserver", f"--etcd-servers={etcd[0]}", f"--bind-address={self._address}",
            f"--advertise-address={self._address}", f"--secure-port={self._port}",
            f"--tls-cert-file={self._api.cert}", f"--tls-private-key-file={self._api.key}",
            f"--client-ca-file={self.authority}", f"--token-auth-file={self.folder / 'tokens'}",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={SERVICES}", "--allow-privileged",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._accounts.cert}",
            f"--service-account-signing-key-file={self._accounts.key}",
            f"--kubelet-client-certificate={self._caller.cert}",
            f"--kubelet-client-key={self._caller.key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--default-unreachable-toleration-seconds={UNREACHABLE_S}",
            f"--default-not-ready-toleration-seconds={UNREACHABLE_S}",
        )  # fmt: skip
        wait_until(self._is_ready, "the API server is ready", 180)
        self.apply(_KUBELET_RIGHTS)
        self._start(
            "kube-controller-manager", f"--kubeconfig={self.kubeconfig('controllers')}",
            f"--service-account-private-key-file={self._accounts.key}",
            f"--root-ca-file={self.authority}", "--use-service-account-credentials",
            "--allocate-node-cidrs", f"--cluster-cidr={PODS}", "--leader-elect=false",
            f"--node-monitor-grace-period={GRACE_S}s", "--bind-address=127.0.0.1",
        )  # fmt: skip
        self._start(
            "kube-scheduler", f"--kubeconfig={self.kubeconfig('scheduler')}",
            "--leader-elect=false", "--bind-address=127.0.0.1",
        )  # fmt: skip

    def kubeconfig(self, user: str) -> Path:
        """Returns a file with which that user calls the API server."""
        path = self.folder / f"{user}.kubeconfig"
        found = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "here",
                    "cluster": {"server": self.url, "certificate-authority": str(self.authority)},
                }
            ],
            "users": [{"name": user, "user": {"token": self._tokens[user]}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": user}}],
            "current-context": "here",
        }
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            yaml.safe_dump(found, file)
        return path

    def kubectl(
        self, *words: str, text: str = "", check: bool = True, seconds: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl as admin with `text` as its input. Raises RuntimeError with what it
        printed, unless not `check`."""
        command = [str(self._programs / "kubectl"), "--kubeconfig", str(self.kubeconfig("admin"))]
        done = subprocess.run(
            [*command, *words], input=text, capture_output=True, text=True, check=False,
            timeout=seconds,
        )  # fmt: skip
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done

    def apply(self, *manifests: Any) -> None:
        """Creates or changes these objects; the API server validates them strictly."""
        text = yaml.safe_dump_all(manifests)
        self.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", text=text)

    def read(self, kind: str, *options: str) -> list[dict[str, Any]]:
        """Returns the objects of a kind; options choose namespaces and labels."""
        done = self.kubectl("get", kind, "--output=json", *options)
        found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
        return found

    def end(self) -> None:
        """Stops the four."""
        self.processes.end()

    def _start(self, name: str, *options: str) -> None:
        self.processes.start(name, [str(self._programs / name), *options])

    def _is_ready(self) -> bool:
        self.processes.check()
        return self.kubectl("get", "--raw=/readyz", check=False).stdout == "ok"

    def _write_tokens(self, users: dict[str, tuple[str, str]]) -> None:
        self._tokens = {user: secrets.token_hex(16) for user in users}
        lines = [f'{self._tokens[u]},{name},{u},"{group}"\n' for u, (name, group) in users.items()]
        path = self.folder / "tokens"
        path.touch(0o600)
        path.write_text("".join(lines))


_KUBELET_RIGHTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "kubelet-api"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "system:kubelet-api-admin",
    },
    "subjects": [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kube-apiserver"}
    ],
}
"""What the API server may do at kubelets: logs, exec, port-forward."""
