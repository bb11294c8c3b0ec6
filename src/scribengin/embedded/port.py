"""The port of a server, which stays its own over restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from scribengin.core.errors import EnvironmentFault
from scribengin.core.storage import put_if_absent, read_or_none
from scribengin.embedded.java_server import free_ports

if TYPE_CHECKING:
    from pathlib import Path


class _Place(msgspec.Struct, frozen=True):
    port: int


def port_of(folder: Path) -> int:
    """What `folder` remembers, or a free one that it remembers from now on. Raises EnvironmentFault where it remembers nonsense."""
    path = folder / "place.json"
    data = read_or_none(path)
    if data is None:
        put_if_absent(path, msgspec.json.encode(_Place(free_ports(1)[0])) + b"\n")
        data = path.read_bytes()
    try:
        return msgspec.json.decode(data, type=_Place).port
    except msgspec.DecodeError as error:
        raise EnvironmentFault(f"{path} is not what was written there: {error}", remedy=f"remove {folder}", code="server-folder") from error
