"""Avro files: every codec, pieces of a large one, and broken places that cost only what stands there."""

from __future__ import annotations

import io
import json
import struct
from typing import TYPE_CHECKING, Any
from zlib import crc32

import fastavro
import pyarrow as pa
import pytest

from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.core import zstd
from scribengin.core.errors import SourceError
from scribengin.core.types import parse_schema
from scribengin.formats.rows import batch_to_rows
from scribengin.testing.conformance import check_source

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}, {"name": "small", "type": "int"}],
}
SYNC = b"0123456789abcdef"
COLUMNS = "id BIGINT NOT NULL, text STRING, small TINYINT"


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": n, "text": None if n % 5 == 0 else f"row {n}", "small": n % 100} for n in range(first, first + count)]


def container(records: list[dict[str, Any]], codec: str = "null", schema: Any = SCHEMA, **more: Any) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), records, codec=codec, sync_marker=SYNC, **more)
    return out.getvalue()


def source_of(path: Path, columns: str = COLUMNS, **options: Any) -> Any:
    given = {"path": path.name, "format": "avro", **options}
    return open_source("files", ConnectorContext("in", path.parent, given, parse_schema(columns)))


def everything(source: Any) -> tuple[list[dict[str, Any]], list[tuple[str, str, int | None, bytes]]]:
    """The rows, and (reason, message, row, payload) of each that is dead; rows and columns agree."""
    found: list[dict[str, Any]] = []
    dead: list[tuple[str, str, int | None, bytes]] = []
    decoder = source.decoder()
    for stream in source.reader().split(BatchLimits(), final=True):
        for block in source.read(stream):
            decoded, columns = decoder.rows(block), decoder.columns(block)
            assert batch_to_rows(columns.batch) == decoded.rows
            assert len(block) == len(decoded.rows) + len(decoded.bad)
            found += decoded.rows
            dead += [(bad.reason, bad.message, block.place(bad.ordinal).row, block.payload(bad.ordinal)) for bad in decoded.bad]
    return found, dead


PACK = {
    "snappy": lambda data: pa.Codec("snappy").compress(data, asbytes=True) + struct.pack(">I", crc32(data)),
    "zstandard": zstd.compress,
}
"""codecs for which fastavro wants one more package"""


def packed(codec: str, plain: bytes) -> bytes:
    """The container with its blocks compressed."""
    begin = plain.index(SYNC) + len(SYNC)
    out = io.BytesIO(plain[:begin].replace(b"\x08null", bytes([2 * len(codec)]) + codec.encode()))
    out.seek(0, io.SEEK_END)
    blocks = io.BytesIO(plain[begin:])
    while blocks.tell() < len(plain) - begin:
        count = fastavro.schemaless_reader(blocks, "long", None)
        data = fastavro.schemaless_reader(blocks, "bytes", None)
        assert blocks.read(len(SYNC)) == SYNC
        fastavro.schemaless_writer(out, "long", count)
        fastavro.schemaless_writer(out, "bytes", PACK[codec](data))
        out.write(SYNC)
    return out.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "zstandard", "snappy"])
def test_files_of_every_codec_are_read(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "a.avro"
    path.write_bytes(packed(codec, container(rows(1000), sync_interval=1000)) if codec in PACK else container(rows(1000), codec))
    assert everything(source_of(path)) == (rows(1000), [])


def test_a_large_file_is_cut_between_blocks_and_rows_keep_their_number(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    given = rows(30_000)
    given[29_000]["small"] = 300
    path.write_bytes(container(given, sync_interval=2000))
    source = source_of(path, split=65536)
    streams = source.reader().split(BatchLimits(), final=True)
    assert len(streams) > 3
    assert sum(stream.bytes for stream in streams) == path.stat().st_size
    found, dead = everything(source)
    assert found == [row for row in given if row["id"] != 29_000]
    ((reason, message, row, payload),) = dead
    assert (reason, row, json.loads(payload)) == ("out-of-range", 29_000, given[29_000])
    assert 'field "small": found 300; expected TINYINT' in message


def test_the_contract_of_sources_holds(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.avro").write_bytes(container(rows(500), "deflate", sync_interval=1000))
    check_source(open_source("files", ConnectorContext("in", tmp_path, {"path": "*.avro", "format": "avro"}, parse_schema(COLUMNS))))


@pytest.mark.parametrize("share", [0.001, 0.01, 0.3, 0.9, 0.9999])
def test_a_file_that_is_cut_off_gives_its_whole_blocks_and_one_dead_letter(tmp_path: Path, share: float) -> None:
    data = container(rows(5000), sync_interval=1000)
    path = tmp_path / "a.avro"
    path.write_bytes(data[: int(len(data) * share)])
    found, dead = everything(source_of(path))
    assert found == rows(len(found))
    assert len(found) >= 5000 * share - 200
    assert [(reason, "ends in" in message) for reason, message, _, _ in dead] == [("truncated", True)]


def test_a_block_that_cannot_be_decompressed_costs_its_own_records(tmp_path: Path) -> None:
    data = bytearray(container(rows(3000), "deflate", sync_interval=4000))
    markers = [at for at in range(len(data)) if data.startswith(SYNC, at)]
    middle = markers[2] + 16 + 10
    data[middle : middle + 20] = b"\xff" * 20
    path = tmp_path / "a.avro"
    path.write_bytes(data)
    found, ((reason, message, _, _),) = everything(source_of(path))
    lost = 3000 - len(found)
    assert 0 < lost < 1000
    assert [row for row in rows(3000) if row in found] == found
    assert reason == "corrupt"
    assert f"block of {lost} records at byte {markers[2] + 16}" in message


def test_a_record_that_cannot_be_read_costs_the_rest_of_its_block(tmp_path: Path) -> None:
    data = container(rows(100)) + container(rows(100, 100)).partition(SYNC)[2]
    path = tmp_path / "a.avro"
    broken = data.replace(b"\x02\x0crow 51", b"\x7f\x0crow 51")
    assert broken != data
    path.write_bytes(broken)
    found, ((reason, message, _, _),) = everything(source_of(path))
    assert [row["id"] for row in found] == [*range(51), *range(100, 200)]
    assert reason == "corrupt"
    assert "of the block of 100 records" in message
    assert "only the first 51 can be read" in message


def test_a_text_that_is_no_utf8_costs_its_record_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    path.write_bytes(container(rows(100)).replace(b"row 51", b"row\xff51"))
    found, ((reason, message, row, payload),) = everything(source_of(path))
    assert [row["id"] for row in found] == [n for n in range(100) if n != 51]
    assert (reason, row) == ("invalid-utf8", 51)
    assert 'field "text": byte 3' in message
    assert json.loads(payload)["id"] == 51


def test_where_no_block_ends_reading_ends_with_one_dead_letter(tmp_path: Path) -> None:
    data = container(rows(3000), sync_interval=1000)
    markers = [at for at in range(len(data)) if data.startswith(SYNC, at)]
    broken = data[: markers[5]] + b"X" * 16 + data[markers[5] + 16 :]
    path = tmp_path / "a.avro"
    path.write_bytes(broken)
    found, ((reason, message, _, _),) = everything(source_of(path))
    assert found == rows(len(found))
    assert 0 < len(found) < 1000
    assert (reason, "does not end with the sync marker" in message) == ("corrupt", True)


def test_a_number_of_records_that_is_broken_asks_for_no_memory(tmp_path: Path) -> None:
    empty = {"type": "record", "name": "Empty", "fields": []}
    data = container([{}], schema=empty)
    begin = data.index(SYNC) + 16
    path = tmp_path / "a.avro"
    path.write_bytes(data[:begin] + b"\xfe\xff\xff\xff\xff\xff\xff\x7f" + data[begin + 1 :])
    found, dead = everything(source_of(path, "id BIGINT"))
    assert len(found) <= 16_384
    assert [reason for reason, _, _, _ in dead] == ["corrupt"]


@pytest.mark.parametrize("data", [b"O", b"Obj", b"PAR1" + b"\0" * 100, b'{"id": 1}\n' * 10])
def test_another_file_is_one_dead_letter(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.avro"
    path.write_bytes(data)
    found, dead = everything(source_of(path))
    assert found == []
    assert [reason in ("truncated", "corrupt") for reason, _, _, _ in dead] == [True]


@pytest.mark.parametrize(
    ("columns", "change", "told"),
    [
        ("id BIGINT", (b"\x08null", b"\x06lzo"), "is compressed with lzo; supported codecs are null, deflate"),
        ("id BIGINT", (b'"long"', b'"lone"'), "cannot be read by its own schema"),
    ],
)
def test_a_file_that_cannot_be_read_so_is_told(tmp_path: Path, columns: str, change: tuple[bytes, bytes], told: str) -> None:
    path = tmp_path / "a.avro"
    path.write_bytes(container(rows(10)).replace(*change))
    with pytest.raises(SourceError) as caught:
        everything(source_of(path, columns))
    assert told in caught.value.message
    assert "a.avro" in caught.value.message


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("id STRING", 'cannot be read into these columns: field "id": found a whole number; expected STRING'),
        ("id BIGINT, gone STRING NOT NULL", 'field "gone" is missing or null; expected STRING NOT NULL'),
    ],
)
def test_a_file_of_other_columns_is_one_bad_record(tmp_path: Path, columns: str, told: str) -> None:
    (tmp_path / "a.avro").write_bytes(container(rows(10)))
    found, dead = everything(source_of(tmp_path / "a.avro", columns))
    assert found == []
    assert [(reason, told in message) for reason, message, *_ in dead] == [("wrong-type", True)]
