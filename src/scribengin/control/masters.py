"""Which masters are there, as their records say."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scribengin.core.loopback import is_loopback
from scribengin.core.secret import Secret
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.records import Stored, names, read_record
from scribengin.registry.tree import LEADER, MASTERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.registry.contract import Registry

TOKEN, CERTIFICATES = "SCRIBENGIN_TOKEN", "SCRIBENGIN_CERTIFICATES"
"""what commands, nodes and workers find in their environment where the API asks for a token, or its certificate is of a CA of one's own"""


def token_of(environment: Mapping[str, str]) -> Secret | None:
    """The token for the API that an environment gives."""
    return Secret(environment[TOKEN], f"${{{TOKEN}}}") if environment.get(TOKEN) else None


def leader(registry: Registry) -> str:
    """Where the leading one answers; empty where none does, or on another machine's loopback only. Raises Unreachable."""
    found = read_record(registry, LEADER())
    return found.record.http if isinstance(found, Stored) and _is_reached(found.record.http, found.record.host) else ""


def certificates_of(environment: Mapping[str, str]) -> Path | None:
    """The PEM file of who signs the certificates of masters and nodes, that an environment names."""
    return Path(environment[CERTIFICATES]) if environment.get(CERTIFICATES) else None


def addresses(registry: Registry) -> tuple[str, ...]:
    """Where their APIs answer, the leader's first. Raises Unreachable."""
    found: dict[str, None] = {}
    for path in (LEADER().path, *(MASTERS(name).path for name in names(registry, "masters"))):
        there = registry.read(path)
        http = there.value.get("http") if isinstance(there, RegistryEntry) and there.session else None
        if isinstance(http, str) and http:
            found[http] = None
    return tuple(found)


def others(registry: Registry, url: str) -> tuple[str, ...]:
    """`addresses` but that of the master at `url`. Raises Unreachable."""
    return tuple(address for address in addresses(registry) if address != url)


def masters_by_host(registry: Registry) -> dict[str, str]:
    """Host → where one of its masters answers, of those that this machine reaches. Raises Unreachable."""
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
    """Not where `http` is on the loopback of another host: here that is an address of this machine, and somebody else's."""
    try:
        name = urlsplit(http).hostname or ""
    except ValueError:
        return False
    return host in ("", socket.gethostname()) or not is_loopback(name)
