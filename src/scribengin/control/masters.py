"""The running masters, from their records."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scribengin.core.net import is_loopback
from scribengin.core.secret import Secret
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.record_io import Stored, names, read_record
from scribengin.registry.tree import LEADER, MASTERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.registry.contract import Registry

TOKEN, CERTIFICATES = "SCRIBENGIN_TOKEN", "SCRIBENGIN_CERTIFICATES"
"""environment variables of commands, nodes and workers, for an API that requires a token, or whose certificate is of a private CA"""


def token_of(environment: Mapping[str, str]) -> Secret | None:
    """The token for the API from an environment."""
    return Secret(environment[TOKEN], f"${{{TOKEN}}}") if environment.get(TOKEN) else None


def leader(registry: Registry) -> str:
    """The address of the leader's API; empty if no master leads, or it listens on another machine's loopback only. Raises Unreachable."""
    found = read_record(registry, LEADER())
    return found.record.http if isinstance(found, Stored) and _is_reached(found.record.http, found.record.host) else ""


def certificates_of(environment: Mapping[str, str]) -> Path | None:
    """The PEM file of the issuers of the certificates of masters and nodes, from an environment."""
    return Path(environment[CERTIFICATES]) if environment.get(CERTIFICATES) else None


def addresses(registry: Registry) -> tuple[str, ...]:
    """The addresses of the running masters' APIs, the leader's first. Raises Unreachable."""
    found: dict[str, None] = {}
    for path in (LEADER().path, *(MASTERS(name).path for name in names(registry, "masters"))):
        there = registry.read(path)
        http = there.value.get("http") if isinstance(there, RegistryEntry) and there.session else None
        if isinstance(http, str) and http:
            found[http] = None
    return tuple(found)


def others(registry: Registry, url: str) -> tuple[str, ...]:
    """`addresses` without that of the master at `url`. Raises Unreachable."""
    return tuple(address for address in addresses(registry) if address != url)


def masters_by_host(registry: Registry) -> dict[str, str]:
    """Host → the address of one of its masters, for those that this machine can reach. Raises Unreachable."""
    found = {}
    for name in names(registry, "masters"):
        there = registry.read(MASTERS(name).path)
        if not isinstance(there, RegistryEntry) or not there.session:
            continue
        http, host = str(there.value.get("http") or ""), str(there.value.get("host") or "")
        if http and _is_reached(http, host):
            found[host] = http
    return found


def _is_reached(http: str, host: str) -> bool:
    """False if `http` is on the loopback of another host: here that would be an address of this machine."""
    try:
        name = urlsplit(http).hostname or ""
    except ValueError:
        return False
    return host in ("", socket.gethostname()) or not is_loopback(name)
