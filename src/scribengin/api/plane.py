"""What the handlers of the API work with: the parts of a master that it serves, and one request with who asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.responses import Response

from scribengin.api.views import RegistryView
from scribengin.client.client import REVISION
from scribengin.core.errors import Unreachable
from scribengin.registry.contract import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.api.access import Who
    from scribengin.api.planning import Planner
    from scribengin.packages.store import PackageStore
    from scribengin.registry.contract import Registry

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plane:
    """A master, as its API sees it. `state` is the root folder of the states of new flows, `leads` whether this master decides.

    `logs`: worker → paths of what it has printed, as far as that lies on this host.
    """

    registry: Registry
    packages: PackageStore
    planner: Planner
    state: str
    leads: Callable[[], bool]
    logs: Callable[[str], Sequence[str]] = field(default=lambda _worker: ())

    def revision(self) -> int:
        """Of what this master's client has seen; 0 where the registry does not answer now."""
        if self.registry.session().link is not Link.CONNECTED:
            return 0
        try:
            return self.registry.sync(at_least=0)
        except Unreachable:
            return 0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: of a master, by somebody."""

    plane: Plane
    who: Who

    @property
    def registry(self) -> Registry:
        """The master's."""
        return self.plane.registry

    @property
    def view(self) -> RegistryView:
        """Reads."""
        return RegistryView(self.registry)

    def answer(self, value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
        """As JSON, with the registry's revision."""
        said = {REVISION: str(self.plane.revision()), **(headers or {})}
        return Response(msgspec.json.encode(value), status, said, "application/json")
