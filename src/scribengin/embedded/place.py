"""What a server's folder remembers, so that it stays the same over restarts: its ports, and who it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from scribengin.core.errors import EnvironmentFault
from scribengin.core.storage import put_if_absent, read_or_none
from scribengin.embedded.java_server import PORTS, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")


class _Place(msgspec.Struct, frozen=True):
    port: int


def port_of(folder: Path, among: range = PORTS) -> int:
    """What `folder` remembers, or a free one of these that it remembers from now on. Raises EnvironmentFault where that is
    nonsense."""
    return remembered(folder / "place.json", _Place, lambda: _Place(free_ports(1, among)[0])).port


def remembered(path: Path, kind: type[T], make: Callable[[], T]) -> T:
    """What stands in the file, as JSON; what `make` gives where it is not there, or what somebody else has put there meanwhile. Raises
    EnvironmentFault where it is no `kind`."""
    data = read_or_none(path)
    if data is None:
        put_if_absent(path, msgspec.json.encode(make()) + b"\n")
        data = path.read_bytes()
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise EnvironmentFault(f"{path} is damaged: {error}", remedy=f"remove {path.parent}", code="server-folder") from error
