"""Whom a client over HTTPS trusts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from pathlib import Path


def trusted(certificates: Path | None) -> ssl.SSLContext | bool:
    """For `verify` of an HTTP client: whoever a certificate of that PEM file vouches for; None: whoever one of the machine's does."""
    if certificates is None:
        return True
    import ssl

    return ssl.create_default_context(cafile=str(certificates))
