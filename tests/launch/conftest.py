"""Benches of launchers; what a test leaves running is ended."""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # benches, which the modules here use

from host_bench import HostBench
from launch_benches import KubernetesBench, MemoryBench, ProcessBench, StandaloneBench

from harness.kubernetes import KubeCluster, ScriptedKubelet, spark_entrypoint
from scribengin.embedded.standalone import StandaloneCluster
from scribengin.embedded.yarn import Yarn
from scribengin.launch.standalone import SparkCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def local(tmp_path: Path) -> Iterator[ProcessBench]:
    bench = ProcessBench(tmp_path)
    yield bench
    bench.clear()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostBench]:
    bench = HostBench(tmp_path)
    yield bench
    bench.clear()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """One for all tests of this folder: it takes half a minute to come up, and some 400 MB."""
    with StandaloneCluster(tmp_path_factory.mktemp("cluster"), cores=2, memory_mib=1024) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    """One for all tests of this folder: it takes 20 s to come up, and some 900 MB."""
    with Yarn(tmp_path_factory.mktemp("yarn"), memory_mib=8192) as yarn:
        yield yarn


@pytest.fixture
def standalone(tmp_path: Path, cluster: StandaloneCluster) -> Iterator[StandaloneBench]:
    bench = StandaloneBench(tmp_path, SparkCluster(cluster.address, cluster.web))
    yield bench
    bench.clear()


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """A control plane of Kubernetes for all tests of this folder."""
    with KubeCluster(tmp_path_factory.mktemp("kubernetes")) as plane:
        yield plane


@pytest.fixture(scope="session")
def kubelet(plane: KubeCluster) -> Iterator[ScriptedKubelet]:
    """Its node."""
    with ScriptedKubelet(plane, cpus=64, memory_mib=65_536, entrypoints={"scribengin": spark_entrypoint}) as kubelet:
        yield kubelet


@pytest.fixture
def kubernetes(tmp_path: Path, plane: KubeCluster, kubelet: ScriptedKubelet) -> Iterator[KubernetesBench]:
    namespace = f"test-{secrets.token_hex(4)}"
    plane.create_namespace(namespace)
    bench = KubernetesBench(tmp_path, plane, namespace)
    yield bench
    bench.clear()


@pytest.fixture
def driver_rights(kubernetes: KubernetesBench) -> str:
    """A service account with the rights of drivers, as in the Helm chart."""
    verbs = ["create", "get", "list", "watch", "delete", "deletecollection", "patch"]
    kubernetes.bind("driver", [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}])
    return "driver"


@pytest.fixture
def memory() -> MemoryBench:
    return MemoryBench()


@pytest.fixture
def foreign() -> Iterator[subprocess.Popen[bytes]]:
    """A process that no launcher has started."""
    with subprocess.Popen([sys.executable, "-S", "-c", "import time\nwhile True: time.sleep(60)"]) as child:
        yield child
        child.kill()
