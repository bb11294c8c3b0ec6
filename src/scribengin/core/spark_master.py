"""Addresses of Spark masters."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_loopback(master: str) -> bool:
    """Whether a standalone cluster is one that only this machine reaches.

    >>> is_loopback("spark://127.0.0.1:7077"), is_loopback("spark://localhost:1,10.0.0.1:2")
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
