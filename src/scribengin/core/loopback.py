"""Addresses of this machine that other machines cannot use."""

from __future__ import annotations

import ipaddress

LOOPBACK = "127.0.0.1"
"""the address of servers that serve only this machine"""


def is_loopback(host: str) -> bool:
    """Whether `host` is a loopback address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "10.0.0.1", "localhost.example")]
    [True, True, True, False, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
