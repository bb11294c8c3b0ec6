"""What a flow file is told of its tables of HBase before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import InputError
from scribengin.local.prepare import prepare

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT, customer STRING"}}
sinks: {kept: {from: orders, type: hbase, server: ["http://hbase1:8080"], table: orders, mode: upsert, KEYS}}
"""


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('key: [customer], row: "{customer}/{id:8}"', '`row` names "id", which is not in `key`'),
        ('key: [customer, id], row: "{id:8}"', '`row` does not contain "customer", a part of `key`'),
        (
            'key: [customer, id], row: "{customer}{id}"',
            '`row` has "customer" and "id" side by side: x, yz and xy, z would have the same row key',
        ),
        (
            'key: [customer], row: "{customer:8}"',
            '`row` pads "customer" with zeros, but it is not an integer: 7 and 07',
        ),
        ('key: [id], row: "{id:z}"', '`row` has "{id:z}": after the colon, expected a number of digits or reverse'),
    ],
)
def test_a_template_of_row_keys_has_the_columns_of_the_key(folder: FlowFolder, keys: str, said: str) -> None:
    folder.flow(FLOW.replace("KEYS", keys)).data("data/a.jsonl", [])
    with pytest.raises(InputError) as told:
        prepare(folder.path / "flow.yaml", state=None)
    (problem,) = told.value.problems
    assert problem.code == "table-mode"
    assert said in problem.message


READ = """
version: 1
name: shop
sources: {read: {type: hbase, server: ["http://hbase1:8080"], table: orders, READ}}
sinks: {kept: {from: read, type: SINK}}
"""
FILES = "files, path: out, format: json"


@pytest.mark.parametrize(
    ("read", "sink", "code", "said"),
    [
        ('row: "{key}"', FILES, "schema-missing", 'source "read" reads cells and has no schema'),
        ('row: "{key}", schema: "id BIGINT"', FILES, "column-unknown", 'row "key", a column that `schema` does not have'),
        ('columns: {ids: "d:id"}, schema: "id BIGINT"', FILES, "column-unknown", 'columns "ids", a column that `schema` does not have'),
        ('row: "{id}{c}", schema: "id BIGINT, c STRING"', FILES, "table-mode", '`row` has "id" and "c" side by side'),
        ('row: "{id:z}", schema: "id BIGINT"', FILES, "table-mode", '`row` has "{id:z}": after the colon'),
        (
            'schema: "id BIGINT"',
            'hbase, server: ["http://hbase1:8080"], table: orders',
            "table-feeds-itself",
            'which source "read" of the same flow reads',
        ),
    ],
)
def test_a_source_has_columns_that_row_keys_and_cells_can_give(folder: FlowFolder, read: str, sink: str, code: str, said: str) -> None:
    folder.flow(READ.replace("READ", read).replace("SINK", sink))
    with pytest.raises(InputError) as told:
        prepare(folder.path / "flow.yaml", state=None)
    (problem,) = told.value.problems
    assert problem.code == code
    assert said in problem.message


def test_a_password_in_the_address_of_a_source_is_told(folder: FlowFolder) -> None:
    flow = READ.replace("READ", 'schema: "id BIGINT"').replace("SINK", FILES)
    folder.flow(flow.replace("//hbase1", "//me:hunter2@hbase1"))
    with pytest.raises(InputError) as told:
        prepare(folder.path / "flow.yaml", state=None)
    (problem,) = told.value.problems
    assert problem.code == "secret-in-plain"
    assert "hunter2" not in str(told.value)
