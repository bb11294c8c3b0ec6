"""The probes of a running container: startup, readiness and liveness, by HTTP, by TCP or by a command."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from harness.kubernetes.volumes import HOST_IP

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.kubernetes.api import Json
    from harness.kubernetes.containers import Launch
    from harness.kubernetes.processes import ContainerProcess

STARTUP, READINESS, LIVENESS = "startup", "readiness", "liveness"
_POLL_S = 0.1


class ProbeFailed(Exception):
    """A probe failed; the message says how."""


@dataclass
class _Probe:
    kind: str
    spec: Json
    due: float
    passed: bool
    successes: int = 0
    failures: int = 0


class ContainerProbes:
    """The probes of one run of a container, in a thread that ends with the run. They are done one after the other."""

    def __init__(
        self, container: Json, process: ContainerProcess, launch: Launch, *, changed: Callable[[], None], failed: Callable[[str, str], None]
    ) -> None:
        """Start probing.

        Args:
            container: the container's specification.
            process: its run.
            launch: how it was started; commands are run in the same way.
            changed: called when `started` or `ready` has changed.
            failed: called for each failure with the kind of the probe and a message; the kind is empty if the container must be ended.
        """
        self._container = container
        self._process = process
        self._launch = launch
        self._changed = changed
        self._failed = failed
        moment = time.monotonic()
        self._probes = {
            kind: _Probe(kind, spec, moment + spec.get("initialDelaySeconds", 0), passed=kind == LIVENESS)
            for kind in (STARTUP, READINESS, LIVENESS)
            if (spec := container.get(f"{kind}Probe"))
        }
        if self._probes:
            threading.Thread(target=self._run, name=f"probes-{process.pid}", daemon=True).start()

    @property
    def started(self) -> bool:
        """True if the startup probe has succeeded, or there is none."""
        return STARTUP not in self._probes or self._probes[STARTUP].passed

    @property
    def ready(self) -> bool:
        """True if the container has started and its readiness probe succeeds."""
        return self.started and (READINESS not in self._probes or self._probes[READINESS].passed)

    def _run(self) -> None:
        while self._process.running:
            for probe in self._probes.values():
                over = probe.kind == STARTUP and probe.passed
                if not over and (probe.kind == STARTUP or self.started) and time.monotonic() >= probe.due and not self._check(probe):
                    return
            time.sleep(_POLL_S)

    def _check(self, probe: _Probe) -> bool:
        """Do one probe. Returns False if the container must be ended."""
        before = (self.started, self.ready)
        try:
            self._probe(probe.spec)
        except (ProbeFailed, OSError, http.client.HTTPException, subprocess.TimeoutExpired) as error:
            if not self._process.running:
                return False
            probe.successes, probe.failures = 0, probe.failures + 1
            self._failed(probe.kind, f"{probe.kind.capitalize()} probe failed: {error}")
            if probe.failures >= probe.spec.get("failureThreshold", 3):
                probe.passed = False
                if probe.kind != READINESS:
                    self._failed("", f"Container {self._container['name']} failed {probe.kind} probe, will be restarted")
                    return False
        else:
            probe.successes, probe.failures = probe.successes + 1, 0
            if probe.successes >= probe.spec.get("successThreshold", 1):
                probe.passed = True
        probe.due = time.monotonic() + probe.spec.get("periodSeconds", 10)
        if before != (self.started, self.ready):
            self._changed()
        return True

    def _probe(self, spec: Json) -> None:
        """Raise one of the errors that `_check` handles, if the probe fails."""
        timeout_s = spec.get("timeoutSeconds", 1)
        if "httpGet" in spec:
            self._get(spec["httpGet"], timeout_s)
        elif "tcpSocket" in spec:
            socket.create_connection((HOST_IP, self._port(spec["tcpSocket"]["port"])), timeout_s).close()
        elif "exec" in spec:
            launch = self._launch
            made = subprocess.run(
                spec["exec"]["command"], env=launch.environment, cwd=launch.folder, capture_output=True, check=False, timeout=timeout_s
            )
            if made.returncode:
                raise ProbeFailed(made.stdout.decode(errors="replace").strip() or f"exit code {made.returncode}")
        else:
            raise ProbeFailed(f"probes of this kind are not supported: {', '.join(spec)}")

    def _get(self, spec: Json, timeout_s: float) -> None:
        port = self._port(spec["port"])
        connection: http.client.HTTPConnection
        if spec.get("scheme") == "HTTPS":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = http.client.HTTPSConnection(HOST_IP, port, timeout=timeout_s, context=context)
        else:
            connection = http.client.HTTPConnection(HOST_IP, port, timeout=timeout_s)
        with closing(connection):
            connection.request("GET", spec.get("path", "/"), headers={each["name"]: each["value"] for each in spec.get("httpHeaders", [])})
            status = connection.getresponse().status
        if not HTTPStatus.OK <= status < HTTPStatus.BAD_REQUEST:
            raise ProbeFailed(f"HTTP probe failed with statuscode: {status}")

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        for each in self._container.get("ports", []):
            if each.get("name") == port:
                return int(each["containerPort"])
        raise ProbeFailed(f"no port is named {port}")
