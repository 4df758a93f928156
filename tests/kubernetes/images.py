"""The images of a cluster, built by buildah: there is no registry, so nodes import files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from ps2stream import __version__
from tests.conftest import ROOT
from tests.kubernetes.programs import GO, module_folder

FILES = Path(__file__).parent / "images"
BASE = "localhost/python:3.11"
POSTGRES = "localhost/postgres:15"
PAUSE = "localhost/pause:1"
OPERATOR = "localhost/kuberay-operator:1"
COREDNS = "localhost/coredns:1"
REPOSITORY = "localhost/ps2stream"
PS2STREAM = f"{REPOSITORY}:{__version__}"
_WITHOUT_KERNELS = "localhost/ps2stream-plain:1"
_PACKAGES = "python3.11,python3.11-venv,python3-pip,ca-certificates"


class ImageStore:
    """buildah's storage, and the files that nodes import, both in `folder`."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._context = folder / "context"
        self._context.mkdir(parents=True, exist_ok=True)
        self._programs = programs
        self.archives = folder / "images"
        self.archives.mkdir(exist_ok=True)
        self._buildah = [
            "buildah", "--root", str(folder / "store"), "--runroot", str(folder / "store-run"),
            "--storage-driver", "overlay",
        ]  # fmt: skip

    def build(self) -> Iterator[str]:
        """Builds all images; yields the name of each before it is built. Layers that did not change
        are used again. Raises CalledProcessError."""
        base = self._context / "base.tar"
        if not base.exists():
            yield "Debian 12 with Python 3.11"
            made = ["mmdebstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm"]
            subprocess.run([*made, base.with_suffix(".new.tar")], check=True, capture_output=True)
            base.with_suffix(".new.tar").rename(base)
        shutil.copy2("/etc/ssl/certs/ca-certificates.crt", self._context)
        shutil.copy2(FILES / "postgres.sh", self._context)
        self._build_pause()
        for name in ("coredns", "kuberay-operator"):
            shutil.copy2(self._programs / name, self._context)
        yield BASE
        self._build_image(BASE, "base", {})
        for tag, program in (
            (PAUSE, "pause"), (COREDNS, "coredns"), (OPERATOR, "kuberay-operator"),
        ):  # fmt: skip
            yield tag
            self._build_image(tag, "program", {"PROGRAM": program})
            self._write_archive(tag)
        yield POSTGRES
        self._build_image(POSTGRES, "postgres", {"BASE": BASE})
        self._write_archive(POSTGRES)
        yield PS2STREAM
        plain = _WITHOUT_KERNELS
        self._build(plain, ROOT / "Dockerfile", ROOT, {"PYTHON": BASE}, "--target=ps2stream")
        self._build_image(PS2STREAM, "kernels", {"BASE": plain})
        self._write_archive(PS2STREAM)

    def _build_pause(self) -> None:
        """Builds the program that holds the namespaces of a pod."""
        source = module_folder("k8s.io/kubernetes", GO / "kubernetes") / "build/pause/linux/pause.c"
        output = self._context / "pause"
        command = ["cc", "-Os", "-static", "-DVERSION=1", "-o", str(output), str(source)]
        subprocess.run(command, check=True)

    def _build_image(self, tag: str, file: str, arguments: Mapping[str, str]) -> None:
        self._build(tag, FILES / f"{file}.Dockerfile", self._context, arguments)

    def _build(
        self, tag: str, file: Path, context: Path, arguments: Mapping[str, str], *options: str
    ) -> None:
        words = ["bud", "--quiet", "--layers", "--isolation=chroot", "--network=host", *options]
        words += [f"--build-arg={name}={value}" for name, value in arguments.items()]
        command = [*self._buildah, *words, "--tag", tag, "--file", str(file), str(context)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def _write_archive(self, tag: str) -> None:
        """Writes the image as a file, unless the file has it already."""
        inspect = [*self._buildah, "inspect", "--type=image", "--format={{.FromImageID}}", tag]
        image = subprocess.run(inspect, check=True, capture_output=True, text=True).stdout.strip()
        archive = self.archives / f"{tag.split('/')[1].replace(':', '-')}.tar"
        stamp = archive.with_suffix(".id")
        if archive.exists() and stamp.exists() and stamp.read_text() == image:
            return
        made = archive.with_suffix(".new")
        made.unlink(missing_ok=True)
        push = [
            *self._buildah,
            "push",
            "--quiet",
            tag,
            f"docker-archive:{made}:{tag}",
        ]
        subprocess.run(push, check=True, stdout=subprocess.DEVNULL)
        made.replace(archive)
        stamp.write_text(image)
