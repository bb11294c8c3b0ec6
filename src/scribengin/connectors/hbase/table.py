"""A table as a source: the columns that the flow needs, a check whether the table has them, and a digest of its rows."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.hbase.cell_names import CellNames
from scribengin.connectors.hbase.row_keys import Template
from scribengin.core.errors import SourceError
from scribengin.core.remedies import start_over

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.connectors.hbase.gateway_contract import Gateway, ValueRow
    from scribengin.core.types import Schema

_DIGEST_BYTES = 16
_INSTEAD = f"restore it; or, to continue with the current data at least once, set on_change: ignore; or {start_over()}"

_encode = msgspec.msgpack.Encoder().encode


class ExpectedTable:
    """What the flow requires of its table. Raises SourceError if the requirements contradict each other."""

    def __init__(self, cluster: Gateway, options: Mapping[str, Any], schema: Schema | None) -> None:
        if schema is None:
            raise SourceError(
                f"{cluster.called} has no schema, and HBase does not store the types of columns",
                remedy='add the columns to read: schema: "id BIGINT, name STRING"',
                code="schema-missing",
                node=cluster.node,
            )
        self.table: str = options["table"]
        self.schema = schema
        self.names = CellNames(options["family"], options["columns"])
        self.template, wrong = Template(()), list[str]()
        try:
            self.template = Template.of(options["row"])
            types = {field.name: field.type for field in schema.fields}
            wrong = self.template.unlike(self.template.names, types)
            wrong += [f'`row` names "{name}", which `schema` does not have' for name in self.template.names if name not in schema]
        except ValueError as error:
            wrong = [f"`row` has {error}"]
        self.cells = [name for name in schema.names if name not in self.template.names]
        wrong += self.names.unlike(self.cells, "`schema` does not have, or `row` has")
        if wrong:
            raise unlike(cluster, f"{cluster.called}: {'; '.join(wrong)}")

    def check(self, cluster: Gateway) -> None:
        """Check the table. Raises SourceError if it does not exist, or lacks a family; Unreachable if the cluster does not answer."""
        held = cluster.schema(self.table)
        if held is None:
            raise cluster.missing(self.table)
        missing = [name for name in self.names.families(self.cells) if name not in held.families]
        if missing:
            said = (
                f'{cluster.called}: table {self.table} at {cluster} has no column family "{missing[0]}"; it has {", ".join(held.families)}'
            )
            raise unlike(cluster, said)

    def digest(self) -> HBaseDigest:
        """An empty digest of rows."""
        return HBaseDigest(keys_only=not self.cells)

    @property
    def columns(self) -> Sequence[bytes]:
        """The columns of a scan: those of the cells, or all of their families if the request for the last row cannot name one of the
        columns."""
        cells = [self.names.cell(name) for name in self.cells]
        plain = all(cell.count(":") == 1 and cell.strip() == cell for cell in cells)
        return [each.encode() for each in (cells if plain else self.names.families(self.cells))]


def unlike(cluster: Gateway, said: str) -> SourceError:
    """The error for a table, or options, that do not match the flow's columns."""
    remedy = "correct the source: `schema`, `columns` and `family` for cells, `row` for the contents of the row key"
    return SourceError(said, remedy=remedy, code="table-columns", node=cluster.node)


def changed(cluster: Gateway, what: str, how: str) -> SourceError:
    """The error for rows that were assigned to a Batch and cannot be read again unchanged."""
    said = f"{cluster.called}: {what} changed after it was assigned to a Batch that is not yet committed: {how}"
    return SourceError(said, remedy=_INSTEAD, code="hbase-changed", node=cluster.node)


class HBaseDigest:
    """A digest of rows in their order; it does not depend on how the rows are divided into pages."""

    def __init__(self, *, keys_only: bool = False) -> None:
        self._hash = blake2b(digest_size=_DIGEST_BYTES)
        self._keys_only = keys_only

    def add(self, rows: Sequence[ValueRow]) -> None:
        """Add the next rows."""
        self._hash.update(b"".join(map(_encode, [row.key for row in rows] if self._keys_only else rows)))

    @property
    def text(self) -> str:
        """The digest in hex."""
        return self._hash.hexdigest()
