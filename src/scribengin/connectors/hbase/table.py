"""A table that is read: what of it the flow wants, whether the table gives that, and what its rows were."""

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

    from scribengin.connectors.hbase.gateway import Gateway, ValueRow
    from scribengin.core.types import Schema

_DIGEST_BYTES = 16
_INSTEAD = f"restore it; or say on_change: ignore to go on with what is there now, at least once; or {start_over()}"

_encode = msgspec.msgpack.Encoder().encode


class ExpectedTable:
    """What a flow asks of its table. Raises SourceError where that is at odds with itself."""

    def __init__(self, cluster: Gateway, options: Mapping[str, Any], schema: Schema | None) -> None:
        if schema is None:
            raise SourceError(
                f"{cluster.called} has no schema: HBase does not know the types of its columns",
                remedy='add the columns that you want: schema: "id BIGINT, name STRING"',
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
        """Raises SourceError where the table is not there, or does not have the families; Unreachable where the cluster does not answer."""
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
        """Of rows, nothing yet."""
        return HBaseDigest(keys_only=not self.cells)

    @property
    def columns(self) -> Sequence[bytes]:
        """What a scan asks for: the cells, or all of their families where a look at the last row could not name one of them."""
        cells = [self.names.cell(name) for name in self.cells]
        plain = all(cell.count(":") == 1 and cell.strip() == cell for cell in cells)
        return [each.encode() for each in (cells if plain else self.names.families(self.cells))]


def unlike(cluster: Gateway, said: str) -> SourceError:
    """The table, or the options, do not give what the flow asks for."""
    remedy = "correct the source: `schema`, `columns` and `family` for cells, `row` for what stands in the row key"
    return SourceError(said, remedy=remedy, code="table-columns", node=cluster.node)


def changed(cluster: Gateway, what: str, how: str) -> SourceError:
    """What was handed out once cannot be handed out again."""
    said = f"{cluster.called}: {what} changed after it was taken, and is not yet committed: {how}"
    return SourceError(said, remedy=_INSTEAD, code="hbase-changed", node=cluster.node)


class HBaseDigest:
    """Of rows, in their order; the same whatever pages they came in."""

    def __init__(self, *, keys_only: bool = False) -> None:
        self._hash = blake2b(digest_size=_DIGEST_BYTES)
        self._keys_only = keys_only

    def add(self, rows: Sequence[ValueRow]) -> None:
        """These come next."""
        self._hash.update(b"".join(map(_encode, [row.key for row in rows] if self._keys_only else rows)))

    @property
    def text(self) -> str:
        """In hex."""
        return self._hash.hexdigest()
