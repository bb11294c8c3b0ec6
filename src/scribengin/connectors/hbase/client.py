"""HTTP to REST servers of HBase: tables, requests of many cells, scanners, and looks at one row."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from scribengin.connectors.keyed.http import Codes, HttpCluster
from scribengin.core.errors import ScribenginError
from scribengin.core.problems import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx2

    from scribengin.core.errors import SinkError, SourceError

FOREVER = "2147483647"
"""the TTL of a family whose cells stay"""
_OK, _NOT_MODIFIED, _NOT_FOUND, _GONE, _FAILED = 200, 304, 404, 410, 500
_LATEST = (1 << 63) - 1
"""a time that says: the server's own"""


class Cell(msgspec.Struct, frozen=True):
    """`column` is `family:qualifier`, `timestamp` its version."""

    column: bytes
    timestamp: int = _LATEST
    value: bytes = msgspec.field(name="$", default=b"")


class Row(msgspec.Struct, frozen=True):
    """Some cells of a row."""

    key: bytes
    cells: list[Cell] = msgspec.field(name="Cell")


class Value(msgspec.Struct, frozen=True):
    """A cell without its timestamp."""

    column: bytes
    value: bytes = msgspec.field(name="$", default=b"")


class ValueRow(msgspec.Struct, frozen=True):
    """What stands in a row, whenever it was written."""

    key: bytes
    cells: list[Value] = msgspec.field(name="Cell")


class Rows(msgspec.Struct, frozen=True):
    """What a server answers with."""

    rows: list[Row] = msgspec.field(name="Row", default_factory=list)


class Cluster(HttpCluster):
    """REST servers of one HBase."""

    codes = Codes(
        away="hbase-away",
        login="hbase-login",
        trust="hbase-trust",
        address="hbase-address",
        config="hbase-config",
        other="hbase",
    )
    known = frozenset({"user", "password", "ca"})
    login = "correct `config`: user and password; the user needs to read the table, of a sink also to make and write it, and our records"
    headers: ClassVar[Mapping[str, str]] = {"Accept": "application/json"}
    content_type = "application/x-protobuf"
    place = "table"

    def reason_in(self, answer: httpx2.Response) -> str:
        """The exception's line, without the places in its code."""
        return reason_in(answer)

    def schema(self, table: str) -> dict[str, Any] | None:
        """What the table was made with; None where there is none."""
        answer = self.ask("GET", f"{path_of(table)}/schema", also=[_NOT_FOUND])
        if answer.status_code == _NOT_FOUND:
            return None
        found: dict[str, Any] = answer.json()
        return found

    def make(self, table: str, families: Sequence[str]) -> None:
        """Make it, each cell in its newest version; one that is made meanwhile gets the families."""
        schema = {"name": table, "ColumnSchema": [{"name": name, "VERSIONS": "1"} for name in families]}
        self.ask("POST", f"{path_of(table)}/schema", json=schema, also=[_NOT_MODIFIED])

    def row(self, table: str, key: str) -> Row | None:
        """All cells of a row; None where it, or the table, is not there."""
        answer = self.ask("GET", f"{path_of(table)}/{quote(key, safe='')}", also=[_NOT_FOUND])
        return None if answer.status_code == _NOT_FOUND else msgspec.json.decode(answer.content, type=Rows).rows[0]

    def put_if(self, table: str, row: Row, expected: Cell) -> bool:
        """Write the cells if `expected` stands there (no value: if there is no such cell), which is one of their columns; else False."""
        return self._checked_change(table, row, expected, "put")

    def delete(self, table: str, key: bytes, families: Sequence[bytes], until: int) -> None:
        """Delete the row's cells in these families up to that timestamp."""
        # a path cannot say every key; a body can, which comes with a condition: here that a column is not there
        cells = [Cell(family, until) for family in families]
        self._checked_change(table, Row(key, cells), Cell(families[0] + b":\0"), "delete")

    def tables(self) -> list[str]:
        """Their names; none where the server does not say."""
        with suppress(ScribenginError):
            return [str(each["name"]) for each in self.ask("GET", "/").json().get("table", ())]
        return []

    def is_empty(self, table: str) -> bool:
        """True where it has no row, or is not there. Raises Unreachable where that cannot be said."""
        return self.schema(table) is None or self.last_key(table) is None

    def last_key(self, table: str, columns: Sequence[bytes] = ()) -> bytes | None:
        """The last row that has a cell in these columns or families (any, where there are none); None where there is no such row. Raises
        Unreachable where that cannot be said, SinkError or SourceError where there is no table."""
        # one key is little enough that an error which comes while it is looked for is the whole answer
        asked = [("reversed", "true"), ("limit", "1"), ("filter", "KeyOnlyFilter()"), *(("column", each.decode()) for each in columns)]
        answer = self.ask("GET", f"{path_of(table)}/*?{urlencode(asked)}", also=[_FAILED])
        if answer.status_code == _FAILED:
            if self.schema(table) is None:
                raise self.missing(table)
            raise self.refused(answer, f"GET {path_of(table)}/*")
        rows = msgspec.json.decode(answer.content, type=Rows).rows
        return rows[0].key if rows else None

    def open_scanner(self, table: str, asked: Mapping[str, Any]) -> str:
        """Where it is to be asked for rows: it lives in one of the servers. Raises SinkError or SourceError where there is no table."""
        answer = self.ask("PUT", f"{path_of(table)}/scanner", json=asked, also=[_NOT_FOUND])
        if answer.status_code == _NOT_FOUND:
            raise self.missing(table)
        # a gateway may have another path before what is the server's own
        return f"{path_of(table)}/scanner/{urlsplit(answer.headers['location']).path.rpartition('/')[2]}"

    def next_of(self, scanner: str, most: int) -> bytes | None:
        """So many rows at most, as JSON; None where it says that it has no more, or is gone."""
        answer = self.ask("GET", f"{scanner}?n={most}", also=[_NOT_FOUND, _GONE])
        return answer.content if answer.status_code == _OK else None

    def close_scanner(self, scanner: str) -> None:
        """It would end by itself, later."""
        with suppress(ScribenginError):
            self.ask("DELETE", scanner, also=[_NOT_FOUND, _GONE])

    def missing(self, table: str) -> SourceError | SinkError:
        """There is no such table."""
        said = f"{self.called}: there is no table {table} at {self}"
        return self._error(said, did_you_mean(table, self.tables()) or "correct `table`", "hbase-table")

    def _checked_change(self, table: str, row: Row, expected: Cell, what: str) -> bool:
        body = Rows([Row(row.key, [*row.cells, expected])])
        answer = self.ask("PUT", f"{path_of(table)}/row?check={what}", json=msgspec.to_builtins(body), also=[_NOT_MODIFIED])
        return answer.status_code == _OK


def path_of(table: str) -> str:
    """Of a table, in addresses."""
    return f"/{quote(table, safe='')}"


def reason_in(answer: httpx2.Response) -> str:
    """The exception's line, without the places in its code.

    Answers begin with what the status says, then comes a trace of Java's; what a retry has met stands in it last.
    """
    lines = [line.strip() for line in answer.text.splitlines()]
    named = [line for line in lines if "Exception" in line and not line.startswith(("at ", "..."))]
    deepest = named[-1].removeprefix("Caused by: ") if named and "RetriesExhausted" in named[0] else ""
    said = deepest or next(iter(named), "") or next((line for line in lines if line), "")
    return " ".join(said.split())[:400] or answer.reason_phrase
