"""Names of this machine that no other one can use."""

from __future__ import annotations

import ipaddress

LOOPBACK = "127.0.0.1"
"""where servers listen that are for this machine"""


def is_loopback(host: str) -> bool:
    """Whether it names this machine only.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "10.0.0.1", "localhost.example")]
    [True, True, True, False, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
