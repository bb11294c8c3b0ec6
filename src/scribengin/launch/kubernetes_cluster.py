"""A Kubernetes cluster: how its API is reached, and what launchers and `doctor` ask of it. All objects are in one namespace."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2
import yaml
from lightkube import ApiError, Client, KubeConfig
from lightkube.core.exceptions import ConfigError
from lightkube.models.authorization_v1 import ResourceAttributes, SelfSubjectAccessReviewSpec
from lightkube.resources.authorization_v1 import SelfSubjectAccessReview
from lightkube.resources.core_v1 import ConfigMap, Event, Pod, Secret
from lightkube.types import PatchType

from scribengin.core.errors import EnvironmentFault, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lightkube.config.kubeconfig import SingleConfig

Kind = type[Pod] | type[ConfigMap] | type[Secret]
_Object = TypeVar("_Object", Pod, ConfigMap, Secret)
_ANSWER_S = 10.0
_LOG_LINES = 20_000
"""the lines of a pod's output that are fetched"""
IN_PODS = "https://kubernetes.default.svc"
"""the address of the API inside every cluster"""
SERVICE_ACCOUNT = "scribengin-worker"
DRIVER = "scribengin"
"""the container of a worker's pod"""


@dataclass(frozen=True, slots=True)
class KubernetesCluster:
    """A Kubernetes cluster, and how workers run in it.

    Attributes:
        access: the address of the API, and how this process logs in.
        namespace: the namespace of the workers.
        image: the image of drivers and executors, with Scribengin, Python and Java.
        service_account: the service account of drivers, which start their executors.
        python: the Python in the image.
        api: the address of the API for pods.
        template: the pod template, which drivers and executors extend; it is an object of kind Pod.
    """

    access: SingleConfig = field(repr=False)
    namespace: str
    image: str
    service_account: str = SERVICE_ACCOUNT
    python: str = "python"
    api: str = IN_PODS
    template: Mapping[str, Any] = field(default_factory=dict)

    @property
    def master(self) -> str:
        """The cluster in messages and records."""
        return f"kubernetes at {self.access.cluster.server}, namespace {self.namespace}"

    @classmethod
    def of(
        cls,
        image: str,
        *,
        config: str | None = None,
        context: str | None = None,
        namespace: str | None = None,
        service_account: str | None = None,
        template: Path | None = None,
        python: str | None = None,
        api: str | None = None,
    ) -> KubernetesCluster:
        """The cluster of a kubeconfig file.

        Args:
            image: see `KubernetesCluster`.
            config: the file; None: the service account of this pod, else KUBECONFIG, else `~/.kube/config`.
            context: the context in the file; None: the current one.
            namespace: see `KubernetesCluster`; None: that of the context, or of this pod.
            service_account: see `KubernetesCluster`.
            template: a file with a pod template in YAML.
            python: see `KubernetesCluster`.
            api: see `KubernetesCluster`.

        Raises:
            EnvironmentFault: the kubeconfig file or the pod template is not valid.
        """
        try:
            found = KubeConfig.from_env() if config is None else KubeConfig.from_file(config)
            access = found.get(context)
        # the client checks nothing of what it has read
        except (ConfigError, OSError, KeyError, ValueError, AttributeError, TypeError, yaml.YAMLError) as error:
            raise EnvironmentFault(
                f"no access to a Kubernetes cluster: {config or 'KUBECONFIG'}: {error}",
                remedy="name a kubeconfig file and one of its contexts: --kubernetes-config FILE --kubernetes-context NAME",
                code="kubernetes-settings",
            ) from error
        assert access is not None  # a default of None is not returned: without a context it raises
        chosen = {"service_account": service_account, "python": python, "api": api}
        given = {name: value for name, value in chosen.items() if value is not None}
        return cls(access, namespace or access.namespace, image, template=pod_template(template), **given)


def pod_template(path: Path | None) -> dict[str, Any]:
    """The pod template of a file; empty if there is no file. Raises EnvironmentFault: it has no valid template."""
    if path is None:
        return {}
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("kind") != "Pod" or not isinstance(found.get("spec", {}), dict):
            raise ValueError("expected one object with kind: Pod")
        whole = {**found, "spec": {"containers": [], **found.get("spec", {})}}
        if unknown := list(_unknown(whole, Pod.from_dict(whole).to_dict())):
            raise ValueError(f"unknown fields: {', '.join(unknown)}")
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise EnvironmentFault(
            f"{path} has no valid pod template: {error}",
            remedy="write it as Kubernetes' documentation describes a Pod: apiVersion: v1, kind: Pod, metadata and spec",
            code="kubernetes-settings",
        ) from error
    return found


def _unknown(found: Any, kept: Any, path: str = "") -> Iterator[str]:
    """The paths of the fields that a model of the client does not have: it leaves them out without an error."""
    if isinstance(found, dict) and isinstance(kept, dict):
        for name, value in found.items():
            at = f"{path}.{name}" if path else str(name)
            if name in kept:
                yield from _unknown(value, kept[name], at)
            elif value not in (None, [], {}, "", 0, False):
                yield at
    elif isinstance(found, list) and isinstance(kept, list):
        for index, (value, other) in enumerate(zip(found, kept, strict=True)):
            yield from _unknown(value, other, f"{path}[{index}]")


class KubernetesApi:
    """The API of a cluster, as far as launchers and `doctor` need it. For several threads.

    Every method raises Unreachable: the API does not answer; EnvironmentFault: it refuses the request.
    """

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._server = cluster.access.cluster.server
        self._namespace = cluster.namespace
        # without `trust_env` a proxy of the environment would be used for the cluster's own network
        self._client = Client(cluster.access, namespace=cluster.namespace, timeout=httpx2.Timeout(_ANSWER_S), trust_env=False)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def create(self, found: _Object) -> _Object | None:
        """Create an object; returns it, or None if one with this name exists."""
        with self._asking(f"create {_name(type(found))}"):
            try:
                return self._client.create(found)
            except ApiError as error:
                if error.status.reason == "AlreadyExists":
                    return None
                raise

    def get(self, kind: type[_Object], name: str) -> _Object | None:
        """An object; None if it does not exist."""
        with self._asking(f"read {_name(kind)}"):
            try:
                return self._client.get(kind, name)
            except ApiError as error:
                if error.status.code == 404:
                    return None
                raise

    def list(self, kind: type[_Object], labels: Mapping[str, str]) -> list[_Object]:
        """The objects with these labels."""
        with self._asking(f"list {_name(kind)}s"):
            return list(self._client.list(kind, labels={**labels}, chunk_size=500))

    def patch(self, kind: Kind, name: str, change: Mapping[str, Any]) -> bool:
        """Change an object by a merge patch. Returns False, and does nothing, if it does not exist, or has another `resourceVersion` than
        the one in the patch."""
        with self._asking(f"change {_name(kind)}s"):
            try:
                self._client.patch(kind, name, {**change}, patch_type=PatchType.MERGE)
            except ApiError as error:
                if error.status.code not in (404, 409):
                    raise
                return False
        return True

    def delete(self, kind: Kind, name: str, *, grace_s: int | None = None) -> None:
        """Delete an object; does nothing if it does not exist. `grace_s`: the time of a pod to end; None: that in its specification."""
        with self._asking(f"delete {_name(kind)}s"):
            try:
                self._client.delete(kind, name, grace_period=grace_s)
            except ApiError as error:
                if error.status.code != 404:
                    raise

    def may(self, verb: str, resource: str) -> bool:
        """True if this account may do that in the namespace. `resource`: such as `pods` or `pods/log`."""
        kind, _, part = resource.partition("/")
        asked = ResourceAttributes(namespace=self._namespace, verb=verb, resource=kind, subresource=part)
        spec = SelfSubjectAccessReviewSpec(resourceAttributes=asked)
        with self._asking("ask for its rights"):
            review = self._client.create(SelfSubjectAccessReview(spec=spec))
        return review.status is not None and bool(review.status.allowed)

    def events(self, pod: str) -> Sequence[Event]:
        """The events of a pod, oldest first."""
        with self._asking("list events"):
            found = [*self._client.list(Event, fields={"involvedObject.name": pod})]
        return sorted(found, key=lambda event: str(event.lastTimestamp or event.eventTime or ""))

    def log(self, pod: str, container: str) -> str | None:
        """The end of what a container has printed; None if there is none yet."""
        with self._asking("read the output of pods"):
            try:
                return "".join(self._client.log(pod, container=container, tail_lines=_LOG_LINES))
            except ApiError as error:
                if error.status.code in (400, 404):  # it has not started, or it is gone
                    return None
                raise

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Raise the faults of the client inside the block as faults of this class. `what`: what is requested."""
        try:
            yield
        except ApiError as error:
            raise self._refused(what, error) from error
        except (httpx2.HTTPError, ConfigError, OSError, ValueError) as error:
            raise Unreachable(
                f"the Kubernetes API does not answer at {self._server}: {error or type(error).__name__}",
                remedy="check that the cluster is running, and that kubectl reaches it with the same kubeconfig file",
                code="cluster-silent",
            ) from error

    def _refused(self, what: str, error: ApiError) -> EnvironmentFault | Unreachable:
        said, status = error.status.message or str(error), error.status.code or 0
        if status >= 500 or status == 429:
            return Unreachable(
                f"the Kubernetes API at {self._server} fails: {said}", remedy="see the log of its API server", code="cluster-silent"
            )
        if "exceeded quota" in said:
            return EnvironmentFault(
                f"the quota of namespace {self._namespace} is used up: {said}",
                remedy="end other pods, request less, or have the ResourceQuota raised",
                code="launcher-full",
            )
        if status in (401, 403):
            return EnvironmentFault(
                f"the Kubernetes API refuses to {what} in namespace {self._namespace}: {said}",
                remedy="give the account of the node the rights of the Helm chart: a Role and a RoleBinding in that namespace",
                code="kubernetes-refused",
            )
        return EnvironmentFault(
            f"the Kubernetes API refuses to {what} in namespace {self._namespace}: {said}",
            remedy="check that the namespace exists, and that the image, the pod template and the settings of the tier are valid",
            code="kubernetes-rejected",
        )


def _name(kind: type) -> str:
    return {"ConfigMap": "config map"}.get(kind.__name__, kind.__name__.lower())
