"""Made-up CSV files, most of them right and some wrong in the ways that CSV goes wrong; and both ways of the decoder over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.splitting import CsvCutter
from scribengin.core.types import Schema, parse_schema
from scribengin.formats.csv import CsvDecoder
from scribengin.formats.csv_records import CsvBlock, end_by_records
from scribengin.formats.dialect import AUTO, CR, CRLF, LF, Dialect

if TYPE_CHECKING:
    from random import Random

    from scribengin.formats.blocks import DamageBlock
    from scribengin.formats.contract import DecodedColumns, DecodedRows
    from scribengin.formats.csv import QuickCsv

RIGHT: dict[str, list[str]] = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["0", "127", "-128", "7"],
    "SMALLINT": ["0", "32767", "-32768", "42"],
    "INT": ["0", "2147483647", "-2147483648", "-1"],
    "BIGINT": ["0", "9223372036854775807", "-9223372036854775808", "1234567890123"],
    "FLOAT": ["0.5", "1e10", "-3.25", "16777217", "0.1", "3.4028235e38", "1e-45"],
    "DOUBLE": [
        "0.1",
        "1E5",
        "-2.5e-3",
        "7",
        "1.7976931348623157e308",
        "5e-324",
        "123456789.123456789",
        "0.30000000000000004",
        "9007199254740993",
    ],
    "STRING": ["a", "null", "é", " b ", "longer text", "0", "日本"],
    "BINARY": ["YQ==", "AAEC", "aGVsbG8="],
    "DATE": ["2026-01-31", "0001-01-01", "9999-12-31", "2024-02-29"],
    "TIMESTAMP": ["2026-01-31T10:20:30Z", "2026-01-31T10:20:30.123456Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"],
    "DECIMAL(5,2)": ["1.25", "-999.99", "0", "1.500", "7", "0.01"],
    "DECIMAL(38,10)": ["1.25", "1234567890123456789012345678.0123456789", "-0.5"],
    "ARRAY<INT>": ["[1]", "[]"],
    "STRUCT<a: INT>": ['{"a":1}', "{}"],
}
WRONG = [
    "", "0x10", "007", "nan", "NaN", "TRUE", "True", "inf", "-inf", "Infinity", "+1", "-0", "-0.0", "-0e5", "1.0", "1e2", "1e400", "-1e400",
    "1e-400", "1_000", ".5", "5.", "1.", "-", "128", "32768", "2147483648", "9223372036854775808", "3.4028236e38", "1e39", " 1", "1 ",
    "\t1", " true", "t", "1", "0", "yes", "2026-02-30", "0000-01-01", "2026-1-1", "2026-01-01 ", "20260101", "2026-01-01T00:00:00",
    "2026-01-01 00:00:00Z", "2026-01-01T00:00:00+02:00", "2026-01-01T24:00:00Z", "2026-01-01T23:59:60Z", "2026-01-01T00:00:00.1234567Z",
    "2026-01-01T00:00:00.Z", "2026-01-01T00:00Z", "0000-12-31T23:59:59Z", "2026-01-01T00:00:00z", "9999-12-31T23:59:59-01:00", "1.234",
    "1.230", "1000", "99999.5", "1e1", "0.00", "-0.00", "12345678901234567890123456789012345678901", "YQ",
    "a b", "NA", "\\N", "NULL", "null",
    " ", "  \t", "\ufeff", "\x00", "a\x00b", "\x0b", "\u2028", "\x85", "\u0661", "1\u00a0", "[1,", "{}", "'", "\\", "\x1a",
    "0" * 30, "1" * 30,
]  # fmt: skip
BROKEN = [
    '"',
    '""',
    '"""',
    'a"b',
    '"a"b',
    '"a',
    'a"',
    '"a" ',
    ' "a"',
    "\r",
    "a\rb",
    "\ra",
    "a\r",
    '"a"\r',
    "\udcff",
    "\udcc3(",
    "\udced\udca0\udc80",
]
ENDS = ["\n", "\r\n"]
OTHERS: dict[str, list[Any]] = {
    "quote": [None, "'"],
    "escape": ["\\", "^"],
    "nulls": [("NA", ""), ("\\N",), ("", "0", " ")],
    "quoted_null": ["typed", "always"],
    "trim": [True],
    "comment": ["#", "1"],
    "extra_cells": ["empty", "drop"],
    "line_end": [LF, CRLF, CR],
    "delimiter": ["||", "\u00a6", "a|a"],
}
"""field of a Dialect → values other than those of RFC 4180"""


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A file's content, how it is to be read, and in what pieces it comes."""

    schema: Schema
    header: tuple[str, ...] | None
    dialect: Dialect
    data: bytes
    pieces: tuple[bytes, ...]


def make_dialect(random: Random, *, others: bool) -> Dialect:
    """With `others` one that says something other than the delimiter and null."""
    delimiter = random.choice([",", ",", ",", ";", "\t", "|", " "])
    null = random.choice(["", "", "NA", "\\N", "0", " "])
    fields: dict[str, Any] = {"delimiter": delimiter, "nulls": (null,)}
    for name in random.sample(list(OTHERS), random.choice([1, 1, 2, 3])) if others else ():
        fields[name] = random.choice(OTHERS[name])
    return Dialect(**fields)


def make_file(random: Random, *, others: bool = False) -> MadeFile:
    """One of endlessly many; with `others` in any dialect."""
    types = [random.choice(list(RIGHT)) for _ in range(random.choice([1, 1, 2, 3, 4]))]
    schema = parse_schema(", ".join(f"c{n} {type_}{random.choice(['', '', ' NOT NULL'])}" for n, type_ in enumerate(types)))
    dialect = make_dialect(random, others=others)
    delimiter, null = dialect.delimiter, dialect.nulls[0]
    header, given = None, types
    if random.random() < 0.5:
        order = random.sample(range(len(types)), len(types))
        names, given = [f"c{n}" for n in order], [types[n] for n in order]
        if random.random() < 0.3:
            names, given = [*names, random.choice(["x", names[0]])], [*given, "STRING"]
        elif random.random() < 0.2:
            names, given = names[1:] or ["x"], given[1:] or ["STRING"]
        header = tuple(names)
    wrong, broken, quoted = (random.choice([0, 0, 0.03, 0.3]) for _ in range(3))
    end = random.choice(ENDS) if dialect.line_end == AUTO else dialect.line_end.mark.decode()
    lines = [
        _line(random, given, delimiter, null, wrong, broken, quoted) + _end(random, end, broken)
        for _ in range(random.choice([1, 3, 8, 20]))
    ]
    text = "".join(_as(random, line, dialect, broken) for line in lines) if others else "".join(lines)
    if random.random() < 0.3:
        text = text.removesuffix("\n")
    data = text.encode("utf-8", "surrogateescape")
    size = random.choice([5, 40, 10_000])
    return MadeFile(schema, header, dialect, data, tuple(data[at : at + size] for at in range(0, len(data), size)))


def _as(random: Random, line: str, dialect: Dialect, broken: float) -> str:
    """A line of RFC 4180 nearly as the dialect has it."""
    if dialect.quote == "'":
        line = line.replace('"', "'")
    if dialect.escape is not None and random.random() < 0.3:
        line = random.choice([line.replace('""', f'{dialect.escape}"'), line.replace("a", f"{dialect.escape}n"), line])
    if dialect.trim and random.random() < 0.5:
        line = f" {line}".replace(dialect.delimiter, f" {dialect.delimiter}\t")
    if dialect.comment is not None and random.random() < 0.1:
        line = f'{dialect.comment} it is "{dialect.delimiter}"so{dialect.line_end.mark.decode()}{line}'
    if dialect.extra_cells != "refuse" and random.random() < broken:
        line = random.choice([dialect.delimiter, f"{dialect.delimiter}x"]) + line
    return line


def _line(random: Random, types: list[str], delimiter: str, null: str, wrong: float, broken: float, quoted: float) -> str:
    if random.random() < broken:
        return random.choice(["", " ", "\t", delimiter, delimiter * 2, "x", '"', "\r"])
    cells = []
    for type_ in types:
        if random.random() < broken / 2:
            cells.append(random.choice(BROKEN))
            continue
        cell = random.choice(WRONG if random.random() < wrong else [*RIGHT[type_], null] if random.random() < 0.1 else RIGHT[type_])
        if random.random() < quoted and type_ == "STRING":
            cell += random.choice([delimiter, "\n", "\r\n", '"', "", '""', "\r", "\n\n"])
        if random.random() < quoted or any(each in cell for each in (delimiter, '"', "\n", "\r")):
            cell = '"' + cell.replace('"', '""') + '"'
        cells.append(cell)
    return delimiter.join(cells)


def _end(random: Random, end: str, broken: float) -> str:
    return random.choice(["\n", "\r\n", "\r", "\n\n", "\r\r\n", "\n\r"]) if random.random() < broken / 3 else end


class LongCutter(CsvCutter):
    """Looks at each record for the end of the last."""

    def _end(self, data: bytes) -> int:
        mark = self.dialect.line_end.mark
        return end_by_records(data, data.rfind(mark) + len(mark) if mark in data else 0, self.dialect)


def blocks_of(made: MadeFile, *, quick: bool) -> list[CsvBlock | DamageBlock]:
    """As a source cuts it."""
    cutter = (CsvCutter if quick else LongCutter)("f", 1000, dialect=made.dialect, header=made.header)
    return list(cutter.cut(iter(made.pieces), 0))  # type: ignore[arg-type]


class CountedQuick:
    """A quick way that counts the blocks which it has taken."""

    def __init__(self, quick: QuickCsv | None) -> None:
        assert quick is not None
        self._quick = quick
        self.taken = 0

    def decode(self, block: CsvBlock) -> DecodedColumns | None:
        found = self._quick.decode(block)
        self.taken += found is not None
        return found


def decoded(made: MadeFile, *, quick: bool) -> tuple[list[Any], int]:
    """What both forms of the decoder say of the file's blocks; and how many of them went the quick way."""
    decoder = CsvDecoder(made.schema, made.dialect)
    counted = CountedQuick(decoder.quick)
    decoder.quick = counted if quick else None  # type: ignore[assignment]
    found: list[Any] = []
    for block in blocks_of(made, quick=quick):
        for decode in (decoder.rows, decoder.columns):
            answer = decode(block)
            length = len(block)
            found.append([length, _of(answer), [(bad, block.place(bad.ordinal), block.payload(bad.ordinal)) for bad in answer.bad]])
        found.append([(block.place(ordinal), block.payload(ordinal)) for ordinal in range(len(block))])
    return found, counted.taken // 2


def _of(answer: DecodedRows | DecodedColumns) -> Any:
    # repr tells -0.0 and 1 from 0.0 and True
    rows = answer.rows if hasattr(answer, "rows") else (answer.batch.schema, answer.batch.to_pylist())
    if not hasattr(answer, "rows"):
        answer.batch.validate(full=True)
    return list(answer.ordinals), answer.skipped, repr(rows)
