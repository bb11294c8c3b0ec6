"""One cluster with one node for all tests of this folder; each test has a namespace of its own."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from harness.kubernetes import ApiError, KubeCluster, ScriptedKubelet, spark_entrypoint
from scribengin.core.process import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Json = dict[str, Any]
WITHIN_S = 120.0
SPARK_IMAGE = "spark:test"
_numbers = count(1)


class Bench:
    """A namespace of the cluster."""

    def __init__(self, cluster: KubeCluster, node: ScriptedKubelet) -> None:
        self.cluster = cluster
        self.node = node
        self.namespace = f"test-{next(_numbers)}"
        self.path = f"/api/v1/namespaces/{self.namespace}"
        cluster.create_namespace(self.namespace)

    def pod(self, name: str, command: Sequence[str] = (), *, more: Json | None = None, **container: Any) -> Json:
        """Create a pod of one container."""
        main = {"name": "main", "image": "any", **({"command": list(command)} if command else {}), **container}
        meta = {"name": name, **(more or {}).pop("metadata", {})} if more else {"name": name}
        spec = {"restartPolicy": "Never", "containers": [main], **(more or {})}
        return self.cluster.api.create(f"{self.path}/pods", {"metadata": meta, "spec": spec})

    def read(self, name: str) -> Json | None:
        return self.cluster.api.find(f"{self.path}/pods/{name}")

    def wait_for(self, name: str, true: Callable[[Json], Any], within_s: float = WITHIN_S) -> Json:
        """The pod as soon as this is true of it."""
        seen: list[Json | None] = []

        def is_true() -> bool:
            seen[:] = [self.read(name)]
            return seen[0] is not None and bool(true(seen[0]))

        assert within(within_s, is_true), f"{seen}\n{self.events()}"
        assert seen[0] is not None
        return seen[0]

    def wait_phase(self, name: str, *phases: str) -> Json:
        return self.wait_for(name, lambda pod: pod["status"]["phase"] in phases)

    def wait_gone(self, name: str) -> None:
        assert within(WITHIN_S, lambda: self.read(name) is None), self.read(name)

    def log(self, name: str, **query: str) -> str:
        return self.cluster.api.text(f"{self.path}/pods/{name}/log", **query)

    def wait_log(self, name: str, text: str) -> None:
        """Until the log of a running pod has this text: it has done what precedes it."""

        def has() -> bool:
            try:
                return text in self.log(name)
            except ApiError:
                return False

        assert within(WITHIN_S, has), self.read(name)

    def events(self, reason: str | None = None) -> list[str]:
        """The messages of events, all or those of a reason."""
        items = self.cluster.api.get(f"{self.path}/events")["items"]
        return [f"{each['reason']}: {each['message']}" for each in items if reason in (None, each["reason"])]

    def wait_event(self, reason: str, text: str = "") -> None:
        assert within(WITHIN_S, lambda: any(text in line for line in self.events(reason))), self.events()


def state_of(pod: Json) -> Json:
    """The state of a pod's only container."""
    (status,) = pod["status"]["containerStatuses"]
    return status["state"]


def give_rights(bench: Bench, account: str, rules: list[Json]) -> None:
    """Create a service account with these rights in its namespace."""
    bench.cluster.api.create(f"{bench.path}/serviceaccounts", {"metadata": {"name": account}})
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{bench.namespace}"
    bench.cluster.api.create(f"{rights}/roles", {"metadata": {"name": account}, "rules": rules})
    binding = {
        "metadata": {"name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": bench.namespace}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
    }
    bench.cluster.api.create(f"{rights}/rolebindings", binding)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    with KubeCluster(tmp_path_factory.mktemp("kube"), node_grace_s=10) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def node(cluster: KubeCluster) -> Iterator[ScriptedKubelet]:
    with ScriptedKubelet(cluster, entrypoints={SPARK_IMAGE: spark_entrypoint}) as node:
        yield node


@pytest.fixture
def bench(cluster: KubeCluster, node: ScriptedKubelet) -> Bench:
    return Bench(cluster, node)
