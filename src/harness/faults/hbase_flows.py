"""The flows with a table of HBase at their end."""

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
    """Struck in what has the data: the REST server stays, and answers that nobody is there."""

    def kill(self) -> None:
        """End it as a crash does."""
        self.kill_store()


@dataclass(kw_only=True)
class HBaseFlow(KeyedFlow):
    """Its tables the flow makes itself."""

    server: HBase

    def watch_program(self, sink: str) -> Sequence[str]:
        """This module's."""
        return __name__, self.server.uri, sink

    def rows_of(self, sink: str) -> list[dict[str, Any]]:
        """Of the whole table."""
        return read_table(self.server.uri, sink)

    def _output(self, sink: str) -> str:
        address = self.server.thrift_uri if self.route.endswith("by-thrift") else self.server.uri
        return f'type: hbase, server: ["{address}"], table: {sink}{self.mode}'


def read_table(address: str, table: str) -> list[dict[str, Any]]:
    """Its rows, values as text; none where it is not there. Raises Away."""
    rows: list[dict[str, Any]] = []
    start = ""
    try:
        with httpx2.Client(base_url=address, timeout=60, trust_env=False, headers={"Accept": "application/json"}) as http:
            if http.get(f"/{table}/exists").status_code == _NOT_FOUND:
                return []
            # an answer that a region's end has cut short looks whole; the next one, of nothing, cannot be cut
            while page := http.get(f"/{table}/*", params={"limit": str(_SOME), "startrow": start}).raise_for_status().json()["Row"]:
                rows += [{_text(cell["column"]).partition(":")[2]: _text(cell["$"]) for cell in row["Cell"]} for row in page]
                # row keys are text: the least that is greater is the last one with a zero byte behind it
                start = _text(page[-1]["key"]) + "\0"
            return rows
    except (httpx2.HTTPError, ValueError) as error:  # an answer that breaks off is no JSON
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
