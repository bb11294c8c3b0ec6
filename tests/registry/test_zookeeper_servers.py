"""What servers of ZooKeeper say about themselves."""

from __future__ import annotations

import socket
import threading
from contextlib import closing

from scribengin.registry.contract import RegistryServer
from scribengin.registry.zookeeper_servers import server_states

ANSWER = b"""\
Zookeeper version: 3.9.4-7246445ec281f3dbf53dc54e970c914f39713903, built on 2025-08-19 19:53 UTC
Latency min/avg/max: 0/0.4/12
Connections: 7
Zxid: 0x5
Mode: follower
"""


def served(answer: bytes) -> str:
    """The address of a server that answers each word with this, once."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answers() -> None:
        with closing(listening), closing(listening.accept()[0]) as connection:
            connection.recv(4)
            connection.sendall(answer)

    threading.Thread(target=answers, daemon=True).start()
    return f"127.0.0.1:{listening.getsockname()[1]}"


def test_each_server_says_its_mode_or_why_not() -> None:
    forbidden = served(b"srvr is not executed because it is not in the whitelist.\n")
    follower, silent = served(ANSWER), served(b"")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # a port on which none listens
        gone = f"127.0.0.1:{taken.getsockname()[1]}"
        found = server_states([follower, gone, forbidden, silent], 30.0)
    assert found[0] == RegistryServer(follower, "follower", "3.9.4", 7)
    assert (found[1].mode, found[1].problem) == ("", "it does not answer: Connection refused")
    assert "whitelist" in found[2].problem
    assert "with TLS" in found[3].problem
    assert server_states([]) == ()
