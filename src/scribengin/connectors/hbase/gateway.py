"""HTTP requests to REST servers of HBase: tables, writes of many cells, scanners, and reads of one row."""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from scribengin.connectors.hbase.gateway_contract import (
    BUSY,
    CODES,
    FOREVER,
    NEVER,
    HBaseCell,
    HBaseRow,
    ScanRequest,
    TableForm,
    ValueRow,
    WriteOutcome,
    reason_of,
)
from scribengin.connectors.keyed.http import AWAY, HttpCluster
from scribengin.core.errors import ScribenginError
from scribengin.core.problems import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx2

    from scribengin.connectors.hbase.cells import Cells
    from scribengin.connectors.hbase.gateway_contract import AnyRow, Gateway
    from scribengin.core.errors import SinkError, SourceError


_OK, _BAD, _NOT_MODIFIED, _NOT_FOUND, _GONE, _TOO_LARGE, _FAILED = 200, 400, 304, 404, 410, 413, 500
_DECODERS: Mapping[type[Any], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(dict[str, list[kind]])  # type: ignore[valid-type]
    for kind in (HBaseRow, ValueRow)
}
_FILTERS = {
    "names": '{"type": "KeyOnlyFilter"}',
    "first": '{"type": "FilterList", "op": "MUST_PASS_ALL", "filters": [{"type": "FirstKeyOnlyFilter"}, {"type": "KeyOnlyFilter"}]}',
}


class _Rows(msgspec.Struct, frozen=True):
    """The answer to a request for rows."""

    rows: list[HBaseRow] = msgspec.field(name="Row", default_factory=list)


class RestGateway(HttpCluster):
    """The REST servers of one HBase."""

    codes = CODES
    known = frozenset({"user", "password", "ca"})
    login = (
        "correct `config`: user and password; the user needs the rights to read the table, and for a sink also to create and write it "
        "and the table of Scribengin's own records"
    )
    headers: ClassVar[Mapping[str, str]] = {"Accept": "application/json"}
    content_type = "application/x-protobuf"
    place = "table"

    def reason_in(self, answer: httpx2.Response) -> str:
        """The exception line of the server's message, without stack frames."""
        return reason_of(answer.text) or answer.reason_phrase

    def schema(self, table: str) -> TableForm | None:
        """See Gateway."""
        answer = self.ask("GET", f"{path_of(table)}/schema", also=[_NOT_FOUND])
        if answer.status_code == _NOT_FOUND:
            return None
        found = answer.json()
        families = {str(each["name"]): int(each.get("TTL", FOREVER)) for each in found["ColumnSchema"]}
        return TableForm(families, str(found.get("DURABILITY", "")))

    def make(self, table: str, families: Sequence[str]) -> None:
        """See Gateway. If the table is created by another client meanwhile, the families are added to it."""
        schema = {"name": table, "ColumnSchema": [{"name": name, "VERSIONS": "1"} for name in families]}
        self.ask("POST", f"{path_of(table)}/schema", json=schema, also=[_NOT_MODIFIED])

    def row(self, table: str, key: str) -> HBaseRow | None:
        """See Gateway."""
        answer = self.ask("GET", f"{path_of(table)}/{quote(key, safe='')}", also=[_NOT_FOUND])
        return None if answer.status_code == _NOT_FOUND else msgspec.json.decode(answer.content, type=_Rows).rows[0]

    def put_if(self, table: str, row: HBaseRow, expected: HBaseCell) -> bool:
        """See Gateway."""
        return self._checked_change(table, row, expected, "put")

    def put(self, table: str, cells: Cells) -> WriteOutcome:
        """See Gateway. The server reports only that some cells were refused, not which."""
        path = f"{path_of(table)}/rows"
        answer = self.ask("PUT", path, content=cells.message(), also=[_BAD, _NOT_FOUND, _TOO_LARGE, *AWAY])
        if answer.status_code == _OK:
            return WriteOutcome("taken")
        said = self.reason_in(answer)
        if answer.status_code == _TOO_LARGE:
            return WriteOutcome("large")
        if answer.status_code == _NOT_FOUND:
            return WriteOutcome("gone", said)
        if any(word in answer.text for word in BUSY):
            return WriteOutcome("busy")
        if answer.status_code != _BAD and not any(word in answer.text for word in NEVER):
            raise self.refused(answer, f"PUT {path}")
        return WriteOutcome("refused", said)

    def delete(self, table: str, key: bytes, families: Sequence[bytes], until: int) -> None:
        """See Gateway."""
        # a path cannot contain every key; a body can, but requires a condition: here that a column does not exist
        cells = [HBaseCell(family, until) for family in families]
        self._checked_change(table, HBaseRow(key, cells), HBaseCell(families[0] + b":\0"), "delete")

    def tables(self) -> list[str]:
        """The names of the tables; empty if the server does not return them."""
        with suppress(ScribenginError):
            return [str(each["name"]) for each in self.ask("GET", "/").json().get("table", ())]
        return []

    def is_empty(self, table: str) -> bool:
        """See Gateway."""
        return self.schema(table) is None or self.last_key(table) is None

    def last_key(self, table: str, columns: Sequence[bytes] = ()) -> bytes | None:
        """See Gateway."""
        # the answer has only one key, so small that an error during the search replaces the whole answer
        asked = [("reversed", "true"), ("limit", "1"), ("filter", "KeyOnlyFilter()"), *(("column", each.decode()) for each in columns)]
        answer = self.ask("GET", f"{path_of(table)}/*?{urlencode(asked)}", also=[_FAILED])
        if answer.status_code == _FAILED:
            if self.schema(table) is None:
                raise self.missing(table)
            raise self.refused(answer, f"GET {path_of(table)}/*")
        rows = msgspec.json.decode(answer.content, type=_Rows).rows
        return rows[0].key if rows else None

    def open_scanner(self, table: str, asked: ScanRequest) -> str:
        """See Gateway."""
        start = asked.after + b"\0" if asked.after else b""
        said: dict[str, Any] = {"caching": asked.ahead, "maxVersions": 1, "cacheBlocks": False, "startRow": b64encode(start).decode()}
        if asked.columns:
            said["column"] = [b64encode(each).decode() for each in asked.columns]
        if asked.part in _FILTERS:
            said["filter"] = _FILTERS[asked.part]
        answer = self.ask("PUT", f"{path_of(table)}/scanner", json=said, also=[_NOT_FOUND])
        if answer.status_code == _NOT_FOUND:
            raise self.missing(table)
        # a gateway may add another path before the server's own
        return f"{path_of(table)}/scanner/{urlsplit(answer.headers['location']).path.rpartition('/')[2]}"

    def next_of(self, scanner: str, most: int, kind: type[AnyRow]) -> tuple[list[AnyRow], int] | None:
        """See Gateway."""
        answer = self.ask("GET", f"{scanner}?n={most}", also=[_NOT_FOUND, _GONE])
        if answer.status_code != _OK:
            return None
        return _DECODERS[kind].decode(answer.content)["Row"], len(answer.content)

    def close_scanner(self, scanner: str) -> None:
        """See Gateway."""
        with suppress(ScribenginError):
            self.ask("DELETE", scanner, also=[_NOT_FOUND, _GONE])

    def missing(self, table: str) -> SourceError | SinkError:
        """See Gateway."""
        said = f"{self.called}: there is no table {table} at {self}"
        return self._error(said, did_you_mean(table, self.tables()) or "correct `table`", "hbase-table")

    def _checked_change(self, table: str, row: HBaseRow, expected: HBaseCell, what: str) -> bool:
        body = _Rows([HBaseRow(row.key, [*row.cells, expected])])
        answer = self.ask("PUT", f"{path_of(table)}/row?check={what}", json=msgspec.to_builtins(body), also=[_NOT_MODIFIED])
        return answer.status_code == _OK


def path_of(table: str) -> str:
    """The name of a table, as a path of a URL."""
    return f"/{quote(table, safe='')}"


def open_gateway(node: str, servers: Sequence[str], config: Mapping[str, Any], role: Literal["source", "sink"] = "sink") -> Gateway:
    """Create the gateway for the kind of the addresses: REST or Thrift. Raises SourceError or SinkError if the addresses are not valid.

    Args:
        node: The id of the node, for messages.
        servers: The addresses, all of one kind.
        config: The `config` option of the node.
        role: `source` or `sink`.
    """
    if any(server.startswith("thrift") for server in servers):
        from scribengin.connectors.hbase.thrift import ThriftGateway

        return ThriftGateway(node, servers, config, role)
    return RestGateway(node, servers, config, role)
