"""The flows with an HBase table as sink."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2

from harness.faults.keyed_flows import Away, KeyedFlow, keyed_ground
from harness.faults.store_flows import look_until_told
from scribengin.embedded.hbase import HBase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from harness.faults.outcomes import Life

ROUTES = ("files-to-hbase", "files-to-hbase-by-key", "files-to-hbase-by-thrift")
_NOT_FOUND, _SOME = 404, 5_000


class Behind(HBase):
    """An HBase whose data server is struck, while its REST server keeps running and reports that the region is unavailable."""

    def kill(self) -> None:
        """Kill the data server."""
        self.kill_store()


@dataclass(kw_only=True)
class HBaseFlow(KeyedFlow):
    """A flow that creates its tables itself."""

    server: HBase

    def watch_program(self, sink: str) -> Sequence[str]:
        """See StoreFlow: this module."""
        return __name__, self.server.uri, sink

    def rows_of(self, sink: str) -> list[dict[str, Any]]:
        """The rows of the whole table."""
        return read_table(self.server.uri, sink)

    def _output(self, sink: str) -> str:
        address = self.server.thrift_uri if self.route.endswith("by-thrift") else self.server.uri
        return f'type: hbase, server: ["{address}"], table: {sink}{self.mode}'


def read_table(address: str, table: str) -> list[dict[str, Any]]:
    """The rows of a table, with values as texts; empty if it does not exist. Raises Away."""
    rows: list[dict[str, Any]] = []
    start = ""
    try:
        with httpx2.Client(base_url=address, timeout=60, trust_env=False, headers={"Accept": "application/json"}) as http:
            if http.get(f"/{table}/exists").status_code == _NOT_FOUND:
                return []
            # an answer that was cut off at the end of a region looks complete; the next one, which is empty, cannot be cut off
            while page := http.get(f"/{table}/*", params={"limit": str(_SOME), "startrow": start}).raise_for_status().json()["Row"]:
                rows += [{_text(cell["column"]).partition(":")[2]: _text(cell["$"]) for cell in row["Cell"]} for row in page]
                # row keys are text: the next key is at least the last one followed by a zero byte
                start = _text(page[-1]["key"]) + "\0"
            return rows
    except (httpx2.HTTPError, ValueError) as error:  # an incomplete answer is not valid JSON
        raise Away(str(error)) from error


def _text(encoded: str) -> str:
    return b64decode(encoded).decode()


def _flow(life: Life, folder: Path, stack: ExitStack) -> HBaseFlow:
    kind = Behind if life.format.endswith("by-key") else HBase
    server = stack.enter_context(kind(folder / "server", thrift=life.format.endswith("by-thrift")))
    return HBaseFlow(folder, life.kind, "json", life.partitioned, route=life.format, server=server)


HBASE = keyed_ground("HBase", ROUTES, _flow)


def main(address: str, table: str, *flags: str) -> None:
    """See `look_until_told`."""
    look_until_told(lambda: read_table(address, table), Away, flags)


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
