"""CSV and text as other programs write them: each kind of file with the options that read it, and what it is told without them."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scribengin.connectors import catalog
from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.connectors.files.infer import infer
from scribengin.core.errors import SourceError
from scribengin.core.types import parse_schema
from scribengin.formats.column_notices import Noticer
from scribengin.formats.notice import FormatNotice
from scribengin.local.schema_drift import sentence

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.formats.contract import Bad, RecordPlace

Read = tuple[list[dict[str, Any]], list[tuple["Bad", "RecordPlace", bytes]]]


def source_of(path: Path, schema: str, **options: Any) -> Any:
    return open_source("files", ConnectorContext("in", path.parent, {"path": path.name, "format": "csv", **options}, parse_schema(schema)))


def everything(source: Any) -> Read:
    """All rows, the same as rows and as columns."""
    decoder = source.decoder()
    rows: list[dict[str, Any]] = []
    bad: list[tuple[Bad, RecordPlace, bytes]] = []
    for stream in source.reader().split(BatchLimits(), final=True):
        for block in source.read(stream):
            found = decoder.rows(block)
            assert decoder.columns(block).batch.to_pylist() == found.rows
            assert len(block) == len(found.rows) + len(found.bad) + found.skipped
            rows += found.rows
            bad += [(each, block.place(each.ordinal), block.payload(each.ordinal)) for each in found.bad]
    return rows, bad


def read(folder: Path, data: bytes, schema: str, name: str = "a.csv", **options: Any) -> Read:
    (folder / name).write_bytes(data)
    return everything(source_of(folder / name, schema, **options))


def values(found: Read) -> list[tuple[Any, ...]]:
    assert not found[1]
    return [tuple(row.values()) for row in found[0]]


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(f"{text}+00:00")


PLACES = '101\t"Zum Anker" Gasthof\t812\n103\t"Rock Point\t15\n105\tHill 60"\t0\n107\t"North\t5\n108\tSouth"\t6\n109\t5"\t7\n'
CASES: dict[str, tuple[bytes, str, dict[str, Any], list[tuple[Any, ...]]]] = {
    "blanks in the header": (b"id, name, amount\n1, Ada, 5\n2, Bob, 6\n", "id INT, name STRING, amount INT", {"trim": True},
        [(1, "Ada", 5), (2, "Bob", 6)]),
    "blanks in the header, which cells keep": (b"id, name\n1, Ada\n", "id INT, name STRING", {"header_names": "trim"}, [(1, " Ada")]),
    "blanks around quotes": (b'"id", "name"\n1, "Ada, L" \n2,Bob\n', "id INT, name STRING", {"trim": True}, [(1, "Ada, L"), (2, "Bob")]),
    "a header in capitals, with marks": (b"ID,Trip Distance\n1,2.5\n", "id INT, trip_distance DOUBLE", {"header_names": "loose"},
        [(1, 2.5)]),
    "other names": (b"id,Betrag (EUR)\n1,5\n", "id INT, amount INT", {"columns": {"amount": "Betrag (EUR)"}}, [(1, 5)]),
    "more cells than names": (b"vendor, at\r\n\r\nCMT,2014-01-09 20:45:25,,\r\nVTS,2014-01-09 20:44:47\r\n", "vendor STRING, at TIMESTAMP",
        {"trim": True, "extra_cells": "empty"}, [("CMT", at("2014-01-09T20:45:25")), ("VTS", at("2014-01-09T20:44:47"))]),
    "more cells than names, with something in them": (b"a,b\n1,2,3\n", "a INT, b INT", {"extra_cells": "drop"}, [(1, 2)]),
    "lines that end in CR": (b"id,name\r1,Ada\r2,Bob\r", "id INT, name STRING", {}, [(1, "Ada"), (2, "Bob")]),
    "lines that end in CR, with line feeds in cells": (b'id,name\r1,"Ada\nL"\r', "id INT, name STRING", {"line_end": "cr"},
        [(1, "Ada\nL")]),
    "lines that end in CR CR LF": (b"id,name\r\r\n1,Ada\r\r\n", "id INT, name STRING", {}, [(1, "Ada")]),
    "lines that end in CR LF, with line feeds in cells": (b"id,name\r\n1,A\nda\r\n", "id INT, name STRING", {"line_end": "crlf"},
        [(1, "A\nda")]),
    "lines that end in LF, with CR before it": (b"id,name\n1,Ada\r\n", "id INT, name STRING", {"line_end": "lf"}, [(1, "Ada\r")]),
    "comments": (b'# a "station, it is\nyear,mean\n1959,315.98\n#x\n1960,316.91\n', "year INT, mean DOUBLE", {"comment": "#"},
        [(1959, 315.98), (1960, 316.91)]),
    "lines before the header": (b"Station\n\nyear,mean\n1959,1.5\n", "year INT, mean DOUBLE", {"skip_lines": 2}, [(1959, 1.5)]),
    "blank lines before the header": (b"\n \nyear,mean\n1959,1.5\n", "year INT, mean DOUBLE", {}, [(1959, 1.5)]),
    "UTF-16 with a mark": ("nr\tname\r\n1\tÄnne\r\n2\t\N{GRINNING FACE}\r\n".encode("utf-16"), "nr INT, name STRING",
        {"delimiter": "\t", "encoding": "utf-16"}, [(1, "Änne"), (2, "\N{GRINNING FACE}")]),
    "UTF-16, big endian": ("nr\n1\n".encode("utf-16-be"), "nr INT", {"encoding": "utf-16-be"}, [(1,)]),
    "UTF-32, lines that end in CR": ("nr,ü\r1,ö\r".encode("utf-32"), "nr INT, ü STRING", {"encoding": "utf-32"}, [(1, "ö")]),
    "Windows-1252": ("nr;ort\n1;Köln €\n".encode("cp1252"), "nr INT, ort STRING", {"delimiter": ";", "encoding": "windows-1252"},
        [(1, "Köln €")]),
    "Shift JIS": ("nr,名\n1,表\n".encode("shift_jis"), "nr INT, 名 STRING", {"encoding": "shift_jis"}, [(1, "表")]),
    "no quotes, and a header of places": (PLACES.encode(), "id INT, name STRING, n INT",
        {"delimiter": "\t", "header": False, "quote": "none"},
        [(101, '"Zum Anker" Gasthof', 812), (103, '"Rock Point', 15), (105, 'Hill 60"', 0), (107, '"North', 5), (108, 'South"', 6),
         (109, '5"', 7)]),
    "another quote": (b"a,b\n1,'x,''y'''\n", "a INT, b STRING", {"quote": "'"}, [(1, "x,'y'")]),
    "MySQL's INTO OUTFILE": (b'1,"She said \\"no\\", twice",\\N\n2,"back\\\\slash",7\n3,"a\\\nb",8\n', "id INT, body STRING, n INT",
        {"header": False, "escape": "\\"}, [(1, 'She said "no", twice', None), (2, "back\\slash", 7), (3, "a\nb", 8)]),
    "PostgreSQL's COPY text": (b'1\ta\\tb\\nc\\\\N\t\\N\n2\t"\t5\n\\.\n', "id INT, body STRING, n INT",
        {"header": False, "delimiter": "\t", "quote": "none", "escape": "\\", "comment": "\\."}, [(1, "a\tb\nc\\N", None), (2, '"', 5)]),
    "IMDb's TSV": (b'tconst\ttitle\tyear\ntt1\t"Carmen"\t\\N\ntt2\t"The\t1894\n', "tconst STRING, title STRING, year INT",
        {"delimiter": "\t", "quote": "none", "null": "\\N"}, [("tt1", '"Carmen"', None), ("tt2", '"The', 1894)]),
    "several words for null": (b"a,b,c\nNA,,x\n1,2,NA\n", "a INT, b INT, c STRING", {"null": ["NA", ""]},
        [(None, None, "x"), (1, 2, None)]),
    "null in quotes": (b'"id","n","day","name"\n"1","5","2026-01-01","Ada"\n"2","","",""\n', "id INT, n INT, day DATE, name STRING",
        {"quoted_null": "typed"}, [(1, 5, dt.date(2026, 1, 1), "Ada"), (2, None, None, "")]),
    "null in quotes, texts too": (b'"id","name"\n"1","NULL"\n', "id INT, name STRING", {"quoted_null": "always", "null": "NULL"},
        [(1, None)]),
    "delimiters of two characters": (b'a||b||c\n1||x|y||"p||q"\n', "a INT, b STRING, c STRING", {"delimiter": "||"},
        [(1, "x|y", "p||q")]),
    "delimiters beyond ASCII": ("a¦b\n1¦x\n".encode(), "a INT, b STRING", {"delimiter": "¦"}, [(1, "x")]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_file_is_read_by_its_options(case: str, tmp_path: Path) -> None:
    data, schema, options, rows = CASES[case]
    assert values(read(tmp_path, data, schema, **options)) == rows


@pytest.mark.parametrize("case", CASES)
def test_the_first_look_lets_pass_what_the_options_read(case: str, tmp_path: Path) -> None:
    data, schema, options, _ = CASES[case]
    (tmp_path / "a.csv").write_bytes(data)
    source_of(tmp_path / "a.csv", schema, **options).check_first()


@pytest.mark.parametrize("case", CASES)
def test_places_of_dead_letters_count_lines_of_the_file(case: str, tmp_path: Path) -> None:
    data, schema, options, rows = CASES[case]
    encoding, mark = options.get("encoding", "utf-8"), {"cr": "\r", "crlf": "\r\n"}.get(options.get("line_end", ""), "\n")
    if b"\r" in data and mark == "\n" and "\n" not in data.decode(encoding):
        mark = "\r"
    text = data.decode(encoding)
    line = text.count(mark) + 1
    found, bad = read(tmp_path, f"{text}☹{mark}".encode(encoding, "replace"), schema, **options)
    assert len(found) + len(bad) == len(rows) + 1
    assert [place.line for _, place, _ in bad] in ([], [line])


@pytest.mark.parametrize(
    ("data", "schema", "options", "told"),
    [
        ("1;Köln\n2;Ulm\n".encode("cp1252"), "n INT, o STRING", {"delimiter": ";"}, "not UTF-8.*encoding: windows-1252"),
        (b'1,"no \\"x\\" in it"\n2,y\n', "n INT, o STRING", {}, r'escape: "\\\\"'),
        (b'1,"ab"c\n2,y\n', "n INT, o STRING", {}, "quote: none"),
        (b'1, "ab"\n2,y\n', "n INT, o STRING", {}, "trim: true"),
        (b'"1",""\n2,5\n', "n INT, o INT", {}, "quoted_null: typed"),
        (b"1,\n2,5\n", "n INT, o INT", {"null": "NA"}, 'to read an empty cell as null, add "" to'),
        (b"1,2,,\n2,5\n", "n INT, o INT", {}, "extra_cells: empty"),
        (b'1\t"N\n2\tS"\t4\n2\t5\n', "n INT, o STRING", {"delimiter": "\t", "quote": '"'}, "several lines.*quote: none"),
    ],
)
def test_a_dead_letter_names_the_option_that_reads_it(data: bytes, schema: str, options: Any, told: str, tmp_path: Path) -> None:
    rows, bad = read(tmp_path, data, schema, header=False, **options)
    assert len(rows) == 1
    assert len(bad) == 1
    assert re.search(told, bad[0][0].message)


def test_bytes_that_the_encoding_has_not_cost_their_record_alone(tmp_path: Path) -> None:
    rows, bad = read(tmp_path, b"1,a\x81\n2,\xe4\n", "n INT, o STRING", header=False, encoding="windows-1252")
    assert rows == [{"n": 2, "o": "ä"}]
    assert "is not windows-1252" in bad[0][0].message
    lone = "1,a\n".encode("utf-16-le") + b"\x00\xd8,\x00x\x00\n\x00" + "2,b\n".encode("utf-16-le")
    rows, bad = read(tmp_path, lone, "n INT, o STRING", header=False, encoding="utf-16-le")
    assert rows == [{"n": 1, "o": "a"}, {"n": 2, "o": "b"}]
    assert [(each.reason, place.line) for each, place, _ in bad] == [("invalid-utf8", 2)]


TEXTS = {
    "CR": (b"one\rtwo\rthree\r", {}, ["one", "two", "three"]),
    "CR CR LF": (b"one\r\r\ntwo\r\r\n", {}, ["one", "two"]),
    "CR inside of lines": (b"10%\r20%\ntwo\n", {}, ["10%\r20%", "two"]),
    "LF alone": (b"a\r\nb\n", {"line_end": "lf"}, ["a\r", "b"]),
    "CR LF alone": (b"a\nb\r\nc\r\n", {"line_end": "crlf"}, ["a\nb", "c"]),
    "UTF-16": ("ä\nb\n".encode("utf-16"), {"encoding": "utf-16"}, ["ä", "b"]),
    "Windows-1252": ("ä€\nb".encode("cp1252"), {"encoding": "windows-1252"}, ["ä€", "b"]),
    "comments": (b"#x\na\n# y\nb\n", {"comment": "#"}, ["a", "b"]),
    "lines to skip": (b"x\ny\na\n", {"skip_lines": 2}, ["a"]),
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("packed", [False, True])
def test_lines_of_text_are_read_by_its_options(kind: str, packed: bool, tmp_path: Path) -> None:
    data, options, lines = TEXTS[kind]
    name = "a.log.gz" if packed else "a.log"
    found = read(tmp_path, gzip.compress(data) if packed else data, "value STRING", name, format="text", **options)
    assert values(found) == [(line,) for line in lines]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "windows-1252"])
def test_a_large_file_is_whole_however_it_is_cut(end: str, encoding: str, tmp_path: Path) -> None:
    lines = [f"{n} ä {'x' * (n % 97)}" for n in range(20_000)]
    found = read(
        tmp_path, "".join(f"{line}{end}" for line in lines).encode(encoding), "value STRING", format="text", split=65536, encoding=encoding
    )
    assert values(found) == [(line,) for line in lines]


def test_crlf_is_found_where_parts_of_a_file_meet(tmp_path: Path) -> None:
    lines = [f"{n},{'y' * (n % 61)}" for n in range(60_000)]
    data = "".join(f"{line}\r\n" for line in lines).encode()
    assert len(data) > 2**20
    found = read(tmp_path, data, "n INT, t STRING", header=False, line_end="crlf", null="-")
    assert [f"{n},{t}" for n, t in values(found)] == lines


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "windows-1252"])
def test_a_growing_file_is_read_on_in_its_encoding(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    whole = "n,t\r\n1,ä\r\n2,Ċ\r\n3,x\r\n".replace("Ċ", "Ċ" if encoding.startswith("utf") else "ü").encode(encoding)
    path.write_bytes(whole[: len(whole) * 2 // 3])
    source = source_of(path, "n INT, t STRING", growing=True, encoding=encoding)
    reader, decoder = source.reader(), source.decoder()

    def more() -> list[int]:
        streams = reader.split(BatchLimits(), final=True)
        return [row["n"] for stream in streams for block in source.read(stream) for row in decoder.rows(block).rows]

    first = more()
    path.write_bytes(whole)
    assert 0 < len(first) < 3
    assert first + more() == [1, 2, 3]


def test_a_file_without_a_record_is_told_to_who_looks_at_blocks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,name 1,Ada 2,Bob")
    source = source_of(tmp_path / "a.csv", "id INT, x INT")
    noticer = Noticer("in", source.schema, "csv")
    for stream in source.reader().split(BatchLimits(), final=True):
        for block in source.read(stream):
            assert source.decoder().columns(block).batch.num_rows == 0
            noticer.inspect(block)
    assert ("", "empty") in noticer.found


def test_a_cell_over_lines_in_a_file_with_tabs_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b'id\tname\n1\t"North\n2\tSouth"\n3\tEast\n')
    for quote in ('"', "none"):
        source = source_of(tmp_path / "a.tsv", "id INT, name STRING", delimiter="\t", quote=quote)
        noticer = Noticer("in", source.schema, "csv")
        for stream in source.reader().split(BatchLimits(), final=True):  # who says `quote` is not stopped
            for block in source.read(stream):
                noticer.inspect(block)
        assert (("", "lines") in noticer.found) is (quote == '"')
        if noticer.found:
            assert noticer.found["", "lines"].line == 2
            assert "quote: none" in sentence(noticer.found["", "lines"], "strict")


INFERRED = {
    name: case
    for name, case in CASES.items()
    if name
    not in (
        # what no look at the bytes can know
        *("a header in capitals, with marks", "other names", "more cells than names, with something in them"),
        *("lines that end in CR, with line feeds in cells", "lines that end in CR LF, with line feeds in cells", "another quote"),
        *("lines that end in LF, with CR before it", "blanks in the header, which cells keep", "null in quotes, texts too", "Shift JIS"),
        *(
            "PostgreSQL's COPY text",
            "delimiters beyond ASCII",
            "UTF-16, big endian",
            "lines before the header",
            "UTF-32, lines that end in CR",
        ),
    )
}


@pytest.mark.parametrize("case", INFERRED)
def test_infer_proposes_what_reads_the_file(case: str, tmp_path: Path) -> None:
    data, schema, _, rows = CASES[case]
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    proposal = infer([path], records=100)
    assert proposal.dead == 0
    names = proposal.schema.names
    found, bad = everything(source_of(path, str(proposal.schema), **proposal.options))
    assert not bad
    assert [tuple(map(str, row.values())) for row in found] == [tuple(map(str, row)) for row in rows], proposal.options
    assert names == parse_schema(schema).names or not proposal.options.get("header", True)


def test_infer_finds_lines_before_the_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Station report\n\nyear;mean;unc\n1959;1.5;2\n1960;1.5;2\n1961;1.5;2\n")
    proposal = infer([tmp_path / "a.csv"], records=100)
    assert proposal.options == {"delimiter": ";", "skip_lines": 2}
    (tmp_path / "a.csv").write_text("a,b,c\n1,2,NA\n3,4,\n5,6,7\n")
    assert infer([tmp_path / "a.csv"], records=100).options == {"null": ("", "NA")}


@pytest.mark.parametrize("name", ["a.dat", "a"])
def test_infer_reads_text_in_other_encodings(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes("Grüße\nzwei\n".encode("cp1252"))
    assert infer([tmp_path / name], records=10).options == {"encoding": "windows-1252"}


STOPS: dict[str, tuple[bytes, str, dict[str, Any], str]] = {
    "blanks": (b"id, name, amount\n1,a,2\n", "id INT, name STRING, amount INT", {}, "write trim: true"),
    "capitals": (b"ID,NAME\n1,a\n", "id INT, name STRING", {}, "write header_names: loose"),
    "one name in capitals": (b"id,b,c,NAME\n1,a\n", "id INT, b INT, c INT, name STRING", {}, "write header_names: loose"),
    "another delimiter": (b"id;name\n1;a\n", "id INT, name STRING", {}, 'write delimiter: ";"'),
    "no header": (b"1,Ada\n2,Bob\n", "id INT, name STRING", {}, "write header: false"),
    "comments": (b"# x\n# y\nid,name\n1,a\n", "id INT, name STRING", {}, 'write comment: "#"'),
    "lines before the header": (b"x\ny\n\nid,name\n1,a\n", "id INT, name STRING", {}, "write skip_lines: 3"),
    "lines before, and another delimiter": (b"sep=;\nid;name\n1;a\n", "id INT, name STRING", {}, 'write delimiter: ";" and skip_lines: 1'),
    "other names": (b"id,amnt,nam\n1,2,x\n", "id INT, amount INT, name STRING", {}, 'columns: {amount: "amnt", name: "nam"}'),
    "no NOT NULL one": (b"a,b,c\n1,2,3\n", "a INT, b INT, key INT NOT NULL", {}, ""),
    "less than half": (b"a,q\n1,2\n", "a INT, b INT, c INT", {}, ""),
    "UTF-16": ("id,name\n".encode("utf-16"), "id INT, name STRING", {}, "write encoding: utf-16"),
    "UTF-16 without a mark": ("id,name\n1,2\n".encode("utf-16-be"), "id INT, name STRING", {}, "write encoding: utf-16-be"),
    "UTF-32": ("id,name\n".encode("utf-32"), "id INT, name STRING", {}, "write encoding: utf-32"),
    "UTF-16 text": ("a\nb\n".encode("utf-16"), "value STRING", {"format": "text"}, "write encoding: utf-16"),
    "JSON without any": (b'{"a":1}\n{"b":1}\n', "id INT, name STRING", {"format": "json"}, ""),
    "JSON in capitals": (b'{"ID":1,"name":"x"}\n', "id INT, name STRING", {"format": "json"}, 'write "ID" and not "id"'),
    "cells over lines in a file with tabs": (
        b'id\tname\n1\t"North\n2\tSouth"\n',
        "id INT, name STRING",
        {"delimiter": "\t"},
        "quote: none",
    ),
    "the same without a header": (b'1\t"North\n2\tSouth"\n', "id INT, name STRING", {"delimiter": "\t", "header": False}, "quote: none"),
    "quotes that stand wrong": (b'"id", "name"\n1,Ada\n', "id INT, name STRING", {}, "trim: true"),
}


@pytest.mark.parametrize("case", STOPS)
def test_a_first_file_of_other_columns_stops_the_source(case: str, tmp_path: Path) -> None:
    data, schema, options, remedy = STOPS[case]
    (tmp_path / "a.csv").write_bytes(data)
    source = source_of(tmp_path / "a.csv", schema, **options)
    with pytest.raises(SourceError) as found:
        source.check_first()
    assert "a.csv" in found.value.message
    assert remedy in found.value.remedy
    reader = source.reader()
    reader.checks_first = True
    with pytest.raises(SourceError):  # the file may have come later
        reader.split(BatchLimits(), final=True)
    source.reader().split(BatchLimits(), final=True)  # who only looks is not stopped


def test_a_first_file_with_half_of_the_columns_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, b"id,new\n1,2\n", "id INT NOT NULL, x INT")[0] == [{"id": 1, "x": None}]
    rows, _ = read(tmp_path, json.dumps({"id": 1}).encode(), "id INT, x INT, y INT", "a.json", format="json")
    assert rows == [{"id": 1, "x": None, "y": None}]


USE = 'the join key of step "placed"'
KEYED = {
    "csv": (b"code,name,region\nde,a,b\n", {}, "columns: {country: NAME}"),
    "json": (b'{"code":"de","region":"b","name":"x"}\n' * 10, {"format": "json"}, "in `schema:`"),
    "csv.gz": (gzip.compress(b"code,name,region\nde,a,b\n"), {}, "columns: {country: NAME}"),
}


def keyed(path: Path, *, schema: str = "country STRING, name STRING, region STRING", **more: Any) -> Any:
    options = {"path": path.name, "format": "csv", **more.pop("options", {})}
    return open_source("files", ConnectorContext("in", path.parent, options, parse_schema(schema), keys={"country": USE}, **more))


@pytest.mark.parametrize("form", KEYED)
@pytest.mark.parametrize("static", [False, True])
def test_a_file_that_lacks_a_column_which_is_a_key_stops_the_source(form: str, static: bool, tmp_path: Path) -> None:
    data, options, way = KEYED[form]
    path = tmp_path / f"a.{form}"
    path.write_bytes(data)
    source = keyed(path, options=options, static=static)
    for look in (source.check_first, source.check_keys):
        with pytest.raises(SourceError) as found:
            look()
        assert found.value.code == "source-columns"
        assert f'{path} has no column "country", which is {USE}: it has "code"' in found.value.message
        assert way in found.value.remedy
        assert ("country STRING NOT NULL" in found.value.remedy) is not static
    keyed(path, options=options, any_columns=True).check_first()


@pytest.mark.parametrize(
    ("given", "way"), [({"country": "cod"}, "write columns: {country: code}"), ({"country": "land"}, "name a column that it has")]
)
def test_a_name_in_columns_that_the_header_has_not_is_told_at_that_option(given: dict[str, str], way: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"code,name,region\nde,a,b\n")
    for look in (
        keyed(path, options={"columns": given}).check_first,
        keyed(path, options={"columns": given}, static=True).check_keys,
    ):
        with pytest.raises(SourceError) as found:
            look()
        (name,) = given.values()
        assert found.value.message == f'{path} has no column "{name}", which `columns` names for "country": it has "code", "name", "region"'
        assert found.value.remedy.startswith(way)
        assert found.value.option == "columns"


def test_a_header_that_is_cut_at_another_delimiter_is_told_also_where_columns_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"code;name;region\nde;a;b\n")
    with pytest.raises(SourceError) as found:
        keyed(path, options={"columns": {"country": "code"}}).check_first()
    assert found.value.remedy.startswith('write delimiter: ";"')


def test_a_header_that_is_cut_at_another_delimiter_is_told_also_where_its_names_are_others(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"shop;land;town\n1;de;Ulm\n")
    with pytest.raises(SourceError) as found:
        source_of(path, "id INT, country STRING, city STRING").check_first()
    assert found.value.remedy.startswith('write delimiter: ";"')


def test_a_name_that_no_record_has_and_nearly_all_records_spell_otherwise_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"country":"de","amount":1}\n' * 10)
    with pytest.raises(SourceError, match='no column "amont", but one with a similar name') as found:
        keyed(path, schema="country STRING, amont INT", options={"format": "json"}).check_first()
    assert '"amount" and not "amont"' in found.value.remedy
    keyed(path, schema="country STRING, amount_eur INT", options={"format": "json"}).check_first()
    path.write_bytes(b'{"country":"de","amount":1}\n' * 9)  # records may leave out what they like
    keyed(path, schema="country STRING, amont INT", options={"format": "json"}).check_first()


def test_columns_may_name_what_only_some_files_have(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"country,name\nde,a\n")
    keyed(path, options={"columns": {"region": "Gebiet"}}).check_first()


def test_a_parquet_file_that_lacks_a_key_stops_the_source(tmp_path: Path) -> None:
    pq.write_table(pa.table({"code": ["de"], "name": ["x"], "region": ["y"]}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match='no column "country", which is the join key'):
        keyed(tmp_path / "a.parquet", options={"format": "parquet"}).check_first()


def test_few_objects_of_json_may_leave_out_a_key_but_not_those_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"name":"de","region":"b"}\n' * 9)
    keyed(path, options={"format": "json"}).check_first()
    with pytest.raises(SourceError, match='no column "country"'):
        keyed(path, options={"format": "json"}, static=True).check_keys()


def test_the_notice_of_a_later_file_without_a_key_says_what_reads_it() -> None:
    said = sentence(FormatNotice("in", "country", "missing", "STRING", "b.csv"), "strict", key_use=USE)
    assert (
        said
        == f'source in: b.csv has no column "country", which is {USE}; its value is null, or the rows become dead letters if it is NOT NULL'
    )


def test_each_file_of_a_lookup_table_has_the_key(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t/a.csv").write_bytes(b"country,name,region\nde,a,b\n")
    (tmp_path / "t/b.csv").write_bytes(b"name,region\na,b\n")
    source = keyed(tmp_path / "t", static=True)
    source.check_first()
    with pytest.raises(SourceError, match=r"b\.csv has no column"):
        source.check_keys()
    (tmp_path / "t/b.csv").write_bytes(b"region,country\na,b\n")
    source.check_keys()


def test_who_agrees_reads_a_first_file_of_other_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,2\n")
    place = ConnectorContext("in", tmp_path, {"path": "a.csv", "format": "csv"}, parse_schema("x INT"), any_columns=True)
    source = open_source("files", place)
    source.check_first()  # type: ignore[attr-defined]
    assert everything(source)[0] == [{"x": None}]


def test_later_files_may_lack_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,x,y\n1,2,3\n")
    source = source_of(tmp_path / "*.csv", "id INT, x INT, y INT")
    reader = source.reader()
    reader.checks_first = True
    assert len(reader.split(BatchLimits(), final=True)) == 1
    (tmp_path / "b.csv").write_bytes(b"id\n1\n")
    assert len(reader.split(BatchLimits(), final=True)) == 1


def test_objects_are_read_and_looked_at_as_files_are(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").write_bytes("id;n\r1;ä\r".encode("utf-16"))
    declared = catalog.source_types()["objects"]

    def source(**options: Any) -> Any:
        filled = declared.filled({"url": f"file://{tmp_path}/data", "format": "csv", "delimiter": ";", **options})
        return open_source("objects", ConnectorContext("in", tmp_path, filled, parse_schema("id INT, n STRING")))

    with pytest.raises(SourceError, match="UTF-16"):
        source().check_first()
    source(encoding="utf-16").check_first()
    assert values(everything(source(encoding="utf-16"))) == [(1, "ä")]
    reader = source().reader()
    reader.checks_first = True
    with pytest.raises(SourceError, match="UTF-16"):
        reader.split(BatchLimits(), final=True)
