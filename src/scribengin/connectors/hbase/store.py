"""A table as a keyed store: each cell is written with its row's version as timestamp, and for each cell the newest timestamp wins.

For two cells with the same timestamp the last written one wins (HBase's reference guide, "Versions"). A version depends only on the
decision, so equal versions have equal rows. A column without a value is written as an empty cell: otherwise the value of an earlier version
would remain visible.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.hbase.cell_names import CellNames
from scribengin.connectors.hbase.cells import Cells, values_of
from scribengin.connectors.hbase.gateway import open_gateway
from scribengin.connectors.hbase.gateway_contract import CODES, FOREVER, HBaseCell, HBaseRow
from scribengin.connectors.hbase.row_keys import Template
from scribengin.connectors.hbase.scan import HBaseScan
from scribengin.connectors.keyed.contract import WriteAnswer, WriterRecord
from scribengin.core.errors import SinkError, Unreachable
from scribengin.core.remedies import start_over

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.connectors.keyed.contract import KeyedRows
    from scribengin.core.types import Schema

_MOST_KEY_BYTES = 32_767
_SOME = 5_000
_DELETERS = 8
_TAG, _BODY = b"r:tag", b"r:body"
_NAME = re.compile(r"(\w+:)?\w[\w.-]*")
_LOSES = ("SKIP_WAL", "ASYNC_WAL")


class HBaseStore:
    """An HBase table as a KeyedStore. `key` contains the columns that identify a row; if it is empty, the record's id is the row key."""

    form: Literal["json", "columns"] = "columns"
    most_id_bytes = _MOST_KEY_BYTES

    def __init__(self, node: str, options: Mapping[str, Any], key: tuple[str, ...]) -> None:
        self._node = node
        self._cluster = open_gateway(node, options["server"], options["config"])
        self._table = self._checked("table", options["table"])
        self._records = self._checked("records", options["records"])
        self._key = key
        self._row: str = options["row"]
        self._names = CellNames(options["family"], options["columns"])
        self._values: Literal["text", "binary"] = options["values"]

    def __str__(self) -> str:
        return f"table {self._table} at {self._cluster}"

    def read_record(self) -> WriterRecord | None:
        """Read the record from its row, which is never stale."""
        row = self._cluster.row(self._records, self._table)
        if row is None:
            return None
        cells = {cell.column: cell.value for cell in row.cells}
        return WriterRecord(msgspec.json.decode(cells[_BODY]), cells[_TAG])

    def write_record(self, body: Mapping[str, Any], held: WriterRecord | None) -> bool:
        """Replace the record by a check-and-put of one row, on the condition that it has the tag that was read. If the answer is lost, the
        record is read again and compared with the new tag."""
        if held is None and self._cluster.schema(self._records) is None:
            self._make(self._records, ["r"])
        tag = uuid4().hex.encode()
        row = HBaseRow(self._table.encode(), [HBaseCell(_TAG, value=tag), HBaseCell(_BODY, value=msgspec.json.encode(body))])
        try:
            return self._cluster.put_if(self._records, row, HBaseCell(_TAG, value=held.tag if held else b""))
        except Unreachable:
            found = self.read_record()
            if found is None or found.tag == (held.tag if held else None):
                raise
            return bool(found.tag == tag)

    def make(self, schema: Schema) -> None:
        """Create the table with the families of the columns; an existing table is not changed. Raises SinkError if it does not match."""
        if self._cluster.schema(self._table) is None:
            self._make(self._table, self._names.families(schema.names))
        if wrong := self.unlike(schema):
            raise self._error("; ".join(wrong), "correct the table or the flow", "hbase-table")

    def unlike(self, schema: Schema) -> list[str]:
        """Why the mapping, or the existing table, does not accept these columns, one sentence per reason."""
        found = self._unlike_mapping(schema)
        held = None if found else self._cluster.schema(self._table)
        if held is None:
            return found
        for name in self._names.families(schema.names):
            if name not in held.families:
                found.append(f'the table has no column family "{name}"; it has {", ".join(held.families)}')
            elif held.families[name] != FOREVER:
                found.append(
                    f'''column family "{name}" has TTL {held.families[name]}: the timestamp of Scribengin's cells is a version, not a '''
                    "time in milliseconds, and they would never expire; set TTL to FOREVER"
                )
        if held.durability in _LOSES:
            found.append(f"the table has DURABILITY {held.durability}: acknowledged rows are lost if a server fails; set SYNC_WAL")
        return found

    def is_there(self) -> bool:
        """True if the table exists, according to its schema."""
        return self._cluster.schema(self._table) is not None

    def is_empty(self) -> bool:
        """True if the table has no row; reads at most one."""
        return self._cluster.is_empty(self._table)

    def send(self, rows: KeyedRows) -> WriteAnswer:
        """Write the rows in one request. If a part of it is refused, its halves are sent separately, down to single rows."""
        cells = self.cells(rows)
        sizes = np.asarray(pc.binary_length(cells.keys))
        fit = (sizes > 0) & (sizes <= _MOST_KEY_BYTES)
        torn = Template.of(self._row).torn(rows.columns) if self._row else {}
        if fit.all() and not torn:
            return self._sent(cells, range(len(rows)))
        bad = [(int(index), *_bad_key(int(sizes[index]))) for index in np.flatnonzero(~fit)]
        bad += [(index, "refused", said) for index, said in torn.items() if fit[index]]
        fit[list(torn)] = False
        left = np.flatnonzero(fit)
        answer = self._sent(cells.some(left), left.tolist())
        return replace(answer, refused=sorted([*bad, *answer.refused]))

    def cells(self, rows: KeyedRows) -> Cells:
        """The rows with all of their cells."""
        names = [self._names.cell(name).encode() for name in rows.columns.schema.names]
        values = [values_of(column, self._values) for column in rows.columns.columns]
        return Cells(self._row_keys(rows), list(zip(names, values, strict=True)), np.arange(rows.version, rows.version + len(rows)))

    def versions(self) -> Iterator[Sequence[int]]:
        """The newest timestamp in each row, read by a scan without values."""
        for rows in self._keys():
            yield [max(cell.timestamp for cell in row.cells) for row in rows]

    def clear(self) -> int:
        """Delete row by row, up to the version of each row; the table itself is kept."""

        def delete(row: HBaseRow) -> None:
            families = sorted({cell.column.partition(b":")[0] for cell in row.cells})
            self._cluster.delete(self._table, row.key, families, max(cell.timestamp for cell in row.cells))

        deleted = 0
        with ThreadPoolExecutor(_DELETERS) as pool:
            for rows in self._keys():
                deleted += sum(1 for _ in pool.map(delete, rows))
        return deleted

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    # --- pieces ---

    def _unlike_mapping(self, schema: Schema) -> list[str]:
        found = self._names.unlike(schema.names, "the flow does not have")
        if self._row:
            try:
                found += Template.of(self._row).unlike(self._key, {field.name: field.type for field in schema.fields})
            except ValueError as error:
                found.append(f"`row` has {error}")
        return found

    def _keys(self) -> Iterator[list[HBaseRow]]:
        if self._cluster.schema(self._table) is not None:
            yield from HBaseScan(self._cluster, self._table, HBaseRow, page=_SOME, part="names").pages(b"")

    def _row_keys(self, rows: KeyedRows) -> pa.Array:
        if self._row:
            return Template.of(self._row).keys(rows.columns)
        return pa.array(rows.ids, pa.string()).cast(pa.binary())

    def _sent(self, cells: Cells, indexes: Sequence[int]) -> WriteAnswer:
        """Send the rows, in halves if a part is refused. `indexes` are the indexes of these rows in the caller's request."""
        if not indexes:
            return WriteAnswer()
        outcome = self._cluster.put(self._table, cells)
        if outcome.what == "taken":
            return WriteAnswer()
        if outcome.what == "large":
            return WriteAnswer(too_large=True)
        if outcome.what == "gone":
            remedy = f"restore it, or {start_over()}"
            raise self._error(f"does not accept rows any more: {outcome.said}", remedy, "hbase-table")
        if outcome.what == "busy":
            return WriteAnswer(again=indexes)
        if len(indexes) == 1:
            return WriteAnswer([(indexes[0], *_rejection(self._table, outcome.said))])
        half = len(indexes) // 2
        first, second = (self._sent(cells.some(part), [indexes[at] for at in part]) for part in np.split(np.arange(len(indexes)), [half]))
        return WriteAnswer([*first.refused, *second.refused], [*first.again, *second.again], too_large=first.too_large or second.too_large)

    def _checked(self, option: str, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise SinkError(
                f'sink "{self._node}": `{option}` is "{name}", which is not a valid table name',
                remedy="write TABLE or NAMESPACE:TABLE, of letters, digits and _; also - and ., not at the beginning",
                code="hbase-table",
                node=self._node,
            )
        return name

    def _make(self, table: str, families: list[str]) -> None:
        try:
            self._cluster.make(table, families)
        except (SinkError, Unreachable) as error:
            if "Namespace" in str(error):
                namespace = table.partition(":")[0]
                remedy = f"create it in the HBase shell: create_namespace '{namespace}'; or correct `table`"
                raise self._error(f"cannot be created: there is no namespace {namespace}", remedy, "hbase-table") from error
            if isinstance(error, SinkError) and error.code == CODES.other:
                raise self._error(f"cannot be created: {error}", "correct `table`", "hbase-table") from error
            raise

    def _error(self, what: str, remedy: str, code: str) -> SinkError:
        return SinkError(f'sink "{self._node}": {self} {what}', remedy=remedy, code=code, node=self._node)


def _bad_key(size: int) -> tuple[str, str]:
    return ("too-large", f"the row key has {size} bytes; the maximum is {_MOST_KEY_BYTES}") if size else ("refused", "the row key is empty")


def _rejection(table: str, said: str) -> tuple[str, str]:
    large = "size too large" in said or "exceeds limit" in said
    hint = " (the limit of a cell is hbase.client.keyvalue.maxsize bytes, set on the gateway)" if large else ""
    return "too-large" if large else "refused", f"{table} rejected the row: {said}{hint}"
