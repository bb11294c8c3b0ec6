"""Limits of a request's size, as an ASGI layer around the application: no more of a body is read than is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from scribengin.core.errors import Refused
from scribengin.packages.package import LIMIT_FILE_BYTES

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


BODY_BYTES = 256 * 1024
"""limit of a JSON body; a record of the registry has up to 100,000 bytes"""


class BodyLimit:
    """Rejects a request with a problem, if its body is too long by its declared length or by the bytes received."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request to the application; reading its body raises HTTPException 413 beyond the limit."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        packed = scope["path"].startswith("/v1/packages/")
        limit = LIMIT_FILE_BYTES if packed else BODY_BYTES
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        declared, come = int(length) if length.isdigit() else 0, 0

        async def limited() -> Message:
            nonlocal come
            message = await receive()
            if message["type"] == "http.request":
                come += len(message.get("body", b""))
            if max(come, declared) > limit:
                raise HTTPException(413) from (too_long(limit) if packed else too_large(limit))
            return message

        await self._app(scope, limited, send)


def too_long(limit: int) -> Refused:
    """The error for a package over its limit, the same as that of a package store."""
    message = f"the package has more than {limit} bytes, the most that is allowed"
    return Refused(message, remedy="make it smaller: include code, not data", code="package-size")


def too_large(limit: int) -> Refused:
    """The error for a body over its limit."""
    return Refused(f"the body has more than {limit:,} bytes, the most that is allowed", remedy="send less", code="body-large")
