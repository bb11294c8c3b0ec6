"""Checks the first file that a source is going to read, before anything is read: it must have the columns that the flow names.

A column that is missing in a file is read as null, which is right for data whose columns change. A file that has none of the columns, or
very few, or one under a name that differs only by blanks or case, is a mistake: all of it would be null in every row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core.problems import nearest
from scribengin.core.types import Field
from scribengin.formats.dialect import Dialect, in_utf_8, line_end_of, marked_encoding

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from scribengin.core.types import Schema
    from scribengin.formats.csv_records import CsvBlock


# The kind of a file by its first bytes, if it differs from what its name and its options indicate.


_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"PAR1", "Parquet"),
    (b"Obj\x01", "Avro"),
    (b"ORC", "ORC"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"%PDF-", "PDF"),
)
_TAR_AT = 257
MAGIC_BYTES = 512
"""number of first bytes that `kind_of` needs"""
_READ = ("gzip", "zstd", "bzip2")


def kind_of(head: bytes) -> str:
    """The kind of a file with these first bytes; empty for text, and for unknown kinds.

    >>> kind_of(b"PAR1..."), kind_of(b"id,name")
    ('Parquet', '')
    """
    if head[_TAR_AT : _TAR_AT + 5] == b"ustar":
        return "a tar archive"
    kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
    if kind == "bzip2" and head[4:10] not in (b"1AY&SY", b"\x17rE8P\x90"):
        return ""
    return "" if kind == "ORC" and head[3:4] not in (b"\x08", b"\x0a", b"\x12") else kind


def why_unlike(head: bytes, compression: str) -> str:
    """Why a file cannot be read as text with a compression (`none`, `gzip`, …), by its first bytes, and what to do; empty if it can."""
    kind = kind_of(head)
    if not head or kind == (compression if compression != "none" else ""):
        return ""
    if compression == "none":
        if kind in _READ:
            return f"the file is {kind}, by its first bytes, and its name does not say so: rename it, or set compression: {kind}"
        known = kind in ("Parquet", "Avro")
        return f"the file is {kind}, by its first bytes: {f'set format: {kind.lower()}' if known else 'unpack or convert it first'}"
    found = f"it is {kind}" if kind else "it is text" if _is_text(head) else f"it begins with {head[:4].hex(' ')}"
    remedy = f"set compression: {kind if kind in _READ else 'none'}" if kind in _READ or not kind else "unpack it first"
    return f"the file is not {compression}, by its first bytes; {found}: rename it, or {remedy}"


def why_unlike_inside(head: bytes, compression: str) -> str:
    """Like `why_unlike`, for the contents of a compressed file."""
    kind = kind_of(head)
    return f"the {compression} file contains {kind}, not text: unpack it first" if kind else ""


def _is_text(head: bytes) -> bool:
    try:
        head[:-4].decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


HEAD_BYTES = 2**16
"""number of bytes of a text file that are checked"""
_LOOKED_AT = 20
_RECORDS = 100
_BOM = b"\xef\xbb\xbf"


_RULES = {"trim": str.strip, "loose": lambda name: re.sub(r"[\W_]+", "", name.casefold())}


def folded(name: str, rule: str) -> str:
    """The name in a form for comparison: two names with the same form are equal by that rule (without the blanks around them; without case,
    blanks and punctuation)."""
    return _RULES[rule](name) if rule in _RULES else name


@dataclass(frozen=True, slots=True)
class Unlike:
    """How a first file differs from the flow, and which option would read it."""

    message: str
    remedy: str
    option: str = ""
    """the option of the source that is wrong, if there is one"""


_MISSPELT = 0.7
"""minimum similarity, 0 to 1, of a header name to a missing column, to count as a misspelling: `regoin`, `cdoe`"""
_SURELY = 0.9
"""the same for a name that many records have, if they may omit any column: `amont` for `amount`, but not `amount_eur`"""


def unlike_encoding(file: str, head: bytes, format: str, encoding: str) -> Unlike | None:
    """The error for a text file that is not UTF-8, the default encoding of a source.

    Args:
        file: The file, for the message.
        head: Its first bytes.
        format: The source's format.
        encoding: The source's encoding.

    Returns:
        None if the source sets another encoding, or the file begins with no mark of another encoding.
    """
    marked = marked_encoding(head)
    if encoding.lower() not in ("utf-8", "utf8") or marked is None:
        return None
    name = marked.upper().removesuffix("-LE").removesuffix("-BE")
    remedy = f"write encoding: {marked}" if format != "json" else f"convert it: iconv -f {name} -t UTF-8 FILE > FILE.jsonl"
    return Unlike(f"{file} is {name}; expected UTF-8", remedy)


def unlike_names(
    file: str, names: Sequence[str], asked: Schema, beside: Iterable[str] = (), *, header: bool = False, sure: bool = False
) -> Unlike | None:
    """The error for a file whose columns are not the expected ones.

    Args:
        file: The file, for the message.
        names: The names in the file.
        asked: The columns of the flow.
        beside: Columns that do not come from the file.
        header: The names are those of a header, which has all columns; records of other formats may omit any.
        sure: The names are those of many records, none of which has another name.

    Returns:
        None if enough columns are the expected ones.
    """
    fields = [field for field in asked.fields if field.name not in set(beside)]
    there = [field.name for field in fields if field.name in names]
    absent = [field.name for field in fields if field.name not in names]
    if not absent or not names:
        return None
    near = {name: other for name in absent if (other := _near(name, names, there, loose=header)) is not None}
    needed = [field.name for field in fields if not field.nullable]
    if not there:
        found = "none of the columns that the flow names"
    elif header and len(there) * 2 < len(fields):
        found = f"{len(there)} of the {len(fields)} columns that the flow names"
    elif header and needed and not any(name in there for name in needed):
        found = "none of the columns that are NOT NULL"
    elif near:
        found = f"no column {_quoted(near)}, but one whose name differs only in blanks, case or punctuation"
    elif (header or sure) and (
        misspelt := [name for name in absent if _close(name, names, there, alike=_MISSPELT if header else _SURELY) is not None]
    ):
        found = f"no column {_quoted(misspelt)}, but one with a similar name"
    else:
        return None
    meant = near or {name: close for name in absent if (close := _close(name, names, there)) is not None}
    remedy = f"in `schema:` write {', '.join((f'{_one(other)} and not {_one(name)}' for name, other in islice(meant.items(), 5)))}"
    return Unlike(f"{file} has {found}: it has {_quoted(names)}; expected {_quoted(absent)}", remedy if meant else "")


def unlike_mapping(file: str, given: Mapping[str, str], names: Sequence[str], needed: Container[str]) -> Unlike | None:
    """The error for an option `columns` that names a column which a header lacks, if a similar name exists, or the flow requires the
    column.

    Args:
        file: The file, for the message.
        given: The option: name in the flow → name in the header.
        names: The names of the header, with the flow's names for them.
        needed: Columns that the flow reads as keys.
    """
    there = [given.get(name, name) for name in names]
    absent = {name: other for name, other in given.items() if name not in names}
    meant = {name: close for name, other in absent.items() if (close := _close(other, there, [], alike=_MISSPELT)) is not None}
    name = next((name for name in absent if name in meant or name in needed), None)
    if name is None:
        return None
    remedy = f"write columns: {{{_yaml_key(name)}: {_yaml_key(meant[name])}}}" if name in meant else "name a column that it has"
    return Unlike(
        f'{file} has no column {_one(absent[name])}, which `columns` names for "{name}": it has {_quoted(there)}', remedy, "columns"
    )


def unlike_quotes(block: CsvBlock) -> Unlike | None:
    """The error for a quoted cell that extends over several lines in a tab-separated file: in nearly all such files, quotes have no
    meaning."""
    from scribengin.formats.csv_records import longer_cell

    place = longer_cell(block)
    if place is None:
        return None
    at = place.file if place.line is None else f"{place.file}:{place.line}"
    what = "a quoted cell extends over several lines, in a tab-separated file"
    return Unlike(f"{at}: {what}; most such files do not quote cells", "write quote: none, or quote: '\"' if its cells are quoted")


def csv_remedy(head: bytes, names: Sequence[str], asked: Schema, options: Mapping[str, Any]) -> str:
    """The option of a CSV source that would read a file.

    Args:
        head: The first bytes of the file.
        names: The names that were read from its header.
        asked: The columns of the flow.
        options: The source's options.

    Returns:
        The remedy; empty if no option is found.
    """
    from scribengin.formats.csv_inference import guess_delimiter, is_value
    from scribengin.formats.csv_records import split_cells, split_records

    wanted = {field.name for field in asked.fields}
    encoding = options.get("encoding") or "utf-8"
    text = in_utf_8(head, encoding).removeprefix(_BOM)
    dialect = Dialect.of(options).ending(line_end_of(options.get("line_end") or "auto", text))

    def fits(cells: Sequence[str]) -> bool:
        return sum(name in wanted for name in cells) * 2 >= len(wanted)

    def cut(record: bytes, by: Dialect) -> list[str]:
        found = split_cells(by.line_end.stripped(record.removesuffix(by.line_end.mark)).decode("utf-8", "replace"), by)
        return [cell or "" for cell in found or ()]

    records = list(islice(split_records(text, dialect), _LOOKED_AT))
    delimiter = guess_delimiter(text, Dialect(line_end=dialect.line_end, quote=dialect.quote, comment=dialect.comment))
    skip = options.get("skip_lines") or 0
    for by in (dialect, Dialect(delimiter=delimiter, quote=dialect.quote, line_end=dialect.line_end)):
        other = "" if by.delimiter == dialect.delimiter else f"delimiter: {_yaml(by.delimiter)}"
        for at, record in enumerate(records):
            cells = cut(record, by)
            if not fits(cells) and not fits([cell.strip() for cell in cells]):
                continue
            before = [each for each in records[skip:at] if each.strip()]
            ways = [other] if other else []
            if before and all(each.startswith(b"#") for each in before):
                ways.append('comment: "#"')
            elif before:
                ways.append(f"skip_lines: {sum(each.count(by.line_end.mark) for each in records[:at])}")
            if not fits(cells):
                ways.append("trim: true")
            if ways:
                return "write " + " and ".join(ways)
            break
    if len(names) == 1 and delimiter != dialect.delimiter and len(split_cells(names[0], Dialect(delimiter=delimiter)) or ()) > 1:
        return f"write delimiter: {_yaml(delimiter)}"  # whatever the names mean, there are several
    if options.get("header", True) and len(names) == len(wanted) and any(is_value(name) for name in names if name):
        return "the first line seems to be a record; if columns are matched by position, write header: false"
    if all(_near(name, names, [], loose=False) for name in wanted - set(names)):
        folded = [name.strip() for name in names]
        return "write trim: true" if wanted <= set(folded) else "write header_names: loose"
    if all(_near(name, names, [], loose=True) for name in wanted - set(names)):
        return "write header_names: loose"
    meant = {name: _near(name, names, [], loose=True) or _close(name, names, []) for name in asked.names if name not in names}
    named = [f"{name}: {_yaml(other)}" for name, other in meant.items() if other]
    return f"write columns: {{{', '.join(named[:5])}}}" if named else ""


def without_key(file: str, column: str, use: str, names: Sequence[str], remedy: str) -> Unlike:
    """The error for a file that lacks a column which the flow reads as a key.

    Args:
        file: The file, for the message.
        column: The column.
        use: The use of the column, for the message.
        names: The columns of the file.
        remedy: The remedy.
    """
    return Unlike(f"{file} has no column {_one(column)}, which is {use}: it has {_quoted(names)}", remedy)


def without_key_remedy(field: Field, *, header: bool, static: bool) -> str:
    """The remedy for a file that lacks a key column.

    Args:
        field: The column.
        header: The columns of the file have names in a header.
        static: The source is a lookup table.
    """
    name = _yaml_key(field.name)
    ways = [
        f"if it has another name there, write columns: {{{name}: NAME}}"
        if header
        else "if it has another name there, use that name in `schema:` and in the steps"
    ]
    if not static:
        ways.append(
            f"if older files lack it, write {Field(field.name, field.type, nullable=False)} in `schema:`: their records become dead letters"
        )
    return "; ".join(ways)


def json_names(lines: Iterable[bytes]) -> tuple[list[str], int]:
    """The names in the first objects, and the number of these objects."""
    found: dict[str, None] = {}
    objects = 0
    for line in islice(lines, _RECORDS):
        try:
            record = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(record, dict):
            objects += 1
            found.update(dict.fromkeys(record))
    return list(found), objects


def _near(name: str, names: Sequence[str], taken: Sequence[str], *, loose: bool) -> str | None:
    """The name that differs from this one only in blanks and case, or with `loose` also in punctuation; None if there is none."""
    return next((other for other in names if other not in taken and _fold(other, loose=loose) == _fold(name, loose=loose)), None)


def _fold(name: str, *, loose: bool) -> str:
    kept = name.strip().casefold()
    return folded(kept, "loose") or kept if loose else kept


def _close(name: str, names: Sequence[str], taken: Sequence[str], *, alike: float = 0.6) -> str | None:
    return nearest(name, [other for other in names if other not in taken], alike)


def _quoted(names: Iterable[str]) -> str:
    given = list(names)
    shown = ", ".join(map(_one, given[:_LOOKED_AT]))
    return shown if len(given) <= _LOOKED_AT else f"{shown} and {len(given) - _LOOKED_AT} more"


def _one(name: str) -> str:
    return f'"{name}"' if len(name) <= 60 else f'"{name[:57]}..."'


def _yaml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else _yaml(name)


def _yaml(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t") + '"'
