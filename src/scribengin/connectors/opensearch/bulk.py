"""The body of a `_bulk` request, built column by column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from scribengin.connectors.keyed.contract import KeyedRows

_ESCAPED = r'[\x00-\x1f"\\]'
"""characters that JSON must escape in a text"""


def bulk_body(rows: KeyedRows, indexes: pa.Array | str) -> bytes:
    """Two lines for each row: the action, which indexes it in its index, from `indexes` (STRING, one for each row) or the common one, by
    its id with its version; and its document."""
    versions = pa.array(np.arange(rows.version, rows.version + len(rows), dtype=np.int64)).cast(pa.string())
    begin = b'{"index":{"_index":"'
    named = (begin + _inside(indexes),) if isinstance(indexes, str) else (begin, _insides(indexes))
    joined = pc.binary_join_element_wise(
        *named,
        b'","_id":"',
        _insides(pa.array(rows.ids, pa.string())),
        b'","version":',
        versions.cast(pa.binary()),
        b',"version_type":"external"}}\n',
        rows.columns.column(0),
        b"\n",
        b"",
    )
    _, offsets, data = joined.buffers()
    assert joined.offset == 0
    body: bytes = data[: np.frombuffer(offsets, np.int32)[len(rows)]].to_pybytes()
    return body


def _insides(texts: pa.Array) -> pa.Array:
    """Each text (BINARY) as it is written between the quotes of JSON."""
    if pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        return pa.array([_inside(text) for text in texts.to_pylist()], pa.binary())
    return texts.cast(pa.binary())


def _inside(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]
