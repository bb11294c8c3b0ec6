"""What runs in a container: its command line, its environment and its working directory, from the pod's specification."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.kubernetes.volumes import PodVolumes, field_of
from scribengin.core.java import find_java
from scribengin.core.storage import make_folder

if TYPE_CHECKING:
    from harness.kubernetes.api import Json
    from harness.kubernetes.volumes import MountPaths

Entrypoint = Sequence[str] | Callable[[Sequence[str], Mapping[str, str]], Sequence[str]]
"""what stands for the entrypoint of an image: a command line before the container's arguments, or a function of the arguments and the
environment that returns the whole command line"""

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)")
_INHERITED = ("LANG", "LC_ALL", "TZ", "SCRIBENGIN_CACHE", "XDG_CACHE_HOME")
_UNITS = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
_QUANTITY = re.compile(r"([0-9.]+)([A-Za-z]*)")


class NotConfigured(Exception):
    """A container cannot be created: an object that its environment needs does not exist, or it has no command."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """How the process of a container is started."""

    command: list[str]
    environment: dict[str, str]
    folder: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Images:
    """What the images of a kubelet have: entrypoints by image name, and environment variables of all images."""

    entrypoints: Mapping[str, Entrypoint]
    environment: Mapping[str, str]


def quantity(text: str | float) -> float:
    """The number that a quantity such as `500m` or `2Gi` is. Raises ValueError."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"{text} is not a quantity")
    return float(found[1]) * _UNITS[found[2]]


class ContainerBuilder:
    """Builds the command lines of one pod's containers."""

    def __init__(self, pod: Json, volumes: PodVolumes, *, node: str, server_port: int, images: Images, folder: Path) -> None:
        """Prepare it.

        Args:
            pod: the pod.
            volumes: its volumes, which are prepared.
            node: the name of its node.
            server_port: the port of the API server.
            images: what its images have.
            folder: the pod's folder.
        """
        self._pod = pod
        self._volumes = volumes
        self._node = node
        self._server_port = server_port
        self._images = images
        self._folder = folder

    def launch_of(self, container: Json) -> Launch:
        """How a container is started. Raises NotConfigured, ApiError."""
        paths = self._volumes.paths_of(container)
        given = self._given(container, paths)
        folder = self._working_folder(container, paths)
        environment = {**self._of_image(container), **given}
        known = {**environment}

        def resolved(words: Sequence[str]) -> list[str]:
            return [paths.translated(expanded(word, known)) for word in words]

        command, args = resolved(container.get("command") or []), resolved(container.get("args") or [])
        if command:
            return Launch(command=[*command, *args], environment=environment, folder=folder)
        entrypoint = self._images.entrypoints.get(container["image"])
        if entrypoint is None:
            raise NotConfigured(f"no command specified, and the kubelet has no entrypoint for the image {container['image']}")
        whole = entrypoint(args, environment) if callable(entrypoint) else [*entrypoint, *args]
        return Launch(command=list(whole), environment=environment, folder=folder)

    def _of_image(self, container: Json) -> dict[str, str]:
        """The variables that an image has: the PATH with this Python first, and Java."""
        home = self._folder / "root" / container["name"]
        make_folder(home)
        return {
            **{name: os.environ[name] for name in _INHERITED if name in os.environ},
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "JAVA_HOME": str(find_java().home),
            "HOME": str(home),
            **({"KUBECONFIG": str(self._volumes.kubeconfig)} if self._volumes.kubeconfig else {}),
            **self._images.environment,
            "HOSTNAME": self._pod["metadata"]["name"],
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self._server_port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(self._server_port),
        }

    def _working_folder(self, container: Json, paths: MountPaths) -> Path:
        """The working directory; one that exists in the image only is a folder of the container."""
        own = self._folder / "root" / str(container["name"])
        given: str | None = container.get("workingDir")
        if given:
            real = Path(paths.translated(given))
            own = real if str(real) != given or real.is_dir() else own / given.lstrip("/")
        make_folder(own)
        return own

    def _given(self, container: Json, paths: MountPaths) -> dict[str, str]:
        """The variables that the pod's specification gives."""
        found: dict[str, str] = {}
        for source in container.get("envFrom", []):
            for kind, key in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
                if key in source:
                    data = self._data(kind, source[key])
                    found |= {source.get("prefix", "") + name: value.decode() for name, value in data.items()}
        for variable in container.get("env", []):
            if "valueFrom" in variable:
                value = self._value_from(container, variable["valueFrom"])
                if value is None:
                    continue
            else:
                value = expanded(variable.get("value", ""), found)
            found[variable["name"]] = value
        return {name: paths.translated(value) for name, value in found.items()}

    def _value_from(self, container: Json, source: Json) -> str | None:
        """The value of a variable; None if an optional one does not exist. Raises NotConfigured."""
        if "fieldRef" in source:
            return field_of(self._pod, source["fieldRef"]["fieldPath"], self._node)
        if "resourceFieldRef" in source:
            return _resource(container, source["resourceFieldRef"])
        for kind, key in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
            if key in source:
                data = self._data(kind, source[key])
                if source[key]["key"] in data:
                    return data[source[key]["key"]].decode()
                if source[key].get("optional"):
                    return None
                raise NotConfigured(f"couldn't find key {source[key]['key']} in {kind.removesuffix('s')} {source[key]['name']}")
        raise NotConfigured(f"a variable comes from {', '.join(source)}, which is not supported")

    def _data(self, kind: str, reference: Json) -> dict[str, bytes]:
        data = self._volumes.data_of(kind, reference["name"])
        if data is None:
            if reference.get("optional"):
                return {}
            raise NotConfigured(f'{kind.removesuffix("s")} "{reference["name"]}" not found')
        return data


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """The text with the values of `$(NAME)`. `$$` is a dollar sign; unknown names stay as they are."""

    def value(found: re.Match[str]) -> str:
        if found[1] is None:
            return "$"
        return variables.get(found[1], found[0])

    return _REFERENCE.sub(value, text)


def _resource(container: Json, reference: Json) -> str:
    group, _, name = reference["resource"].partition(".")
    amount = container.get("resources", {}).get(group, {}).get(name, 0)
    divisor = quantity(reference.get("divisor") or 1) or 1.0
    return str(math.ceil(quantity(amount) / divisor))
