"""What each server of a ZooKeeper says about itself, by its four-letter command `srvr`."""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from scribengin.registry.contract import RegistryServer

if TYPE_CHECKING:
    from collections.abc import Sequence

_ANSWER_BYTES = 2**16
_MOST_BYTES = 2**20
_WITHIN_S = 2.0
_FACTS = re.compile(r"^(Mode|Zookeeper version|Connections): *([^,\n]*)", re.MULTILINE)


def ask_server(host: str, port: int, word: bytes, timeout_s: float) -> bytes:
    """The answer of a server to one of ZooKeeper's four-letter commands, without TLS. Raises OSError if it does not answer in time."""
    said = b""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(word)
        while len(said) < _MOST_BYTES and (part := connection.recv(_ANSWER_BYTES)):
            said += part
    return said


def server_states(servers: Sequence[str], within_s: float = _WITHIN_S) -> tuple[RegistryServer, ...]:
    """The states of servers, given as `host:port`, in this order; all are asked at the same time."""
    if not servers:
        return ()
    with ThreadPoolExecutor(len(servers), thread_name_prefix="zookeeper-servers") as pool:
        return tuple(pool.map(partial(_state_of, within_s=within_s), servers))


def _state_of(server: str, within_s: float) -> RegistryServer:
    host, _, port = server.rpartition(":")
    try:
        said = ask_server(host.strip("[]"), int(port), b"srvr", within_s).decode(errors="replace")
    except OSError as error:
        return RegistryServer(server, problem=f"it does not answer: {error.strerror or error}")
    facts = dict(_FACTS.findall(said))
    if "Mode" not in facts:
        why = said.strip() or "it gives no answer to `srvr`; with TLS alone, it is not asked"
        return RegistryServer(server, problem=why)
    version = facts.get("Zookeeper version", "").partition("-")[0]
    clients = facts.get("Connections", "")
    return RegistryServer(server, facts["Mode"].strip(), version, int(clients) if clients.isdecimal() else None)
