"""Requests of masters to nodes over HTTP: their pages, and the logs and pages of their workers."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from scribengin.api.planner import AT_ONCE, turn
from scribengin.client import problems
from scribengin.core.errors import ScribenginError, Unreachable
from scribengin.core.net import is_loopback, trusted
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.tree import HOST_UP

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.api.state_queries import StateQuery
    from scribengin.core.secret import Secret
    from scribengin.registry.contract import Registry

_CONNECT_S, _READ_S, _LOOK_S = 3.0, 10.0, 115.0
T = TypeVar("T")


class NodePages:
    """Requests to nodes.

    Args:
        registry: where nodes are recorded.
        key: node → the secret that this master sends to it, different for each node; None: it sends `token`.
        token: the token for nodes without a secret.
        certificates: a PEM file with the issuers of the nodes' certificates.
    """

    def __init__(
        self,
        registry: Registry,
        key: Callable[[str], Secret | None] = lambda _node: None,
        *,
        token: Secret | None = None,
        certificates: Path | None = None,
    ) -> None:
        self._registry = registry
        self._key = key
        self._token = token
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._verify = trusted(certificates)

    def status_of(self, node: str) -> dict[str, Any]:
        """The node's own status. Raises Unreachable, with the reason, if it does not answer."""
        return self._get(node, "/json", dict[str, Any])

    def logs(self, node: str, worker: str, lines: int) -> list[dict[str, Any]]:
        """The last `lines` lines of each log of a worker, as `file` and `lines`. Raises Unreachable, and Refused as the node does."""
        return self._get(node, f"/workers/{quote(worker, safe='')}/logs?lines={lines}", list[dict[str, Any]])

    def worker(self, node: str, worker: str) -> dict[str, Any]:
        """The status page of a worker. Raises Unreachable, Refused."""
        return self._get(node, f"/workers/{quote(worker, safe='')}/json", dict[str, Any])

    def has_state(self, node: str, flow: str) -> bool:
        """True if the folder of the flow's state is on the node's host. Raises Unreachable."""
        return self._get(node, f"/states/{quote(flow, safe='')}", bool)

    def ask(self, node: str, query: StateQuery) -> Any:
        """The answer to a query from the planner's process on the node. Only AT_ONCE requests to all nodes run at the same time. Raises
        Unreachable, Refused `too-many`, and as `Planner.ask`."""
        with turn(self._turns):
            return self._get(node, "/states", Any, query)

    def _get(self, node: str, path: str, kind: type[T], body: StateQuery | None = None) -> T:
        """Send a request and decode the answer. With a body it is a POST, which may take as long as the planner does."""
        address = self._address(node)
        secret = self._key(node) or self._token
        headers = {} if secret is None else {"Authorization": f"Bearer {secret.reveal()}"}
        timeout = httpx2.Timeout(_READ_S if body is None else _LOOK_S, connect=_CONNECT_S)
        content = None if body is None else msgspec.json.encode(body)
        try:
            with httpx2.Client(headers=headers, verify=self._verify, timeout=timeout, trust_env=False) as client:
                answer = client.request("GET" if body is None else "POST", address + path, content=content)
        except httpx2.HTTPError as error:
            raise Unreachable(
                f"node {node} does not answer at {address}: {error or type(error).__name__}",
                remedy="check that this master can reach it and trusts its certificate's issuer: SCRIBENGIN_CERTIFICATES",
                code="node-silent",
            ) from error
        if not answer.is_success:
            said = problems.to_error(problems.decode(answer.content, answer.status_code))
            if answer.status_code in (401, 403):
                raise Unreachable(
                    f"node {node} rejects this master: {said.message}",
                    remedy="give both the same --login-file or --worker-key-file, or give the master a token: SCRIBENGIN_TOKEN",
                    code="node-silent",
                )
            raise said
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.DecodeError as error:
            raise ScribenginError(f"node {node} sends an invalid answer to {path}: {error}", code="node-answer") from error

    def _address(self, node: str) -> str:
        try:
            there = self._registry.read(HOST_UP(node).path)
        except ValueError:
            there = None
        if not isinstance(there, RegistryEntry) or not there.session:
            raise Unreachable(
                f"node {node} is unavailable: its node process is not running",
                remedy=f"start it: scribengin server node --name {node} --registry ADDRESS",
                code="node-away",
            )
        http, host = str(there.value.get("http") or ""), str(there.value.get("host") or "")
        url = urlsplit(http)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise Unreachable(f"node {node} has no status page", remedy="its version is older: update and restart it", code="node-silent")
        if is_loopback(url.hostname) and host != socket.gethostname():
            raise Unreachable(
                f"node {node} answers on its own machine {host} only",
                remedy=f"make it reachable: scribengin server node --name {node} --registry ADDRESS --listen HOST "
                "--tls-certificate FILE --tls-key FILE",
                code="node-silent",
            )
        return http.rstrip("/")
