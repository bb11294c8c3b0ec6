"""The volumes of a pod, as folders of this machine.

A real container sees its volumes below its mount paths. Here there is no mount namespace: each volume is a folder of the pod, and the
kubelet writes that folder wherever a container would name the mount path: in its command, arguments, working directory and environment
variables, and in the text of ConfigMaps and Secrets. A program that has a mount path in its own code does not find it. The file of a
service account's token is the usual example: a kubeconfig file with that token is therefore named by the variable KUBECONFIG.
"""

from __future__ import annotations

import re
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.kubernetes.certificates import write_kubeconfig
from scribengin.core.storage import make_folder, replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.kubernetes.api import Json
    from harness.kubernetes.cluster import KubeCluster

HOST_IP = "127.0.0.1"
"""the address of each node and of each pod"""
_LABEL = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class NotMounted(Exception):
    """A volume cannot be prepared yet; the message is that of the event."""


class MountPaths:
    """The mount paths of one container, and the folders and files of this machine that they are."""

    def __init__(self, real: Mapping[str, Path]) -> None:
        """By mount path."""
        self._real = {path.rstrip("/"): str(folder) for path, folder in real.items()}
        longest_first = sorted(self._real, key=len, reverse=True)
        names = "|".join(re.escape(path) for path in longest_first)
        # not within a longer path: neither `/srv/data` nor `/database` is `/data`
        self._pattern = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)") if names else None

    def translated(self, text: str) -> str:
        """The text with the real paths."""
        return self._pattern.sub(lambda found: self._real[found[0]], text) if self._pattern else text


def field_of(pod: Json, path: str, node: str) -> str:
    """The value of a `fieldRef`.

    Args:
        pod: the pod.
        path: such as `metadata.name`.
        node: the name of its node.

    Raises:
        KeyError: the downward API has no such field.
    """
    meta, spec = pod["metadata"], pod["spec"]
    if found := _LABEL.fullmatch(path):
        return str(meta.get(found[1], {}).get(found[2], ""))
    return str(
        {
            "metadata.name": meta["name"],
            "metadata.namespace": meta["namespace"],
            "metadata.uid": meta["uid"],
            "metadata.labels": "\n".join(f'{name}="{value}"' for name, value in meta.get("labels", {}).items()),
            "metadata.annotations": "\n".join(f'{name}="{value}"' for name, value in meta.get("annotations", {}).items()),
            "spec.nodeName": node,
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "status.hostIP": HOST_IP,
            "status.hostIPs": HOST_IP,
            "status.podIP": HOST_IP,
            "status.podIPs": HOST_IP,
        }[path]
    )


class PodVolumes:
    """The volumes of one pod. They are written by `prepare`, in a folder of the pod."""

    def __init__(self, cluster: KubeCluster, pod: Json, folder: Path, node: str) -> None:
        """Name their folders.

        Args:
            cluster: its cluster, whose ConfigMaps and Secrets are read.
            pod: the pod.
            folder: the pod's folder.
            node: the name of its node.
        """
        self._cluster = cluster
        self._pod = pod
        self._folder = folder
        self._node = node
        self._namespace: str = pod["metadata"]["namespace"]
        self._volumes: dict[str, Json] = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        self._real: dict[str, Path] = {name: folder / "volumes" / name for name in self._volumes}
        self.kubeconfig: Path | None = None
        """a kubeconfig file of the pod's service account, if a token is mounted"""

    def paths_of(self, *containers: Json) -> MountPaths:
        """The mount paths of these containers; a path of several is that of the first. Valid after `prepare`."""
        real: dict[str, Path] = {}
        for container in containers:
            for mount in container.get("volumeMounts", []):
                part = mount.get("subPath") or ""
                real.setdefault(mount["mountPath"], self._real[mount["name"]] / part if part else self._real[mount["name"]])
            if message := container.get("terminationMessagePath"):
                real.setdefault(message, self.termination_file(container))
        return MountPaths(real)

    def termination_file(self, container: Json) -> Path:
        """The file in which a container may leave a last message."""
        return self._folder / "termination" / str(container["name"])

    def prepare(self) -> None:
        """Write all volumes. Raises NotMounted: an object that one needs does not exist; ApiError."""
        for name, volume in self._volumes.items():
            if "persistentVolumeClaim" in volume:
                self._real[name] = self._claimed(volume["persistentVolumeClaim"]["claimName"])
            elif "hostPath" in volume:
                self._real[name] = Path(volume["hostPath"]["path"])
        spec = self._pod["spec"]
        paths = self.paths_of(*spec.get("initContainers", []), *spec["containers"])
        for name, volume in self._volumes.items():
            try:
                files = dict(self._files(volume))
            except NotMounted as error:
                raise NotMounted(f'MountVolume.SetUp failed for volume "{name}" : {error}') from error
            make_folder(self._real[name])
            for file, data in files.items():
                path = self._real[name] / file
                make_folder(path.parent)
                replace(path, _translated(data, paths), private=True)

    def _claimed(self, name: str) -> Path:
        claim = self._cluster.api.find(f"/api/v1/namespaces/{self._namespace}/persistentvolumeclaims/{name}")
        if claim is None or claim.get("status", {}).get("phase") != "Bound":
            raise NotMounted(f'persistentvolumeclaim "{name}" not found or not bound')
        volume = self._cluster.api.get(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")["spec"]
        source = volume.get("hostPath") or volume.get("local")
        if source is None:
            raise NotMounted(f'persistentvolumeclaim "{name}": its volume is not a folder of this machine')
        return Path(source["path"])

    def _files(self, volume: Json) -> Iterator[tuple[str, bytes]]:
        """The files of one volume: path and content."""
        if "configMap" in volume:
            yield from self._of_object("configmaps", volume["configMap"]["name"], volume["configMap"])
        elif "secret" in volume:
            yield from self._of_object("secrets", volume["secret"]["secretName"], volume["secret"])
        elif "downwardAPI" in volume:
            yield from self._fields(volume["downwardAPI"])
        elif "projected" in volume:
            for source in volume["projected"].get("sources", []):
                yield from self._projected(source)
        elif not volume.keys() & {"emptyDir", "persistentVolumeClaim", "hostPath"}:
            raise NotMounted(f"volumes of this kind are not supported: {', '.join(sorted(volume.keys() - {'name'}))}")

    def _projected(self, source: Json) -> Iterator[tuple[str, bytes]]:
        if "configMap" in source:
            yield from self._of_object("configmaps", source["configMap"]["name"], source["configMap"])
        elif "secret" in source:
            yield from self._of_object("secrets", source["secret"]["name"], source["secret"])
        elif "downwardAPI" in source:
            yield from self._fields(source["downwardAPI"])
        elif "serviceAccountToken" in source:
            yield source["serviceAccountToken"]["path"], self._token().encode()

    def _token(self) -> str:
        meta = self._pod["metadata"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        token = self._cluster.service_account_token(self._namespace, self._pod["spec"]["serviceAccountName"], bound)
        self.kubeconfig = write_kubeconfig(
            self._folder / "kubeconfig", self._cluster.server, self._cluster.authority.certificate, {"token": token}, self._namespace
        )
        return token

    def _fields(self, source: Json) -> Iterator[tuple[str, bytes]]:
        for item in source.get("items", []):
            if "fieldRef" in item:
                yield item["path"], field_of(self._pod, item["fieldRef"]["fieldPath"], self._node).encode()

    def _of_object(self, kind: str, name: str, source: Json) -> Iterator[tuple[str, bytes]]:
        data = self.data_of(kind, name)
        if data is None:
            if source.get("optional"):
                return
            raise NotMounted(f'{kind.removesuffix("s")} "{name}" not found')
        items = source.get("items")
        if items is None:
            yield from data.items()
            return
        for item in items:
            if item["key"] in data:
                yield item["path"], data[item["key"]]
            elif not source.get("optional"):
                raise NotMounted(f"references non-existent {kind.removesuffix('s')} key: {item['key']}")

    def data_of(self, kind: str, name: str) -> dict[str, bytes] | None:
        """The content of a ConfigMap or a Secret of the pod's namespace, by key; None if it does not exist. Raises ApiError.

        Args:
            kind: `configmaps` or `secrets`.
            name: its name.
        """
        found = self._cluster.api.find(f"/api/v1/namespaces/{self._namespace}/{kind}/{name}")
        if found is None:
            return None
        texts: dict[str, Any] = found.get("data") or {}
        if kind == "secrets":
            return {key: b64decode(value) for key, value in texts.items()}
        binary = {key: b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
        return {key: value.encode() for key, value in texts.items()} | binary


def _translated(data: bytes, paths: MountPaths) -> bytes:
    try:
        return paths.translated(data.decode()).encode()
    except UnicodeDecodeError:
        return data
