"""The programs of a cluster: Kubernetes, etcd, CoreDNS, KubeRay's operator, kube-router and helm
are built from their Go modules; containerd, runc and the network plugins are Debian's."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT

KUBERNETES = "v1.35.4"
INSTALLED = {
    "kube-router": "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router@v2.1.0",
    "helm": "helm.sh/helm/v3/cmd/helm@v3.22.0",
}
"""Programs of modules that build as they are."""
GO = Path(__file__).parent / "go"
KUBERAY = ROOT / "tests" / "helm" / "kuberay"
DEBIAN = (
    "containerd", "runc", "containernetworking-plugins", "iptables", "ipset", "conntrack",
    "libip4tc2", "libip6tc2", "libipset13", "libnetfilter-conntrack3", "libnfnetlink0",
    "libnftnl11", "libxtables12",
)  # fmt: skip
"""Packages that are unpacked and not installed: installed, containerd starts with the machine."""
NEEDED = {
    "go": "Go 1.25 or newer (https://go.dev/doc/install)",
    "buildah": "Debian: apt-get install buildah",
    "mmdebstrap": "Debian: apt-get install mmdebstrap",
    "ip": "Debian: apt-get install iproute2",
    "cc": "Debian: apt-get install gcc libc6-dev",
}
"""Programs that must be installed, and where they come from."""
_VERSION = "k8s.io/component-base/version"


class GoProgram(NamedTuple):
    """A package that is built to a program of the name `name`, within a module of this folder."""

    name: str
    module: Path
    package: str
    flags: str = ""


def go_programs() -> list[GoProgram]:
    """Returns the programs that are built."""
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    version = (
        f"-X {_VERSION}.gitVersion={KUBERNETES} -X {_VERSION}.gitMajor={major}"
        f" -X {_VERSION}.gitMinor={minor}"
    )
    own = GO / "kubernetes"
    of_kubernetes = (
        "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl",
        "kubelet",
    )  # fmt: skip
    return [
        *(GoProgram(name, own, f"k8s.io/kubernetes/cmd/{name}", version) for name in of_kubernetes),
        GoProgram("etcd", own, "./etcd"),
        GoProgram("coredns", GO / "coredns", "."),
        GoProgram("kuberay-operator", KUBERAY, "github.com/ray-project/kuberay/ray-operator"),
    ]


def missing_programs() -> Iterator[str]:
    """Yields what this machine lacks, as a line for the user."""
    if os.getuid() != 0:
        yield "root, for namespaces, mounts and control groups"
    if not Path("/sys/fs/cgroup/cpu").is_dir():
        yield "control groups of version 1 (kernel option systemd.unified_cgroup_hierarchy=0)"
    for name, source in NEEDED.items():
        if shutil.which(name) is None:
            yield f"{name} ({source})"


def module_folder(module: str, within: Path) -> Path:
    """Returns where the files of a Go module are, as the go.mod in `within` says which."""
    done = subprocess.run(
        ["go", "list", "-mod=mod", "-m", "-f", "{{.Dir}}", module],
        cwd=within, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return Path(done.stdout.strip())


def build_programs(folder: Path, jobs: int) -> Iterator[str]:
    """Builds into `folder` what is not there yet, with `jobs` compilers at a time; yields each
    name before it is built. Raises CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    environ = os.environ | {
        "CGO_ENABLED": "0", "GOFLAGS": f"-buildvcs=false -mod=mod -p={jobs}",
    }  # fmt: skip
    for program in go_programs():
        stamp = folder / f".{program.name}"
        locked = hashlib.sha256((program.module / "go.sum").read_bytes())
        wanted = f"{locked.hexdigest()} {program.package} {program.flags}"
        if stamp.exists() and stamp.read_text() == wanted:
            continue
        yield program.name
        command = ["go", "build", "-trimpath", "-ldflags", f"-s -w {program.flags}"]
        command += ["-o", str(folder / program.name), program.package]
        subprocess.run(command, cwd=program.module, env=environ, check=True)
        stamp.write_text(wanted)
    for name, package in INSTALLED.items():
        if not (folder / name).exists():
            yield name
            subprocess.run(
                ["go", "install", "-trimpath", "-ldflags", "-s -w", package],
                env=environ | {"GOBIN": str(folder), "GOFLAGS": f"-p={jobs}"}, cwd="/", check=True,
            )  # fmt: skip


def unpack_packages(folder: Path) -> None:
    """Unpacks Debian's packages into `folder`, unless they are there."""
    if (folder / "usr" / "bin" / "containerd").exists():
        return
    archives = folder / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    command = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *DEBIAN]
    subprocess.run(command, cwd=archives, check=True)
    for archive in archives.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
    for name in ("iptables", "ip6tables"):  # as the package's scripts do
        for suffix in ("", "-save", "-restore"):
            (folder / "usr" / "sbin" / f"{name}{suffix}").symlink_to("xtables-nft-multi")
    shutil.rmtree(archives)


def node_environment(programs: Path, packages: Path) -> dict[str, str]:
    """Returns the environment of a node's processes."""
    libraries = packages / "usr" / "lib" / "x86_64-linux-gnu"
    folders = [programs, packages / "usr" / "sbin", packages / "usr" / "bin"]
    return {
        "PATH": ":".join([*map(str, folders), "/usr/sbin", "/usr/bin", "/sbin", "/bin"]),
        "LD_LIBRARY_PATH": str(libraries),
        "XTABLES_LIBDIR": str(libraries / "xtables"),
        "HOME": "/root",
    }
