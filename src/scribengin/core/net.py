"""Network addresses: which ones only this machine can reach; and whom a client over HTTPS trusts."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl
    from pathlib import Path


# Whom a client over HTTPS trusts.


def trusted(certificates: Path | None) -> ssl.SSLContext | bool:
    """For `verify` of an HTTP client: whoever a certificate of that PEM file vouches for; None: whoever one of the machine's does."""
    if certificates is None:
        return True
    import ssl

    return ssl.create_default_context(cafile=str(certificates))


# Addresses of Spark masters.


def is_loopback_master(master: str) -> bool:
    """Whether a standalone cluster is one that only this machine reaches.

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
