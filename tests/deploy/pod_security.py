"""The Pod Security Standard "restricted" of Kubernetes, for pods of Linux: what a specification has that it does not allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
_SECCOMP = ("RuntimeDefault", "Localhost")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def breaches(spec: Mapping[str, Any]) -> list[str]:
    """All of a pod, with the place of each."""
    return [*_of_pod(spec), *(f"{each['name']}: {breach}" for each in containers(spec) for breach in _of_container(each, spec))]


def containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*spec.get("initContainers", ()), *spec["containers"], *spec.get("ephemeralContainers", ())]


def _of_pod(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name))
    for volume in spec.get("volumes", ()):
        if not set(volume) - {"name"} <= _VOLUMES:
            yield f"volume {volume['name']}: {', '.join(set(volume) - {'name'})}"
    context = spec.get("securityContext", {})
    yield from (f"{name} of the pod" for name in ("sysctls", "windowsOptions", "seLinuxOptions", "appArmorProfile") if context.get(name))


def _of_container(container: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    around, own = spec.get("securityContext", {}), container.get("securityContext", {})
    if own.get("privileged"):
        yield "privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    if own.get("runAsNonRoot", around.get("runAsNonRoot")) is not True:
        yield "runAsNonRoot"
    if own.get("runAsUser", around.get("runAsUser")) == 0:
        yield "runAsUser"
    if own.get("seccompProfile", around.get("seccompProfile", {})).get("type") not in _SECCOMP:
        yield "seccompProfile"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()) or set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield "capabilities"
    if own.get("procMount", "Default") != "Default":
        yield "procMount"
    yield from (f"hostPort {port['hostPort']}" for port in container.get("ports", ()) if port.get("hostPort"))
    yield from (f"host of {name}" for name in _PROBES if container.get(name, {}).get("httpGet", {}).get("host"))
