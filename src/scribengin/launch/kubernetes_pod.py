"""The objects of one worker in Kubernetes: a ConfigMap with what is public, a Secret with what is not, and the Pod of its driver.

The pod runs the worker's command as its only process. Spark's driver, which that process starts, requests the executors' pods from the
API itself, by the service account of its pod; Kubernetes deletes them with the driver's pod, which owns them.

Names are derived from the worker's id, so that a second start meets the objects of the first. An id may be longer than a name of
Kubernetes, and may have other characters: so a name is a part of it and a digest, and the id is an annotation.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.resources.core_v1 import Secret as KubernetesSecret

from scribengin.core.secret import Secret
from scribengin.launch.kubernetes_cluster import DRIVER
from scribengin.launch.process_launcher import NAME as SECRET_SETTINGS
from scribengin.launch.process_launcher import spark_environment, spark_settings_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.launch.contract import LaunchOrder
    from scribengin.launch.kubernetes_cluster import KubernetesCluster

SCOPE, ROLE, WORKER = "scribengin.io/scope", "scribengin.io/role", "scribengin.io/worker"
"""labels: the launcher's workers; what the object is (`record`, `driver`, `executor`); the name of the worker's objects. As an annotation,
WORKER is the worker's id."""
ORDER = "scribengin.io/order"
"""the annotation with the digest of the order"""
FINALIZER = "scribengin.io/outcome"
"""keeps the pod of a worker that was requested to stop until its exit status is recorded"""
REACHED_AT = "SCRIBENGIN_REACHED_AT"
"""the variable of a worker with the address of its host"""
_POD_IP = "$(POD_IP)"
_SETTINGS = "/etc/scribengin"
_PUBLIC, _PRIVATE, _WORK = f"{_SETTINGS}/public", f"{_SETTINGS}/private", "/scribengin"
_PUBLIC_SETTINGS = "spark-defaults.conf"
_EXECUTOR_TEMPLATE = "executor-pod.json"
_VARIABLE = "env."
_SLUG = 30
_NODE_LOST_S = 30
"""seconds after which the pods of a host that does not answer are replaced; Kubernetes' own default is 300"""
_MEMORY = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_MIB_OF = {"k": 2**-10, "m": 1, "g": 2**10, "t": 2**20, "": 1}
_DRIVER_MEMORY, _DRIVER_CORES = "1g", "1"
_OVERHEAD, _LEAST_OVERHEAD_MIB = 0.4, 384
"""the memory of a container besides Java's heap, as a part of it: Spark's own default for Python in Kubernetes"""
_RESTRICTED_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
_RESTRICTED_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""what the Pod Security Standard `restricted` requires"""


def object_name(scope: str, worker: str) -> str:
    """The name of a worker's objects: at most 41 characters, a-z, 0-9 and hyphens.

    >>> object_name("s", "Tweets.main-1")
    'tweets-main-1-967fb6defd'
    """
    slug = re.sub(r"[^a-z0-9]+", "-", worker.lower())[-_SLUG:].strip("-")
    return f"{slug}-{sha256(f'{scope}/{worker}'.encode()).hexdigest()[:10]}"


def record_of(order: LaunchOrder, cluster: KubernetesCluster, scope: str) -> ConfigMap:
    """The ConfigMap of a worker: its record, which owns its other objects."""
    name = object_name(scope, order.worker)
    public = {each: value for each, value in _spark_settings(order, cluster, name).items() if not isinstance(value, Secret)}
    data = {f"{_VARIABLE}{each}": value for each, value in order.environment.items() if value is not None}
    data[_PUBLIC_SETTINGS] = spark_settings_text(public)
    data[_EXECUTOR_TEMPLATE] = json.dumps(_executor_template(cluster, scope, name))
    annotations = {WORKER: order.worker, ORDER: order.digest}
    metadata = {"name": name, "labels": _labels(scope, name, "record"), "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "data": data}, ConfigMap)


def secret_of(order: LaunchOrder, scope: str, record: ConfigMap) -> KubernetesSecret:
    """The Secret of a worker. `record`: its ConfigMap, as it was created."""
    name = object_name(scope, order.worker)
    hidden = {each: value for each, value in order.spark.items() if isinstance(value, Secret)}
    data = {f"{_VARIABLE}{each}": secret.reveal() for each, secret in order.secrets.items()}
    data[SECRET_SETTINGS] = spark_settings_text(hidden)
    metadata = {"name": name, "labels": _labels(scope, name, "record"), "ownerReferences": [_owner(record)]}
    return msgspec.convert({"metadata": metadata, "type": "Opaque", "stringData": data}, KubernetesSecret)


def pod_of(order: LaunchOrder, cluster: KubernetesCluster, scope: str, record: ConfigMap) -> Pod:
    """The Pod of a worker's driver. `record`: its ConfigMap, as it was created."""
    name = object_name(scope, order.worker)
    memory_mib = _driver_mib(order.spark)
    # Kubernetes replaces the address before the process sees it
    spark = spark_environment(Path(_PRIVATE), f"k8s://{cluster.api}", "--conf", f"spark.driver.host={_POD_IP}")
    plain = {"SPARK_LOCAL_IP": _POD_IP, REACHED_AT: _POD_IP, "SPARK_CONF_DIR": _PUBLIC, "HOME": _WORK, **spark}
    values: dict[str, dict[str, Any]] = {"POD_IP": {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}}
    values |= {each: {"value": value} for each, value in plain.items()}
    values |= {each: {"valueFrom": {"configMapKeyRef": _key(name, each)}} for each, value in order.environment.items() if value is not None}
    values |= {each: {"valueFrom": {"secretKeyRef": _key(name, each)}} for each in order.secrets}
    container = {
        "name": DRIVER,
        "image": cluster.image,
        "command": [cluster.python, *order.argv[1:]],
        "workingDir": _WORK,
        "env": [{"name": each, **value} for each, value in values.items()],
        "resources": {
            "requests": {"cpu": str(order.spark.get("spark.driver.cores", _DRIVER_CORES)), "memory": f"{memory_mib}Mi"},
            "limits": {"memory": f"{memory_mib}Mi"},
        },
        "volumeMounts": [
            {"name": "scribengin-public", "mountPath": _PUBLIC, "readOnly": True},
            {"name": "scribengin-private", "mountPath": _PRIVATE, "readOnly": True},
            {"name": "scribengin-work", "mountPath": _WORK},
        ],
    }
    spec = {
        "restartPolicy": "Never",
        "serviceAccountName": cluster.service_account,
        "enableServiceLinks": False,
        "volumes": [
            {"name": "scribengin-public", "configMap": {"name": name}},
            {"name": "scribengin-private", "secret": {"secretName": name}},
            {"name": "scribengin-work", "emptyDir": {}},
        ],
    }
    metadata = {
        "name": name,
        "labels": _labels(scope, name, "driver"),
        "annotations": {WORKER: order.worker, ORDER: order.digest},
        "ownerReferences": [_owner(record)],
    }
    return msgspec.convert(_extended(cluster.template, metadata, spec, container), Pod)


def _spark_settings(order: LaunchOrder, cluster: KubernetesCluster, name: str) -> dict[str, str | Secret]:
    return {
        "spark.executor.cores": str(order.cores),
        "spark.executor.memory": f"{order.executor_mib}m",
        "spark.executor.instances": str(order.executors),
        # by default a session waits up to 30 s for its executors; here the lease and the recovery need none
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        "spark.executorEnv.PYSPARK_PYTHON": cluster.python,
        "spark.kubernetes.namespace": cluster.namespace,
        "spark.kubernetes.container.image": cluster.image,
        "spark.kubernetes.driver.pod.name": name,
        "spark.kubernetes.executor.podNamePrefix": name,
        "spark.kubernetes.executor.podTemplateFile": f"{_PUBLIC}/{_EXECUTOR_TEMPLATE}",
        "spark.kubernetes.authenticate.executor.serviceAccountName": cluster.service_account,
        # executors read nothing from it, and the service account needs no right to create one
        "spark.kubernetes.executor.disableConfigMap": "true",
        # there is none, and the service account may delete none
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        **order.spark,
    }


def _executor_template(cluster: KubernetesCluster, scope: str, name: str) -> dict[str, Any]:
    """The pod template of the executors: the cluster's, with this worker's labels, and no token of the API, which they do not call."""
    metadata = {"labels": _labels(scope, name, "executor")}
    return _extended(cluster.template, metadata, {"automountServiceAccountToken": False}, {})


def _extended(
    template: Mapping[str, Any], metadata: Mapping[str, Any], spec: Mapping[str, Any], worker: Mapping[str, Any]
) -> dict[str, Any]:
    """A pod that extends a template.

    Args:
        template: the template.
        metadata: the pod's own metadata.
        spec: the pod's own specification, without containers.
        worker: what its container of the worker has of its own.
    """
    given = template.get("spec", {})
    containers = list(given.get("containers") or [{}])
    at = next((index for index, each in enumerate(containers) if each.get("name") == DRIVER), 0)
    containers[at] = _merged({"securityContext": _RESTRICTED_CONTAINER}, {"name": DRIVER, **containers[at]}, worker)
    own = {**spec, "tolerations": _tolerations(given), "containers": containers}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _merged(template.get("metadata", {}), metadata),
        "spec": _merged({"securityContext": _RESTRICTED_POD}, {**given, "containers": []}, own),
    }


def _tolerations(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tolerations for hosts that do not answer, unless the template has some for them."""
    said = {each.get("key") for each in spec.get("tolerations", ())}
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    more = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _NODE_LOST_S}
    return [{"key": key, **more} for key in keys if key not in said]


def _labels(scope: str, name: str, role: str) -> dict[str, str]:
    return {"app.kubernetes.io/managed-by": "scribengin", SCOPE: scope, ROLE: role, WORKER: name}


def _owner(record: ConfigMap) -> dict[str, Any]:
    assert record.metadata is not None
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": record.metadata.name, "uid": record.metadata.uid}


def _key(name: str, variable: str) -> dict[str, str]:
    return {"name": name, "key": f"{_VARIABLE}{variable}"}


def _driver_mib(spark: Mapping[str, str | Secret]) -> int:
    """The memory of the driver's container, in MiB: Java's heap, and what is beside it."""
    heap_mib = _mib(str(spark.get("spark.driver.memory", _DRIVER_MEMORY)))
    if (said := spark.get("spark.driver.memoryOverhead")) is not None:
        return heap_mib + _mib(str(said))
    part = float(str(spark.get("spark.driver.memoryOverheadFactor", spark.get("spark.kubernetes.memoryOverheadFactor", _OVERHEAD))))
    return heap_mib + max(int(heap_mib * part), _LEAST_OVERHEAD_MIB)


def _mib(text: str) -> int:
    """The MiB of a size as Spark writes it, `512m` or `2g`. Raises ValueError."""
    found = _MEMORY.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a valid size of memory for Spark; expected such as 512m or 2g")
    return max(1, int(int(found[1]) * _MIB_OF[found[2].lower()]))


def _merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """One object of several: a later value replaces an earlier one; objects are merged, and the items of a later list are appended."""
    result: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            before = result.get(name)
            if isinstance(value, dict):
                result[name] = _merged(before if isinstance(before, dict) else {}, value)
            elif isinstance(value, list) and isinstance(before, list) and name not in ("command", "args", "containers"):
                result[name] = [*before, *value]
            elif isinstance(value, list):
                result[name] = [_merged(item) if isinstance(item, dict) else item for item in value]
            else:
                result[name] = value
    return result
