"""Rows of a table: the payload of a dead letter can be read again once the values that did not fit are corrected."""

from __future__ import annotations

import json

import pyarrow as pa

from scribengin.core.types import parse_schema
from scribengin.formats.blocks import LineBlock
from scribengin.formats.contract import Bad
from scribengin.formats.table_blocks import TableBlock
from scribengin.state.dead_letter_input import row_decoder

SCHEMA = parse_schema("id BIGINT, amount DOUBLE, note STRING")


def test_only_the_values_that_do_not_fit_are_texts() -> None:
    texts = pa.RecordBatch.from_pydict({"key": ["a", "b"], "id": ["1", "x2"], "amount": ["0.5", "1.5"], "note": ["n", None]})
    batch = pa.RecordBatch.from_pydict({"id": pa.array([1, None], pa.int64()), "amount": [0.5, 1.5], "note": pa.array(["n", None])})
    block = TableBlock("table", batch, bad=[Bad(1, "type", "id")], texts=texts)
    assert json.loads(block.payload(0)) == {"id": 1, "amount": 0.5, "note": "n"}
    row = json.loads(block.payload(1))
    assert row == {"key": "b", "id": "x2", "amount": 1.5, "note": None}

    repaired = json.dumps(row | {"id": 2}).encode()
    decoded = row_decoder(SCHEMA).rows(LineBlock("table", repaired))
    assert (decoded.rows, decoded.bad) == ([{"id": 2, "amount": 1.5, "note": None}], [])
