"""The checks of the chart on a running cluster, in order."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from scripts import chart
from tests.conftest import ROOT
from tests.kubernetes.cluster import OPERATOR_NAMESPACE, Cluster, is_ready
from tests.kubernetes.images import POSTGRES, PS2STREAM, REPOSITORY
from tests.kubernetes.processes import wait_until
from tests.kubernetes.report import Report

NAMESPACE = "streams"
RELEASE = "ps2stream"
UP_S = 1500.0
"""Seconds that the service may take to be there: each pod compiles the kernels."""
ROLES = {"head": 1, "dispatcher": 1, "worker": 2, "merger": 1, "sequencer": 1, "controller": 1}
"""Pods of each component, with helm/ps2stream/values-dev.yaml."""
PART = "app.kubernetes.io/part-of=ps2stream"
_DEVELOP = ROOT / "examples" / "kubernetes" / "develop.sh"
_DEV = ROOT / "helm" / "ps2stream" / "values-dev.yaml"
_LOAD = Path(__file__).parent / "load.py"


class ChartChecks:
    """Runs the checks on `cluster`, and reports to `report`."""

    def __init__(self, cluster: Cluster, report: Report) -> None:
        self._cluster, self._report = cluster, report
        self._plane = cluster.plane
        self._loads = 0

    def run(self, only: Sequence[str] = ()) -> None:
        """Runs all, or those whose names are in `only`. What needs the service is left out when it
        does not start."""
        steps = {
            "admission": self.check_admission,
            "refusals": self.check_refusals,
            "install": self.check_install,
            "counts": self.check_counts,
            "test": self.check_helm_test,
            "policies": self.check_policies,
            "pods": self.check_pods,
            "operator": self.check_operator,
            "upgrade": self.check_upgrade,
            "node": self.check_node,
            "uninstall": self.check_uninstall,
        }
        for name, step in steps.items():
            if (not only or name in only) and step() is False:
                return

    # --- before the service is there ------------------------------------------

    def check_admission(self) -> None:
        """The API server takes all that the chart renders, in a namespace that enforces the
        standard `restricted`, and warns of nothing."""
        for case in chart.CASES:
            name = case.name.split(".")[0]
            with self._report.check(f"admission of the case {name}") as found:
                texts = chart.render(chart.values_of(case), namespace="admission").items()
                objects = [
                    each
                    for path, text in texts
                    if path.endswith(".yaml")
                    for each in yaml.safe_load_all(text)
                    if each and each["apiVersion"].split("/")[0] not in _ABSENT
                ]
                self._make_namespace("admission")
                accounts = [each for each in objects if each["kind"] == "ServiceAccount"]
                self._plane.apply(*accounts, _PRIORITY)  # without them, no pod is admitted
                done = self._plane.kubectl(
                    "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-",
                    text=yaml.safe_dump_all(objects),
                )  # fmt: skip
                assert "Warning" not in done.stderr, done.stderr
                found.append(f"{len(objects)} objects")

    def check_refusals(self) -> None:
        """The API server refuses what the chart's schema cannot know."""
        bad = {
            "a schedule of the planner": ("planner.schedule=61 * * * *", "schedule"),
            "an address of a policy": ("networkPolicy.dns[0].ipBlock.cidr=10.0.0.0/33", "cidr"),
            "requests above the limit": (
                "controller.resources.requests.memory=9Gi", "must be less than or equal",
            ),
        }  # fmt: skip
        for what, (value, problem) in bad.items():
            with self._report.check(f"refusal of {what}") as found:
                options = ["--set", value, "--set", "planner.enabled=true"]
                options += ["--set", "planner.tokenSecret.name=ps2stream-tokens"]
                refusal = self._read_refusal(
                    "helm", "install", "bad", str(chart.CHART), "--namespace", "admission",
                    "--values", str(_DEV), *options,
                )  # fmt: skip
                self._cluster.run(
                    "helm", "uninstall", "bad", "--namespace", "admission", "--ignore-not-found"
                )
                assert problem in refusal, refusal
                found.append(refusal.strip().splitlines()[-1][-160:])
        self._plane.kubectl("delete", "namespace", "admission")

    # --- the service -----------------------------------------------------------

    def check_install(self) -> bool:
        """One command installs the profile for development, with secrets and PostgreSQL."""
        with self._report.check("one command installs values-dev.yaml") as found:
            self._cluster.run(
                "sh", str(_DEVELOP), "--set", f"image.repository={REPOSITORY}",
                POSTGRES_IMAGE=POSTGRES, NAMESPACE=NAMESPACE, TIMEOUT=f"{UP_S:.0f}s",
                seconds=UP_S + 60,
            )  # fmt: skip
            found.append("the service answers with TLS")
        return self._report.results[-1].passed

    def check_counts(self) -> None:
        """Operator and controllers made of the release what the chart says."""
        with self._report.check("objects of the release") as found:
            assert self._count_ready() == ROLES, self._count_ready()
            policies = self._read("networkpolicies", PART)
            budgets = self._read("poddisruptionbudgets", PART)
            services = {each["metadata"]["name"] for each in self._read("services")}
            assert {"ps2stream", "ps2stream-head-svc", "postgres"} <= services, services
            [budget] = budgets
            assert budget["status"]["currentHealthy"] == ROLES["worker"], budget["status"]
            assert budget["status"]["disruptionsAllowed"] == 1, budget["status"]
            slices = self._read("endpointslices", "kubernetes.io/service-name=ps2stream")
            ready = [e for s in slices for e in s["endpoints"] or () if e["conditions"]["ready"]]
            assert len(ready) == ROLES["dispatcher"]
            found.append(
                f"{sum(ROLES.values())} pods, {len(services)} services, {len(policies)} policies, "
                f"{len(budgets)} budget"
            )

    def check_helm_test(self) -> None:
        """`helm test` publishes and has the match delivered, through the Service."""
        with self._report.check("helm test") as found:
            out = self._helm("test", RELEASE, "--timeout", "5m")
            found += [line for line in out.splitlines() if line.startswith("Phase:")]
            assert "Phase:          Succeeded" in found, out

    def check_policies(self) -> None:
        """Only who is named reaches the service, and nobody Ray or the database."""
        with self._report.check("network policies are enforced") as found:
            head = self._read("pods", "app.kubernetes.io/component=head")[0]["status"]["podIP"]
            database = self._read("pods", "app=postgres")[0]["status"]["podIP"]
            targets = {
                "service": ("ps2stream.streams.svc", 7077), "Ray": (head, 6379),
                "PostgreSQL": (database, 5432),
            }  # fmt: skip
            script = (
                "import json, socket, sys, time\n"
                "time.sleep(20)  # policies reach the nodes after the pod\n"
                "out = {}\n"
                "for name, (host, port) in json.loads(sys.argv[1]).items():\n"
                "    try:\n"
                "        socket.create_connection((host, port), 5).close()\n"
                "        out[name] = True\n"
                "    except OSError:\n"
                "        out[name] = False\n"
                "print(json.dumps(out))"
            )
            wanted = {
                "stranger": {"service": False, "Ray": False, "PostgreSQL": False},
                "client": {"service": True, "Ray": False, "PostgreSQL": False},
            }
            for name, reached in wanted.items():
                labels = {"ps2stream-client": "true"} if name == "client" else {}
                command = ["python", "-c", script, json.dumps(targets)]
                self._plane.apply(_client_pod(name, labels, command))
                wait_until(partial(self._has_ended, name), f"pod {name}", 180)
                log = self._plane.kubectl("logs", "-n", NAMESPACE, name).stdout
                self._plane.kubectl("delete", "pod", "-n", NAMESPACE, name, "--now")
                assert json.loads(log) == reached, f"{name}: {log}"
                found.append(f"{name}: {log.strip()}")

    def check_pods(self) -> None:
        """A pod of each role that is deleted comes again, and nothing is lost."""
        with self._report.check("a pod of each role is killed, under load") as found:
            load = self._start_load()
            for role in ROLES:
                pod = self._read("pods", f"app.kubernetes.io/component={role}")[0]
                name = pod["metadata"]["name"]
                self._plane.kubectl(
                    "delete", "pod", "-n", NAMESPACE, name, "--grace-period=0", "--force"
                )
                took = self._await_service(other_than=name)
                found.append(f"{role} {took:.0f} s")
            found.append(self._end_load(load))

    def check_operator(self) -> None:
        """Without its operator the service goes on; an operator that comes again makes the pods
        that were lost meanwhile."""
        with self._report.check("the operator is killed, then a worker") as found:
            load = self._start_load()
            self._scale_operator(0)
            worker = self._read("pods", "app.kubernetes.io/component=worker")[0]["metadata"]["name"]
            self._plane.kubectl("delete", "pod", "-n", NAMESPACE, worker, "--grace-period=0")
            time.sleep(20)
            assert self._count_ready().get("worker") == ROLES["worker"] - 1
            self._scale_operator(1)
            found.append(f"worker {self._await_service(other_than=worker):.0f} s")
            found.append(self._end_load(load))

    def check_upgrade(self) -> None:
        """`helm upgrade` with other values, and rollback, both under load."""
        with self._report.check("helm upgrade and rollback, under load") as found:
            load = self._start_load()
            before, begin = self._pod_names(), time.monotonic()
            self._helm(
                "upgrade", RELEASE, str(chart.CHART), "--values", str(_DEV),
                "--set", f"image.repository={REPOSITORY}", "--set", "settings.metrics_s=7",
                "--set", "head.resources.requests.memory=1100Mi",
                "--wait", "--timeout", f"{UP_S:.0f}s",
            )  # fmt: skip
            self._await_service()
            assert not before & self._pod_names(), "some pods are the ones of before"
            found.append(f"upgrade {time.monotonic() - begin:.0f} s")
            before, begin = self._pod_names(), time.monotonic()
            self._helm("rollback", RELEASE, "--wait", "--timeout", f"{UP_S:.0f}s")
            self._await_service()
            found.append(f"rollback {time.monotonic() - begin:.0f} s")
            assert not before & self._pod_names(), "some pods are the ones of before"
            history = json.loads(self._helm("history", RELEASE, "--output", "json"))
            found.append(f"revision {history[-1]['revision']}: {history[-1]['description']}")
            found.append(self._end_load(load))

    def check_node(self) -> None:
        """A node whose power is cut: its pods come again on the other one."""
        with self._report.check("a node is lost, under load") as found:
            load = self._start_load()
            lost = self._cluster.nodes[1]
            gone = {
                pod["metadata"]["name"]
                for pod in self._read("pods", PART)
                if pod["spec"].get("nodeName") == lost.name
            }
            assert gone, "no pod was on that node"
            lost.kill()
            begin = time.monotonic()
            wait_until(
                lambda: not any(
                    is_ready(n) for n in self._plane.read("nodes")
                    if n["metadata"]["name"] == lost.name
                ),
                "the node counts as lost", 300,
            )  # fmt: skip
            found.append(f"{len(gone)} pods; not ready after {time.monotonic() - begin:.0f} s")
            # Until then, the operator counts the pods that a lost node cannot end as existing.
            self._plane.kubectl("taint", "node", lost.name, f"{_OUT_OF_SERVICE}=lost:NoExecute")
            self._await_service(other_than=gone)
            found.append(f"service {time.monotonic() - begin:.0f} s")
            found.append(self._end_load(load))
            self._cluster.start_node(lost)
            self._plane.kubectl("taint", "node", lost.name, f"{_OUT_OF_SERVICE}-")
            found.append(f"the node is back after {self._cluster.await_nodes(300):.0f} s")

    def check_uninstall(self) -> None:
        """`helm uninstall` leaves nothing: all kinds of objects are listed."""
        with self._report.check("helm uninstall leaves nothing") as found:
            self._helm("uninstall", RELEASE, "--wait")
            kinds = self._plane.kubectl(
                "api-resources", "--verbs=list,delete", "--output=name"
            ).stdout.split()
            left: list[str] = []

            def is_empty() -> bool:
                left[:] = []
                for label in (PART, "app.kubernetes.io/instance=ps2stream", "ray.io/cluster"):
                    left.extend(
                        self._plane.kubectl(
                            "get", ",".join(kinds), "--all-namespaces", "--output=name",
                            f"--selector={label}", "--ignore-not-found",
                        ).stdout.split()
                    )  # fmt: skip
                left.extend(
                    self._plane.kubectl(
                        "get", "secret,configmap,serviceaccount,role,rolebinding,job,networkpolicy",
                        "--namespace", NAMESPACE, "--output=name",
                    ).stdout.split()
                )  # fmt: skip
                left[:] = [each for each in left if each not in _OURS]
                return not left

            try:
                wait_until(is_empty, "nothing is left", 180, every_s=3)
            except TimeoutError:
                raise AssertionError(f"left: {', '.join(left)}") from None
            found.append(f"{len(kinds)} kinds listed")

    # --- helpers -----------------------------------------------------------------

    def _read_refusal(self, *command: str) -> str:
        """Returns why a command fails; empty if it does not."""
        try:
            self._cluster.run(*command)
        except RuntimeError as error:
            return str(error)
        return ""

    def _helm(self, *words: str) -> str:
        return self._cluster.run("helm", *words, "--namespace", NAMESPACE, seconds=UP_S + 60)

    def _read(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        options = ["--namespace", NAMESPACE, *([f"--selector={selector}"] if selector else [])]
        return self._plane.read(kind, *options)

    def _phase(self, pod: str) -> str:
        [found] = [p for p in self._read("pods") if p["metadata"]["name"] == pod]
        return str(found["status"].get("phase"))

    def _has_ended(self, pod: str) -> bool:
        return self._phase(pod) in ("Succeeded", "Failed")

    def _pod_names(self) -> set[str]:
        return {p["metadata"]["name"] for p in self._read("pods", PART) if is_ready(p)}

    def _count_ready(self) -> dict[str, int]:
        """Returns the number of ready pods by component."""
        label = "app.kubernetes.io/component"
        return dict(
            Counter(p["metadata"]["labels"][label] for p in self._read("pods", PART) if is_ready(p))
        )

    def _await_service(self, other_than: str | set[str] = "", seconds: float = UP_S) -> float:
        """Waits until all pods are ready, of which none is one of `other_than`; the controller's
        readiness is that of the service. Returns the seconds."""
        old = {other_than} if isinstance(other_than, str) else other_than
        steady = 0

        def is_back() -> bool:
            nonlocal steady
            self._plane.processes.check()
            whole = self._count_ready() == ROLES and not old & self._pod_names()
            steady = steady + 1 if whole else 0
            return steady >= 5  # a probe notices a loss after some seconds

        return wait_until(is_back, f"the service is back ({self._count_ready()})", seconds, 2.0)

    def _scale_operator(self, replicas: int) -> None:
        self._plane.kubectl(
            "scale", "deployment/kuberay-operator", "-n", OPERATOR_NAMESPACE,
            f"--replicas={replicas}",
        )  # fmt: skip
        wait_until(
            lambda: sum(map(is_ready, self._plane.read("pods", "-n", OPERATOR_NAMESPACE)))
            == replicas,
            f"{replicas} operators", 120,
        )  # fmt: skip

    def _start_load(self) -> str:
        """Starts a pod that publishes and subscribes through the Service; returns its name."""
        self._loads += 1
        name = f"load-{self._loads}"
        self._plane.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "load", "namespace": NAMESPACE},
                "data": {"load.py": _LOAD.read_text("utf-8")},
            }
        )
        command = [
            "python", "/load/load.py", "ps2stream.streams.svc:7077", f"load{self._loads}",
            "/secrets/ca.crt", "/secrets/test", "/tmp/stop",
        ]  # fmt: skip
        pod = _client_pod(name, {"ps2stream-client": "true"}, command)
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self._cluster.nodes[0].name}
        self._plane.apply(pod)
        logs = ("logs", "-n", NAMESPACE, name)
        wait_until(
            lambda: "started" in self._plane.kubectl(*logs, check=False).stdout, f"{name}", 180
        )
        return name

    def _end_load(self, name: str) -> str:
        """Ends the load; returns what it counted. Raises AssertionError when it found a fault."""
        self._plane.kubectl("exec", "-n", NAMESPACE, name, "--", "touch", "/tmp/stop")
        wait_until(partial(self._has_ended, name), f"{name} ends", 360)
        log = self._plane.kubectl("logs", "-n", NAMESPACE, name).stdout
        counted = [line for line in log.splitlines() if line.startswith("{")][-1:]
        assert self._phase(name) == "Succeeded", counted or log[-2000:]
        self._plane.kubectl("delete", "pod", "-n", NAMESPACE, name, "--now")
        return "".join(counted)

    def _make_namespace(self, name: str) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        labels["pod-security.kubernetes.io/warn"] = "restricted"
        self._plane.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": labels},
            }
        )


def _client_pod(name: str, labels: dict[str, str], command: list[str]) -> dict[str, Any]:
    """Returns a pod of the namespace that keeps to the standard `restricted`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "fsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": name,
                    "image": PS2STREAM,
                    "imagePullPolicy": "Never",
                    "command": ["tini", "--", *command],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "load", "mountPath": "/load"},
                        {"name": "secrets", "mountPath": "/secrets"},
                    ],
                }
            ],
            "volumes": [
                {"name": "load", "configMap": {"name": "load", "optional": True}},
                {
                    "name": "secrets",
                    "projected": {
                        "sources": [
                            {"secret": {"name": "ps2stream-tls", "items": [
                                {"key": "ca.crt", "path": "ca.crt"}]}},
                            {"secret": {"name": "ps2stream-tokens", "items": [
                                {"key": "test", "path": "test"}]}},
                        ]
                    },
                },
            ],
        },
    }  # fmt: skip


_PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}
"""What the case tenants names."""
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""The taint of a node that is known to be off: its pods are then deleted without it."""
_ABSENT = {"monitoring.coreos.com", "cert-manager.io"}
"""Groups of custom resources that this cluster does not have."""
_OURS = {
    "secret/ps2stream-database", "secret/ps2stream-tls", "secret/ps2stream-tokens",
    "configmap/kube-root-ca.crt", "configmap/load", "serviceaccount/default",
    "networkpolicy.networking.k8s.io/postgres",
}  # fmt: skip
"""What was in the namespace before the release, or is no part of it."""
