"""A server's persistent settings in its folder, which stay the same over restarts: its ports, and its identity."""

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
    """The port stored in `folder`, or a free one of these, which is stored there. Raises EnvironmentFault if the stored value is not
    valid."""
    return remembered(folder / "place.json", _Place, lambda: _Place(free_ports(1, among)[0])).port


def remembered(path: Path, kind: type[T], make: Callable[[], T]) -> T:
    """The contents of the file, as JSON; if it does not exist, the result of `make`, or what another process has stored there meanwhile.
    Raises EnvironmentFault if it is not a `kind`."""
    data = read_or_none(path)
    if data is None:
        put_if_absent(path, msgspec.json.encode(make()) + b"\n")
        data = path.read_bytes()
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise EnvironmentFault(f"{path} is damaged: {error}", remedy=f"remove {path.parent}", code="server-folder") from error
