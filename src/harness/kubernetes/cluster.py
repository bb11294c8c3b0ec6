"""A real control plane of Kubernetes on this machine: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, without root."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Self

import httpx2

from harness.kubernetes.api import ApiClient, ApiError
from harness.kubernetes.certificates import CertificateAuthority, client_certificate, write_kubeconfig
from harness.kubernetes.program import control_plane_program
from harness.kubernetes.provisioner import VolumeProvisioner
from scribengin.core.process import within
from scribengin.core.storage import make_folder
from scribengin.embedded.server import HOST, ServerProcess, free_ports, start_server

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

ADMINS = "system:masters"
"""the group that may do everything"""
_READY_WITHIN_S = 180.0
_TOKEN_S = 24 * 3600
_SERVICES = "10.96.0.0/16"


class KubeCluster:
    """A Kubernetes cluster without nodes; `ScriptedKubelet` adds them. A context manager: it runs inside the block.

    Requests are authorized as in a usual cluster (Node, RBAC), with the usual admission plugins. Each process writes to a file of its name
    in `folder/log`. All processes end with this one, even if it is killed.
    """

    def __init__(self, folder: Path, *, node_grace_s: int = 20) -> None:
        """Prepare it.

        Args:
            folder: a new folder for all its files.
            node_grace_s: how long a node may be silent before it counts as not ready.
        """
        self.folder = folder.absolute()
        self._node_grace_s = node_grace_s
        self._server = ""
        self._api: ApiClient | None = None
        self._provisioner: VolumeProvisioner | None = None
        self._authority: CertificateAuthority | None = None
        self.processes: dict[str, ServerProcess] = {}
        """by the name of the program"""
        self._commands: dict[str, list[str | Path]] = {}

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._server

    @property
    def port(self) -> int:
        """The port of the API server."""
        return int(self._server.rpartition(":")[2])

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig file of an administrator."""
        return self.folder / "admin.kubeconfig"

    @property
    def authority(self) -> CertificateAuthority:
        """The certificate authority; it exists after the start."""
        assert self._authority is not None
        return self._authority

    @property
    def api(self) -> ApiClient:
        """A client that may do everything; it exists after the start."""
        assert self._api is not None
        return self._api

    def start(self) -> None:
        """Start all processes, and return when the API server is ready and a namespace can take pods. Raises EnvironmentFault."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        program = control_plane_program()
        make_folder(self.folder)
        store, peers, port = free_ports(3)
        self._server = f"https://{HOST}:{port}"
        self._authority = authority = CertificateAuthority(self.folder / "pki")
        certificate = authority.issue("admin", "admin", (ADMINS,))
        write_kubeconfig(self.kubeconfig, self.server, authority.certificate, client_certificate(*certificate))
        self._api = ApiClient(self.server, authority.certificate, certificate=certificate)
        store_url = f"http://{HOST}:{store}"
        etcd = self._run(program, "etcd", [str(self.folder / "etcd"), store_url, f"http://{HOST}:{peers}"])
        etcd.wait_ready(lambda: _is_healthy(store_url), _READY_WITHIN_S)
        accounts = authority.key_pair("service-accounts")
        api_server = self._run(program, "kube-apiserver", _flags(self._api_server_flags(store_url, port, accounts, certificate)))
        api_server.wait_ready(self.answers, _READY_WITHIN_S)
        controllers: dict[str, str | Path] = {
            "kubeconfig": self._component_config("kube-controller-manager"),
            "leader-elect": "false",
            "secure-port": "0",
            "service-account-private-key-file": accounts[1],
            "root-ca-file": authority.certificate,
            "use-service-account-credentials": "true",
            "node-monitor-period": "2s",
            "node-monitor-grace-period": f"{self._node_grace_s}s",
            "pvclaimbinder-sync-period": "1s",
            "kube-api-qps": "200",
            "kube-api-burst": "400",
        }
        manager = self._run(program, "kube-controller-manager", _flags(controllers))
        scheduler: dict[str, str | Path] = {
            "kubeconfig": self._component_config("kube-scheduler"),
            "leader-elect": "false",
            "secure-port": "0",
        }
        self._run(program, "kube-scheduler", _flags(scheduler))
        self._provisioner = VolumeProvisioner(self._api, self.folder / "volumes")
        manager.wait_ready(lambda: self._takes_pods("default"), _READY_WITHIN_S)

    def _api_server_flags(self, store_url: str, port: int, accounts: tuple[Path, Path], client: tuple[Path, Path]) -> dict[str, str | Path]:
        """The flags of kube-apiserver.

        Args:
            store_url: the URL of etcd.
            port: its own port.
            accounts: the keys of service accounts, public and private.
            client: the certificate and key with which it asks kubelets.
        """
        serving = self.authority.issue("kube-apiserver", "kube-apiserver")
        return {
            "etcd-servers": store_url,
            "bind-address": HOST,
            "advertise-address": HOST,
            "secure-port": str(port),
            "endpoint-reconciler-type": "none",  # an Endpoints object cannot have a loopback address
            "tls-cert-file": serving[0],
            "tls-private-key-file": serving[1],
            "client-ca-file": self.authority.certificate,
            "kubelet-client-certificate": client[0],
            "kubelet-client-key": client[1],
            "kubelet-preferred-address-types": "InternalIP",
            "authorization-mode": "Node,RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": accounts[0],
            "service-account-signing-key-file": accounts[1],
            "service-cluster-ip-range": _SERVICES,
            "profiling": "false",
        }

    def _component_config(self, name: str) -> Path:
        certificate = self.authority.issue(name, f"system:{name}")
        path = self.folder / f"{name}.kubeconfig"
        return write_kubeconfig(path, self.server, self.authority.certificate, client_certificate(*certificate))

    def _run(self, program: Path, name: str, arguments: list[str]) -> ServerProcess:
        """Start a process.

        Args:
            program: the program of the control plane.
            name: which part of it.
            arguments: its arguments.
        """
        self._commands[name] = [program, name, *arguments]
        return self.restart(name)

    def kill(self, name: str) -> None:
        """Kill a process, such as `kube-apiserver`, and return when it has ended."""
        self.processes[name].kill()

    def restart(self, name: str) -> ServerProcess:
        """Start a process again that was killed, with its data and its port. Does not wait until it serves: `answers` tells.

        Args:
            name: the name of its program.

        Raises:
            EnvironmentFault: its files cannot be written.
        """
        pid_file, log = self.folder / "run" / f"{name}.pid.json", self.folder / "log" / f"{name}.log"
        self.processes[name] = start_server(name, self._commands[name], pid_file=pid_file, log=log)
        return self.processes[name]

    def answers(self) -> bool:
        """True if the API server is ready."""
        with suppress(ApiError):
            return self.api.text("/readyz") == "ok"
        return False

    def _takes_pods(self, namespace: str) -> bool:
        """True if the controllers have made what each pod of a namespace needs."""
        with suppress(ApiError):
            return all(
                self.api.find(f"/api/v1/namespaces/{namespace}/{path}")
                for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
            )
        return False

    def create_namespace(self, name: str) -> None:
        """Create a namespace, and return when it can take pods. Raises ApiError, TimeoutError."""
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        if not within(_READY_WITHIN_S, lambda: self._takes_pods(name)):
            raise TimeoutError(f"the namespace {name} has no default service account after {_READY_WITHIN_S:g} s")

    def create_volume_claim(self, namespace: str, name: str, folder: Path) -> None:
        """Create a PersistentVolumeClaim, and its volume, which is a folder of this machine, and return when they are bound.

        Args:
            namespace: its namespace, which exists.
            name: its name.
            folder: the folder; the kubelets do not delete it.

        Raises:
            ApiError: one exists.
            TimeoutError: they are not bound.
        """
        make_folder(folder)
        common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        volume = f"{namespace}-{name}"
        self.api.create(
            "/api/v1/persistentvolumes",
            {
                "metadata": {"name": volume},
                "spec": {
                    **common,
                    "capacity": {"storage": "1Gi"},
                    "hostPath": {"path": str(folder.absolute())},
                    "claimRef": {"namespace": namespace, "name": name},
                },
            },
        )
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        spec = {**common, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}
        self.api.create(claims, {"metadata": {"name": name}, "spec": spec})
        if not within(_READY_WITHIN_S, lambda: self.api.get(f"{claims}/{name}")["status"]["phase"] == "Bound"):
            raise TimeoutError(f"the claim {namespace}/{name} is not bound after {_READY_WITHIN_S:g} s")

    def service_account_token(self, namespace: str, name: str, bound_to: Mapping[str, str] | None = None) -> str:
        """A token of a service account, by the TokenRequest API. Raises ApiError.

        Args:
            namespace: its namespace.
            name: its name.
            bound_to: the object with which the token becomes invalid, such as a pod's `kind`, `apiVersion`, `name` and `uid`.
        """
        spec = {"expirationSeconds": _TOKEN_S, **({"boundObjectRef": dict(bound_to)} if bound_to else {})}
        answer = self.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", {"spec": spec})
        return str(answer["status"]["token"])

    def service_account_config(self, namespace: str, name: str) -> Path:
        """A kubeconfig file of a service account, which exists. Its rights are those that roles give to it. Raises ApiError."""
        path = self.folder / "accounts" / f"{namespace}.{name}.kubeconfig"
        make_folder(path.parent)
        token = self.service_account_token(namespace, name)
        return write_kubeconfig(path, self.server, self.authority.certificate, {"token": token}, namespace)

    def close(self) -> None:
        """Kill all processes: nothing of a test cluster must be kept. Does nothing if none runs."""
        with ExitStack() as ends:
            for process in self.processes.values():
                ends.callback(process.kill)
            if self._api is not None:
                ends.callback(self._api.close)
            if self._provisioner is not None:
                ends.callback(self._provisioner.close)
        self.processes.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _is_healthy(store_url: str) -> bool:
    with suppress(httpx2.HTTPError):
        return httpx2.get(f"{store_url}/health", trust_env=False).is_success
    return False


def _flags(values: Mapping[str, str | Path]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]
