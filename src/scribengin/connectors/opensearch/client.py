"""HTTP requests to a cluster of OpenSearch or Elasticsearch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.keyed.http import Codes, HttpCluster
from scribengin.core.errors import Unreachable

if TYPE_CHECKING:
    import httpx2

    from scribengin.core.errors import ScribenginError

NO_INDEX = "index_not_found_exception"
BLOCKED = "cluster_block_exception"
"""the error of an index that accepts no writes for now: a disk is full, or an operator blocked it"""
_BLOCKS = (BLOCKED, "index_create_block_exception")
_FORBIDDEN, _NOT_FOUND = 403, 404


class OpenSearchCluster(HttpCluster):
    """The nodes of one cluster of OpenSearch or Elasticsearch; see HttpCluster."""

    codes = Codes(
        away="search-away",
        login="search-login",
        trust="search-trust",
        address="search-address",
        config="search-config",
        other="search",
    )
    known = frozenset({"user", "password", "api_key", "ca"})
    login = "correct `config`: user and password, or api_key; the user needs the rights to read, write and create the index"
    content_type = "application/x-ndjson"
    place = "index"

    def doubt(self, answer: httpx2.Response, path: str) -> None:
        """Raise Unreachable if the node has not loaded its state yet. Such a node answers some requests (`_refresh`, `_mapping`) as if it
        had no indexes, but refuses a search."""
        index, _, what = path.lstrip("/").partition("?")[0].partition("/")
        if answer.status_code != _NOT_FOUND or NO_INDEX not in answer.text or index.startswith("_") or what == "_search":
            return
        look = self.ask("POST", f"/{index}/_search?size=0&filter_path=_shards.total", also=[_NOT_FOUND])
        if look.status_code != _NOT_FOUND and look.json()["_shards"]["total"]:
            raise Unreachable(
                f"{self.called}: {self} has just started and has not loaded its indexes yet",
                remedy="wait until it is ready; a running flow retries automatically",
                code=self.codes.away,
                node=self.node,
            )

    def refused(self, answer: httpx2.Response, what: str) -> ScribenginError:
        """Convert an answer with an error status. The status 403 can also be a write block, which does not depend on the user."""
        if answer.status_code == _FORBIDDEN and any(block in answer.text for block in _BLOCKS):
            said = f"{self.called}: {self} answered {what} with {_FORBIDDEN}: {self.reason_in(answer)}"
            remedy = "free disk space in the cluster, or remove the block; a running flow retries automatically"
            return Unreachable(said, remedy=remedy, code=self.codes.away, node=self.node)
        return super().refused(answer, what)

    def not_allowed(self, said: str) -> ScribenginError:
        """The error for denied access; it is returned, not raised."""
        return self._error(f"{self.called}: {self} {said}", self.login, self.codes.login)

    def reason_in(self, answer: httpx2.Response) -> str:
        """The error message in the server's answer."""
        return reason_in(answer)


def reason_in(answer: httpx2.Response) -> str:
    """The error message in the server's answer."""
    try:
        error = answer.json()["error"]
        return str(error) if isinstance(error, str) else f"{error['type']}: {error['reason']}"
    except (ValueError, KeyError, TypeError):
        return " ".join(answer.text.split())[:200] or answer.reason_phrase
