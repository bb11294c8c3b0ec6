"""One HBase for all tests of this folder: a real one."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx2
import pytest

from scribengin.embedded.hbase import HBase

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS = "records"
BOTH = pytest.mark.parametrize("table", ["rest", "thrift"], indirect=True)
"""a test is for each kind of gateway"""


@dataclass
class Table:
    """A table of its own, as a person sees it."""

    address: str
    name: str
    http: httpx2.Client
    server: str
    """what a flow names: the REST server, or the Thrift server"""

    @property
    def options(self) -> dict[str, Any]:
        return {"server": [self.server], "table": self.name, "records": RECORDS}

    def make(self, *families: str, table: dict[str, str] | None = None, **settings: str) -> None:
        schema = {"name": self.name, "ColumnSchema": [{"name": name, **settings} for name in families or ("d",)], **(table or {})}
        self.http.put(f"{self.address}/{self.name}/schema", json=schema).raise_for_status()

    def put(self, row: str, column: str, value: str) -> None:
        """As others do: at the time of the server."""
        self.put_rows({row.encode(): {column: value.encode()}})

    def put_rows(self, rows: dict[bytes, dict[str, bytes]], *, timestamp: int | None = None) -> None:
        """Row key → column → value, at the time of the server where none is named."""
        at = {} if timestamp is None else {"timestamp": timestamp}

        def text(value: bytes) -> str:
            return b64encode(value).decode()

        body = [
            {"key": text(key), "Cell": [{"column": text(column.encode()), "$": text(value), **at} for column, value in cells.items()]}
            for key, cells in rows.items()
        ]
        self.http.put(f"{self.address}/{self.name}/row", json={"Row": body}).raise_for_status()

    def cells(self) -> dict[str, dict[str, bytes]]:
        """Row key → column → value, by a scan of the server's own."""
        answer = self.http.get(f"{self.address}/{self.name}/*", headers={"Accept": "application/json"})
        if answer.is_error:  # before the first row there is no table
            return {}
        return {
            b64decode(row["key"]).decode(): {b64decode(cell["column"]).decode(): b64decode(cell["$"]) for cell in row["Cell"]}
            for row in answer.json()["Row"]
        }

    def rows(self) -> list[dict[str, str]]:
        return [{column.partition(":")[2]: value.decode() for column, value in row.items()} for row in self.cells().values()]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBase]:
    with HBase(tmp_path_factory.mktemp("hbase"), thrift=True) as started:
        yield started


@pytest.fixture
def table(request: pytest.FixtureRequest, server: HBase) -> Iterator[Table]:
    """For a flow by the REST server, or by the Thrift server; a test itself asks the REST server."""
    with httpx2.Client(timeout=60, trust_env=False) as http:
        named = server.thrift_uri if getattr(request, "param", "rest") == "thrift" else server.uri
        yield Table(server.uri, f"t{uuid4().hex}", http, named)
