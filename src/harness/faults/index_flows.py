"""The flows with an index of OpenSearch or Elasticsearch as sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2

from harness.faults.keyed_flows import Away, KeyedFlow, keyed_ground
from harness.faults.store_flows import look_until_told
from scribengin.embedded.elasticsearch import Elasticsearch
from scribengin.embedded.opensearch import OpenSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from harness.faults.outcomes import Life
    from scribengin.embedded.server import LoneServer

_SERVERS: dict[str, Callable[[Path], LoneServer]] = {"opensearch": OpenSearch, "elasticsearch": Elasticsearch}
ROUTES = tuple(f"files-to-{type_}{by_key}" for type_ in _SERVERS for by_key in ("", "-by-key"))
_NOT_FOUND, _SOME = 404, 10_000


@dataclass(kw_only=True)
class IndexFlow(KeyedFlow):
    """A flow that creates its indexes itself."""

    type: str
    server: LoneServer

    def watch_program(self, sink: str) -> Sequence[str]:
        """See StoreFlow: this module."""
        return __name__, self.server.uri, sink

    def rows_of(self, sink: str) -> list[dict[str, Any]]:
        """The documents of the whole index."""
        return read_index(self.server.uri, sink)

    def _output(self, sink: str) -> str:
        return f'type: {self.type}, server: ["{self.server.uri}"], index: {sink}{self.mode}'


def read_index(address: str, index: str) -> list[dict[str, Any]]:
    """The documents of an index, in pages ordered by their internal numbers; empty if it does not exist. Raises Away."""
    rows: list[dict[str, Any]] = []
    try:
        with httpx2.Client(base_url=address, timeout=30, trust_env=False) as http:
            if http.post(f"/{index}/_refresh").status_code == _NOT_FOUND:
                # a node that has just started answers this too, but fails a search
                if http.post(f"/{index}/_search").status_code == _NOT_FOUND:
                    return []
                raise Away(f"{index} is not known yet")
            body: dict[str, Any] = {"size": _SOME, "query": {"match_all": {}}, "sort": ["_doc"]}
            found = http.post(f"/{index}/_search?scroll=1m", json=body).raise_for_status().json()
            if found["_shards"]["failed"] or not found["_shards"]["successful"]:
                raise Away(f"shards of {index} do not answer")
            while hits := found["hits"]["hits"]:
                rows += [hit["_source"] for hit in hits]
                found = http.post("/_search/scroll", json={"scroll": "1m", "scroll_id": found["_scroll_id"]}).raise_for_status().json()
    except httpx2.HTTPError as error:
        raise Away(str(error)) from error
    return rows


def _flow(life: Life, folder: Path, stack: ExitStack) -> IndexFlow:
    type_ = life.format.split("-")[2]
    server = stack.enter_context(_SERVERS[type_](folder / "server"))
    return IndexFlow(folder, life.kind, "json", life.partitioned, route=life.format, type=type_, server=server)


INDEXES = keyed_ground("indexes", ROUTES, _flow)


def main(address: str, index: str, *flags: str) -> None:
    """See `look_until_told`."""
    look_until_told(lambda: read_index(address, index), Away, flags)


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
