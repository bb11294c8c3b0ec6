"""Network addresses that only this machine can reach, and the certificates that an HTTPS client trusts."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl
    from pathlib import Path


# The certificates that an HTTPS client trusts.


def trusted(certificates: Path | None) -> ssl.SSLContext | bool:
    """The value of `verify` for an HTTP client that trusts the certificates of that PEM file, or, with None, those of the machine."""
    if certificates is None:
        return True
    import ssl

    return ssl.create_default_context(cafile=str(certificates))


# Addresses of Spark masters.


def is_loopback_master(master: str) -> bool:
    """True if only this machine can reach a standalone cluster.

    >>> is_loopback_master("spark://127.0.0.1:7077"), is_loopback_master("spark://localhost:1,10.0.0.1:2")
    (True, False)
    """
    for place in master.removeprefix("spark://").split(","):
        host = urlsplit(f"//{place}").hostname or ""
        try:
            if not ipaddress.ip_address(host).is_loopback:
                return False
        except ValueError:
            if host != "localhost":
                return False
    return True


def is_container_master(master: str) -> bool:
    """True if drivers with this master run in containers of a cluster, unless they were started as a process of a machine.

    >>> [is_container_master(each) for each in ("yarn", "k8s://https://h:1", "spark://h:7077", "local[2]", "")]
    [True, True, False, False, False]
    """
    return master == "yarn" or master.startswith("k8s://")


LOOPBACK = "127.0.0.1"
"""the address of servers that serve only this machine"""


def is_loopback(host: str) -> bool:
    """True if `host` is a loopback address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "10.0.0.1", "localhost.example")]
    [True, True, True, False, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
