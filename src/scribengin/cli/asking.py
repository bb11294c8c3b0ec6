"""What only the leading master knows: how flows go. Its address stands in the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from scribengin.core.errors import Refused, ScribenginError, Unreachable

if TYPE_CHECKING:
    from scribengin.registry.contract import Registry

_TIMEOUT_S = 10.0


class Asking:
    """Asks the master that leads; another one after a take-over. Raises Unreachable where none answers, Refused with what it says."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.address = ""
        """of who was asked last"""

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        return self._ask("GET", path)

    def post(self, path: str, timeout_s: float = _TIMEOUT_S) -> Any:
        """The same, of something to be done."""
        return self._ask("POST", path, timeout_s)

    def _ask(self, method: str, path: str, timeout_s: float = _TIMEOUT_S) -> Any:
        import httpx2

        self.address = self._leader()
        try:
            answer = httpx2.request(method, f"{self.address}{path}", timeout=timeout_s, trust_env=False, follow_redirects=True)
        except (httpx2.HTTPError, OSError) as error:
            raise Unreachable(f"the master at {self.address} does not answer: {error}", remedy="ask again in a moment") from error
        if answer.is_success:
            return answer.json()
        said = answer.json() if "json" in answer.headers.get("content-type", "") else {}
        message = said.get("detail") or f"the master says {answer.status_code}"
        kind = Unreachable if answer.status_code == 503 else Refused if answer.status_code < 500 else ScribenginError
        raise kind(message, remedy=said.get("remedy", ""), code=said.get("code"))

    def _leader(self) -> str:
        from scribengin.registry.records import Stored, read_record
        from scribengin.registry.tree import LEADER

        found = read_record(self._registry, LEADER())
        if not isinstance(found, Stored) or not found.record.http:
            raise Unreachable("no master leads now", remedy="start one: scribengin up", code="leader-missing")
        return found.record.http.rstrip("/")


def segment(name: str) -> str:
    """As one part of a path."""
    return quote(name, safe="")
