"""Files that are not lines of what their name says: JSON of any shape, several lines a record, other compressions."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.connectors.files.multiline import MultilineCutter
from scribengin.connectors.files.source import FilesSource
from scribengin.connectors.files.splitting import Hole, marking_holes
from scribengin.core import zstd
from scribengin.core.types import Schema, parse_schema
from scribengin.formats.blocks import DamageBlock

if TYPE_CHECKING:
    from pathlib import Path

ID = parse_schema("id BIGINT")
LINES = b'{"id":1}\n{"id":2}\n'


def source_of(folder: Path, schema: Schema | None = ID, **options: Any) -> FilesSource:
    source = open_source("files", ConnectorContext("in", folder, {"path": "data", "format": "json", **options}, schema))
    assert isinstance(source, FilesSource)
    return source


def read(folder: Path, schema: Schema | None = ID, **options: Any) -> tuple[list[Any], list[str]]:
    """(rows, messages of the dead)"""
    source = source_of(folder, schema, **options)
    decoder, rows, dead = source.decoder(), list[Any](), list[str]()
    for stream in source.reader().split(BatchLimits(), final=True):
        for block in source.read(stream):
            found = decoder.rows(block)
            assert found.rows == decoder.columns(block).batch.to_pylist()
            rows += found.rows
            dead += [f"{bad.reason}: {bad.message}" for bad in found.bad]
    return rows, dead


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


LONG = b'{"x":"' + b"x" * (2 << 20) + b'","id":1}\n'
"""a line that is longer than what a file's shape is recognised by"""


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (b'[{"id":1},{"id":2}]', {"shape": "array"}),
        (b'[\n  {\n    "id": 1\n  },\n  {\n    "id": 2\n  }\n]\n', {"shape": "array"}),
        (b'{"id":1}{"id":2}', {"shape": "concatenated"}),
        (b'{\n "id": 1\n}\n{\n "id": 2\n}\n', {"shape": "concatenated"}),
        (b'{"next": null, "Records": [{"id":1},{"id":2}]}', {"records": "$.Records[*]"}),
        (b'[{"id":1},{"id":2}]', {"shape": "auto"}),
        (b'{"id":1}{"id":2}', {"shape": "auto"}),
        (b'{"id":1}\n{"id":2}\n', {"shape": "auto"}),
        (LONG + b'{"id":2}\n', {"shape": "auto"}),
        (LONG + b'{"id":2}\n', {"shape": "lines"}),
    ],
    ids=lambda each: each[:40].decode() if isinstance(each, bytes) else str(each),
)
@pytest.mark.parametrize("packed", [False, True])
def test_json_of_any_shape(tmp_path: Path, data: bytes, options: dict[str, str], packed: bool) -> None:
    put(tmp_path / f"data/a.json{'.gz' * packed}", gzip.compress(data) if packed else data)
    assert read(tmp_path, json=options) == ([{"id": 1}, {"id": 2}], [])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (json.dumps([{"id": n} for n in range(50)], indent=2).encode(), "set json: {shape: array}"),
        (b'[{"id":1},{"id":2}]', "set json: {shape: array}"),
        (json.dumps({"id": 1, "x": {}}, indent=2).encode() * 9, "set json: {shape: concatenated}"),
        (json.dumps({"Records": [{"id": 1}] * 30}, indent=1).encode(), 'json: {records: "$.Records[*]"}'),
        (json.dumps({"Records": [{"id": 1}] * 30_000}, indent=1).encode(), "set json: {shape: concatenated}"),
        (b'{"id":1}{"id":2}', "json: {shape: concatenated}"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_of_another_shape_is_one_letter_that_names_the_option(tmp_path: Path, data: bytes, says: str, packed: bool) -> None:
    put(tmp_path / f"data/a.json{'.gz' * packed}", gzip.compress(data) if packed else data)
    rows, dead = read(tmp_path, split=65536)
    assert rows == []
    assert len(dead) == 1
    assert says in dead[0]


def test_a_torn_first_line_takes_no_other_with_it(tmp_path: Path) -> None:
    put(tmp_path / "data/a.jsonl", b'{"id": 1, "x": "to\n' + LINES)
    rows, dead = read(tmp_path)
    assert (rows, len(dead)) == ([{"id": 1}, {"id": 2}], 1)


def test_a_value_of_any_kind_is_kept_as_its_text(tmp_path: Path) -> None:
    texts = ['{"b": [1.50, {"c": null}]}', '"plain \\u00e4"', "12345678901234567890.10", "null", "true", "[]"]
    put(tmp_path / "data/a.json", ("[" + ",\n".join(f'{{"id":{n}, "any": {text}}}' for n, text in enumerate(texts)) + "]").encode())
    rows, dead = read(tmp_path, parse_schema("id INT, any STRING"), json={"shape": "array", "text": ("any",)})
    assert [row["any"] for row in rows] == [texts[0], "plain ä", texts[2], None, "true", "[]"]
    assert dead == []


def test_a_file_of_one_value_is_read_by_one_task(tmp_path: Path) -> None:
    put(tmp_path / "data/a.json", json.dumps([{"id": n} for n in range(30_000)]).encode())
    streams = source_of(tmp_path, json={"shape": "array"}, split=65536).reader().split(BatchLimits(), final=True)
    assert len(streams) == 1
    rows, _ = read(tmp_path, json={"shape": "array"}, split=65536)
    assert [row["id"] for row in rows] == list(range(30_000))


# --- what a file is ---


def packed(name: str, data: bytes) -> bytes:
    file = io.BytesIO()
    if name == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a.jsonl", data)
    else:
        with tarfile.open(fileobj=file, mode="w:gz" if name == "tar.gz" else "w") as tar:
            info = tarfile.TarInfo("a.jsonl")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


@pytest.mark.parametrize("format_", ["json", "csv", "text"])
@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.gz", LINES * 100, "the file is not gzip, by its first bytes; it is text"),
        ("a.zst", LINES * 100, "the file is not zstd, by its first bytes; it is text"),
        ("a.bz2", LINES * 100, "the file is not bzip2, by its first bytes; it is text"),
        ("a.gz", zstd.compress(LINES), "it is zstd: rename it, or set compression: zstd"),
        ("a.log", gzip.compress(os.urandom(200_000)), "the file is gzip, by its first bytes"),
        ("a.log", zstd.compress(LINES), "set compression: zstd"),
        ("a.log", bz2.compress(LINES), "set compression: bzip2"),
        ("a.log", b"\xfd7zXZ\x00" + bytes(100), "the file is xz"),
        ("a.zip", packed("zip", LINES), "the file is a zip archive"),
        ("a.tar", packed("tar", LINES), "the file is a tar archive"),
        ("a.tar.gz", packed("tar.gz", LINES), "the gzip file contains a tar archive"),
        ("a.log", b"PAR1" + bytes(100), "set format: parquet"),
        ("a.log", b"Obj\x01" + bytes(100), "set format: avro"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_one_letter(tmp_path: Path, format_: str, name: str, data: bytes, says: str) -> None:
    put(tmp_path / "data" / name, data)
    schema = parse_schema("id STRING") if format_ != "json" else ID
    rows, dead = read(tmp_path, schema, format=format_, split=65536)
    assert rows == []
    assert len(dead) == 1
    assert dead[0].startswith("wrong-format: ")
    assert says in dead[0]


def test_bzip2_of_many_members_is_read(tmp_path: Path) -> None:
    many = b"".join(b'{"id":%d}\n' % n for n in range(50_000))
    put(tmp_path / "data/a.jsonl.bz2", bz2.compress(many[:100_000]) + bz2.compress(many[100_000:]))
    rows, dead = read(tmp_path)
    assert ([row["id"] for row in rows], dead) == (list(range(50_000)), [])


def test_bzip2_that_is_cut_off_or_broken_gives_what_could_be_read(tmp_path: Path) -> None:
    whole = bz2.compress(LINES) + bz2.compress(LINES)
    put(tmp_path / "data/a.jsonl.bz2", whole[:-30])
    put(tmp_path / "data/b.jsonl.bz2", bz2.compress(LINES) + b"BZh91AY&SY" + bytes(50))
    rows, dead = read(tmp_path)
    assert rows == [{"id": 1}, {"id": 2}] * 2
    assert [each.partition(":")[0] for each in dead] == ["truncated", "corrupt"]


def test_empty_files_of_any_name_are_empty(tmp_path: Path) -> None:
    for name in ("a.gz", "a.bz2", "a.zst", "a.json"):
        put(tmp_path / "data" / name, b"")
    put(tmp_path / "data/b.gz", gzip.compress(b""))
    put(tmp_path / "data/b.bz2", bz2.compress(b""))
    assert read(tmp_path) == ([], [])


# --- holes ---


@pytest.mark.parametrize("options", [{}, {"multiline": {"start": "^l"}}])
@pytest.mark.parametrize("length", [16, 100, 65536, 300_000])
def test_a_hole_of_nul_bytes_is_one_letter_and_no_part_of_a_line(tmp_path: Path, length: int, options: dict[str, Any]) -> None:
    put(tmp_path / "data/a.log", bytes(length) + b"line 1\nline 2 is cut" + bytes(length) + b"line 3\n" + bytes(length))
    source = source_of(tmp_path, None, format="text", split=65536, metadata={"offset": "offset"}, **options)
    decoder, rows, holes = source.decoder(), list[Any](), list[Any]()
    for stream in source.reader().split(BatchLimits(), final=True):
        for block in source.read(stream):
            found = decoder.rows(block)
            rows += [(row["value"], row["offset"]) for row in found.rows]
            holes += [(bad.reason, block.place(0).offset) for bad in found.bad]
    assert rows == [("line 1", length), ("line 2 is cut", length + 7), ("line 3", 2 * length + 20)]
    assert holes == [("hole", 0), ("hole", length + 20), ("hole", 2 * length + 27)]


@pytest.mark.parametrize("size", [1, 5, 16, 17, 1000])
def test_nul_bytes_are_told_however_they_come(size: int) -> None:
    data = b"a\0b" + bytes(15) + b"c" + bytes(16) + b"d" + bytes(40)
    found: list[Any] = []
    for part in marking_holes(data[at : at + size] for at in range(0, len(data), size)):
        found += [part.length] if isinstance(part, Hole) else [part]
    texts = [b"".join(group) if not isinstance(group[0], int) else group[0] for group in _runs(found)]
    assert texts == [b"a\0b" + bytes(15) + b"c", 16, b"d", 40]


def _runs(parts: list[Any]) -> list[list[Any]]:
    runs: list[list[Any]] = []
    for part in parts:
        if not isinstance(part, int) and runs and not isinstance(runs[-1][0], int):
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def test_holes_in_json_and_csv(tmp_path: Path) -> None:
    put(tmp_path / "data/a.jsonl", bytes(5000) + LINES)
    rows, dead = read(tmp_path)
    assert (rows, len(dead)) == ([{"id": 1}, {"id": 2}], 1)
    put(tmp_path / "data/a.jsonl", b"id\n1\n" + bytes(5000) + b"2\n")
    rows, dead = read(tmp_path, format="csv")
    assert (rows, len(dead)) == ([{"id": 1}, {"id": 2}], 1)


# --- multiline ---

LOG = (
    b"2026-03-02 10:00:00 INFO started\n"
    b"2026-03-02 10:00:01 ERROR failed\r\njava.lang.X: no\r\n\tat a\n\n\tat b\n"
    b"2026-03-02 10:00:02 INFO next\n"
)
EVENTS = [
    "2026-03-02 10:00:00 INFO started",
    "2026-03-02 10:00:01 ERROR failed\njava.lang.X: no\n\tat a\n\n\tat b",
    "2026-03-02 10:00:02 INFO next",
]
START = {"start": r"^\d{4}-"}


def test_several_lines_are_one_record(tmp_path: Path) -> None:
    put(tmp_path / "data/a.log", LOG)
    put(tmp_path / "data/b.log.gz", gzip.compress(b"\xef\xbb\xbf\tat before\n" + LOG.rstrip(b"\n")))
    rows, dead = read(tmp_path, None, format="text", multiline=START, split=65536)
    assert [row["value"] for row in rows] == [*EVENTS, "\tat before", *EVENTS]
    assert dead == []


@pytest.mark.parametrize("size", [1, 7, 30, 1000])
def test_events_have_their_places_however_the_bytes_come(size: int) -> None:
    found = []
    for block in MultilineCutter("f", START["start"], 1 << 20).cut((LOG[at : at + size] for at in range(0, len(LOG), size)), 0):
        for ordinal in range(len(block)):
            place = block.place(ordinal)
            assert place.offset is not None
            assert LOG[place.offset :].startswith(block.payload(ordinal))
            found.append(place.line)
    assert found == [1, 2, 7]


@pytest.mark.parametrize("size", [13, 1000, 1 << 20])
def test_an_event_that_is_too_long_costs_itself_alone(size: int) -> None:
    data = b"1 a\n" + b"2 b\n" + b"more\n" * 1000 + b"3 c\nx\n" + b"4 " + b"y" * 5000 + b"\n5 d\n"
    found: list[Any] = []
    for block in MultilineCutter("f", r"^\d", 2048).cut((data[at : at + size] for at in range(0, len(data), size)), 0):
        if isinstance(block, DamageBlock):
            found.append((block.reason, block.offset, block.head[:3]))
        else:
            found += block.lines()
    assert found == [b"1 a", ("too-long", 4, b"2 b"), b"3 c\nx", ("too-long", data.index(b"4 y"), b"4 y"), b"5 d"]


def test_the_last_event_of_a_growing_file_waits_for_the_next_or_for_the_file_to_settle(tmp_path: Path) -> None:
    put(tmp_path / "data/a.log", LOG[:90])
    source = source_of(tmp_path, None, format="text", multiline=START, growing=True, settle=3600.0)
    reader, decoder = source.reader(), source.decoder()

    def new(final: bool = False) -> list[str]:
        blocks = [block for stream in reader.split(BatchLimits(), final=final) for block in source.read(stream)]
        return [row["value"] for block in blocks for row in decoder.rows(block).rows]

    assert new() == EVENTS[:1]
    put_more(tmp_path / "data/a.log", LOG[90:])
    assert new() == EVENTS[1:2]
    assert new() == []
    assert new(final=True) == EVENTS[2:]
    assert new(final=True) == []


def put_more(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
