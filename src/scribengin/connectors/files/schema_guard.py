"""Compares the columns of new files with those of files that a sink's folder already contains."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from scribengin.connectors.files.infer import read_sample
from scribengin.connectors.files.sink_folders import lineages_in
from scribengin.connectors.files.splitting import compression_of
from scribengin.core.errors import SourceError
from scribengin.core.storage import names_in
from scribengin.core.types import Field, Schema, Type
from scribengin.formats.blocks import LineBlock
from scribengin.formats.csv_records import CsvBlock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


_LOOKED_AT = 20
_PARTS = {"parquet": ".parquet", "json": ".jsonl", "csv": ".csv"}
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
_ANY = Schema((Field("\N{OBJECT REPLACEMENT CHARACTER}", Type("STRING")),))


def differences(folder: Path, options: Mapping[str, Any], schema: Schema) -> list[str]:
    """How the newest file differs from the columns of new files, one sentence per difference; [] if there is no difference, or no file to
    compare. Of Parquet names and types are compared, of JSON names and kinds of values, of CSV the first line.

    Args:
        folder: The sink's folder.
        options: The sink's options.
        schema: The columns of new files.
    """
    rule: str = options.get("evolve") or "add"
    held = None if rule == "any" else newest_file(folder, options["format"])
    if held is None:
        return []
    file, given = held.path, {"compression": held.compression}
    parted = [part for part in options.get("partition_by") or () if isinstance(part, str)]
    coming = {field.name: field.type for field in schema.fields if field.name not in parted}
    try:
        match options["format"]:
            case "parquet":
                return _parquet(file, coming, rule)
            case "json":
                return _json(file, given, coming, rule)
            case "csv" if options.get("header", True):
                return _csv(file, given | {"delimiter": options.get("delimiter") or ",", "header": True}, coming)
    except (SourceError, OSError):
        return []  # a reader removed it, or another writer wrote it: `audit` reports it
    return []


class SinkFile(NamedTuple):
    """A file of a sink, and its name: one that is hidden until it is merged is stored elsewhere, without a suffix."""

    path: Path
    name: str

    @property
    def compression(self) -> str:
        """The compression, as a value of the source's option `compression`."""
        return compression_of(self.name, "auto")


def newest_file(folder: Path, format: str) -> SinkFile | None:
    """A file with rows of the newest Batch that has any there, from the records of commits and merges; otherwise the last by name of those
    that look like a sink's file."""
    suffix = _PARTS.get(format, "")
    found: list[tuple[tuple[int, int], SinkFile]] = []
    for lineage in lineages_in(folder):
        newest = lineage.commits.newest()
        if newest is None:
            continue
        at = (lineage.path / "batches").stat().st_mtime_ns
        for number, record in lineage.commits.since(max(0, newest - _LOOKED_AT)):
            for file in record["files"]:
                path = lineage.hidden_file(number, file) if file.get("hidden") else folder / file["name"]
                found.append(((at, number), SinkFile(path, file["name"])))
        for _, turn in lineage.merges.since(max(0, (lineage.merges.newest() or 0) - _LOOKED_AT)):
            found += [((at, each["inputs"][-1][0]), SinkFile(folder / each["name"], each["name"])) for each in turn["outputs"]]
    for _, held in sorted(found, key=itemgetter(0), reverse=True):
        if suffix in held.name.rpartition("/")[2] and held.path.is_file():
            return held
    parts = sorted(name for name in names_in(folder) if name.startswith("part-") and suffix and suffix in name)
    return SinkFile(folder / parts[-1], parts[-1]) if parts else None


def _parquet(file: Path, coming: Mapping[str, Type], rule: str) -> list[str]:
    from scribengin.connectors.files.parquet import schema_of_columns
    from scribengin.formats.file_columns import arrow_columns

    held = {field.name: field.type for field in arrow_columns(schema_of_columns(file), [])}
    return [
        *(
            f'column "{name}" is {type_} in {file}, but {coming[name]} in the flow'
            for name, type_ in held.items()
            if name in coming and _bare(coming[name]) != _bare(type_)
        ),
        *_others(file, tuple(held), tuple(coming), rule),
    ]


def _json(file: Path, given: Mapping[str, Any], coming: Mapping[str, Type], rule: str) -> list[str]:
    seen: dict[str, str] = {}
    for block in read_sample([file], "json", given, _ANY, records=100).blocks:
        for line in block.lines() if isinstance(block, LineBlock) else ():
            for name, value in _fields(line).items():
                seen[name] = seen.get(name) or _kind_of_value(value)
    wrong = [
        f'column "{name}" is {kind} in {file}, but {coming[name]} in the flow'
        for name, kind in seen.items()
        if kind and name in coming and kind != _kind(coming[name])
    ]
    return wrong + _others(file, tuple(seen), tuple(coming), rule)


def _fields(line: bytes) -> dict[str, object]:
    """The fields of a line of JSON; empty if it is not an object: it is truncated, blank, or from another writer."""
    import msgspec

    try:
        return msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def _csv(file: Path, given: Mapping[str, Any], coming: Mapping[str, Type]) -> list[str]:
    """The differences of a CSV file. Readers of CSV match columns by position: columns may not even be added."""
    for block in read_sample([file], "csv", given, _ANY, records=1).blocks:
        if isinstance(block, CsvBlock) and block.header is not None and block.header != tuple(coming):
            return [f"the header of {file} is {', '.join(block.header)}; new files would have {', '.join(coming)}"]
    return []


def _others(file: Path, held: tuple[str, ...], coming: tuple[str, ...], rule: str) -> list[str]:
    if rule != "strict":
        return []
    gone = [f'column "{name}" of {file} is missing in the flow' for name in held if name not in coming]
    return gone + [f'column "{name}" of the flow is missing in {file}' for name in coming if name not in held]


def _bare(type_: Type) -> str:
    """The type without details that files do not record consistently: whether a part may be null."""
    return str(type_).replace(" NOT NULL", "")


def _kind(type_: Type) -> str:
    match type_.name:
        case "BOOLEAN":
            return "true or false"
        case "ARRAY":
            return "a list"
        case "MAP" | "STRUCT":
            return "an object"
        case "STRING" | "BINARY" | "DATE" | "TIMESTAMP":
            return "a text"
    return "a number"


def _kind_of_value(value: object) -> str:
    """The kind of a JSON value; empty for a value that does not show its type: null, and numbers that JSON cannot express."""
    if value is None or value in _NO_NUMBERS:
        return ""
    kinds = {bool: "true or false", list: "a list", dict: "an object", str: "a text"}
    return kinds.get(type(value), "a number")
