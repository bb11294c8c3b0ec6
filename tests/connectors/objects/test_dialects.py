"""What a source over objects and over HDFS makes of files as people have them: the same as one over local files."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import object_stores, remote_places
from scribengin.connectors.catalog import open_source, source_types
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.core.errors import SourceError
from scribengin.core.types import parse_schema, with_added

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.core.store import Store

    Opened = Callable[..., Any]

SCHEMA = "id BIGINT, name STRING"


@pytest.fixture(params=["objects", "hdfs"])
def place(request: pytest.FixtureRequest, prefix: str) -> tuple[Store, Opened]:
    """The store of a folder, and what opens a source over it."""
    type_ = request.param
    server = request.getfixturevalue("server" if type_ == "objects" else "hdfs")
    helper: Any = object_stores if type_ == "objects" else remote_places

    def source(schema: str = SCHEMA, keys: dict[str, str] | None = None, **more: Any) -> Any:
        given = source_types()[type_].filled(helper.options(server, prefix, **more))
        return open_source(
            type_, ConnectorContext("in", Path("/nowhere"), given, with_added(parse_schema(schema), given), flow="f", keys=keys or {})
        )

    return helper.opened(server, prefix), source


def rows_of(source: Any) -> list[dict[str, Any]]:
    source.resolve_schema()
    source.check_first()
    decoder = source.decoder()
    return [
        row
        for stream in source.reader().split(BatchLimits(), final=True)
        for block in source.read(stream)
        for row in decoder.columns(block).batch.to_pylist()
    ]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_an_object_that_lacks_a_key_stops_the_source(place: tuple[Store, Opened], format: str) -> None:
    store, opened = place
    if format == "csv":
        store.put("a.csv", b"id,other\n1,x\n")
    else:
        pq.write_table(pa.table({"id": [1], "other": ["x"]}), file := io.BytesIO())
        store.put("a.parquet", file.getvalue())
    source = opened(keys={"name": 'the join key of step "s"'}, format=format)
    for look in (source.check_first, source.check_keys):
        with pytest.raises(SourceError, match='has no column "name", which is the join key of step "s"'):
            look()


def test_a_dialect_an_encoding_folders_and_the_place_of_a_row(place: tuple[Store, Opened]) -> None:
    store, opened = place
    text = 'preamble\nid;name\n1;Müller "x\n# no record\n2;\\N\n'.encode("cp1252")
    store.put("land=de/tag=2026-01-02/a.csv", text)
    store.put("land=__HIVE_DEFAULT_PARTITION__/tag=2026-01-03/b.csv.gz", gzip.compress(text))
    dialect = {"delimiter": ";", "quote": "none", "comment": "#", "skip_lines": 1, "null": ["\\N"], "encoding": "windows-1252"}
    more = {"match": "**/*", "partition_columns": {"land": "STRING", "tag": "DATE"}, "metadata": {"file_name": "file_name", "line": "line"}}
    rows = rows_of(opened(format="csv", **dialect, **more))
    found = sorted((row["file_name"], row["line"], row["id"], row["name"], row["land"], str(row["tag"])) for row in rows if row["land"])
    assert found == [("a.csv", 3, 1, 'Müller "x', "de", "2026-01-02"), ("a.csv", 5, 2, None, "de", "2026-01-02")]
    packed = [(row["file_name"], row["line"], row["id"], row["land"], str(row["tag"])) for row in rows if not row["land"]]
    assert packed == [("b.csv.gz", 3, 1, None, "2026-01-03"), ("b.csv.gz", 5, 2, None, "2026-01-03")]


def test_json_of_another_shape(place: tuple[Store, Opened]) -> None:
    store, opened = place
    store.put("a.json", b'{"Records": [{"id": 1,\n "name": "a"}, {"id": 2}]}')
    rows = rows_of(opened(format="json", json={"records": "$.Records[*]"}, metadata={"offset": "offset"}))
    assert [(row["id"], row["name"], row["offset"] > 0) for row in rows] == [(1, "a", True), (2, None, True)]


def test_a_first_object_with_other_columns_stops_the_flow(place: tuple[Store, Opened]) -> None:
    store, opened = place
    store.put("a.csv", b" id, name\n1,a\n")
    with pytest.raises(SourceError, match='it has " id", " name"'):
        rows_of(opened(format="csv"))
