"""Encoders of sinks: JSON lines, CSV, text, Parquet, and their compressions.

JSON: one object per line, with every column, null included. TIMESTAMP is ISO 8601 with `Z` and six decimals, DATE ISO 8601, DECIMAL a
number with all its digits and no exponent, BINARY base64. NaN and the infinities, which JSON has no numbers for, are the strings `NaN`,
`Infinity`, `-Infinity`.
"""

from __future__ import annotations

import gzip
import re
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.errors import ScribenginError
from scribengin.core.types import Type, arrow_schema, type_of_arrow
from scribengin.formats.dialect import sink_delimiter
from scribengin.formats.json_out import JSON, changed_for_text, iso_texts, json_lines, plain_texts, shortest
from scribengin.formats.rows import column_to_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.core.types import Schema


class UnwritableError(ScribenginError):
    """A row that the format cannot represent without a change."""

    code = "unwritable"


_ROW_GROUP_BYTES = 64 * 2**20


class JsonEncoder:
    """Writes rows as lines of JSON."""

    def __init__(self, file: IO[bytes], schema: Schema, *, compression: str) -> None:  # noqa: ARG002 (any schema)
        self._file, self._end, suffix = compressed(file, compression)
        self.suffix = f".jsonl{suffix}"

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows."""
        self._file.write(json_lines(batch))

    def write_lines(self, lines: bytes) -> None:
        """Append rows that are already JSON."""
        self._file.write(lines)

    def close(self) -> None:
        """Write the end of the compressed data."""
        self._end()


class CsvEncoder:
    """CSV as `formats.csv` reads it: quotes where they are needed, and around texts that would be read as null."""

    def __init__(self, file: IO[bytes], schema: Schema, *, compression: str, delimiter: str, null: str, header: bool) -> None:
        fault = sink_delimiter(delimiter)
        if fault is not None:
            raise ValueError(f"`delimiter` {fault[0]}; {fault[1]}")
        self._file, self._end, suffix = compressed(file, compression)
        self.suffix = f".csv{suffix}"
        self._delimiter = delimiter
        self._null = null
        self._special = f'["\r\n{re.escape(delimiter)}]'
        if header:
            names = pa.array(schema.names, pa.string())
            self._file.write(delimiter.join(self._quoted(names).to_pylist()).encode() + b"\n")

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows. Raises UnwritableError for a null in a single column, which would be an empty line."""
        if batch.num_rows:
            self._file.write("\n".join(self.lines(batch)).encode() + b"\n")

    def lines(self, batch: pa.RecordBatch) -> list[str]:
        """The rows without line ends; a quoted cell may contain some. Raises UnwritableError, see `write`."""
        if batch.num_columns == 1 and not self._null.strip() and batch.column(0).null_count:
            raise UnwritableError(
                f'column "{batch.schema.names[0]}" is null in a row; as the only column, it would be read as an empty line',
                remedy="set `null: NA` for the sink, or add a second column",
            )
        texts = [self._cells(column) for column in batch.columns]
        joined = pc.binary_join_element_wise(*texts, self._delimiter, null_handling="replace", null_replacement=self._null)
        return joined.to_pylist()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Write the end of the compressed data."""
        self._end()

    def _cells(self, column: pa.Array) -> pa.Array:
        type_ = type_of_arrow(column.type)
        if type_.name == "TIMESTAMP":
            return self._quoted(iso_texts(column))
        if type_.name not in ("FLOAT", "DOUBLE", "BINARY", "ARRAY", "MAP", "STRUCT"):
            return self._quoted(plain_texts(column))
        if type_.name == "FLOAT":
            column, type_ = shortest(column), Type("DOUBLE")
        change = changed_for_text(type_) or (lambda value: value)
        values = [None if value is None else JSON.encode(change(value)).decode() for value in column_to_values(column)]
        texts = pa.array(values, pa.string())
        return self._quoted(pc.utf8_trim(texts, '"') if type_.name in ("FLOAT", "DOUBLE", "BINARY") else texts)

    def _quoted(self, texts: pa.Array) -> pa.Array:
        """Add quotes where needed: around delimiters, quotes, line ends, and texts that would be read as null or as an empty line."""
        blank = pc.equal(pc.utf8_trim(texts, " \t"), "")
        needed = pc.or_(pc.match_substring_regex(texts, self._special), pc.or_(pc.equal(texts, self._null), blank))
        return pc.if_else(needed, pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', ""), texts)


class TextEncoder:
    """Text: the only column, a STRING, one line for each row."""

    def __init__(self, file: IO[bytes], schema: Schema, *, compression: str) -> None:
        if len(schema.fields) != 1 or schema.fields[0].type.name != "STRING":
            raise ValueError(f"text needs exactly one STRING column; found: {schema}")
        self._file, self._end, suffix = compressed(file, compression)
        self.suffix = f".txt{suffix}"

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the lines. Raises UnwritableError for null and for a text that would not be read back as one line."""
        if not batch.num_rows:
            return
        column = batch.column(0)
        if column.null_count:
            raise UnwritableError("a row is null, which a text file cannot represent", remedy="filter such rows out, or use format: json")
        if pc.any(pc.match_substring_regex(column, "\\n|\\r$")).as_py():
            raise UnwritableError(
                "a text contains a line end, so it would become several lines", remedy="replace line ends, or use format: json"
            )
        self._file.write("\n".join(column.to_pylist()).encode() + b"\n")

    def close(self) -> None:
        """Write the end of the compressed data."""
        self._end()


class ParquetEncoder:
    """Parquet: timestamps in microseconds, UTC. A row group is written once 64 MiB of Arrow memory are collected."""

    def __init__(self, file: IO[bytes], schema: Schema, *, compression: str) -> None:
        import pyarrow.parquet as pq

        self.suffix = ".parquet"
        self._schema = arrow_schema(schema)
        self._writer = pq.ParquetWriter(file, self._schema, compression=compression, coerce_timestamps="us", version="2.6")
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows; they are written to the file one row group at a time."""
        self._waiting.append(batch.cast(self._schema) if batch.schema != self._schema else batch)
        self._bytes += batch.nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the last row group and the footer."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema).combine_chunks())
            self._waiting, self._bytes = [], 0


def compressed(file: IO[bytes], compression: str) -> tuple[IO[bytes], Callable[[], None], str]:
    """The stream to write to, the function that ends the compression (not the file), and the suffix for the file name."""
    match compression:
        case "gzip":
            zipped = gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0)
            return zipped, zipped.close, ".gz"  # type: ignore[return-value]
        case "zstd":
            from scribengin.core.zstd import CompressionParameter, ZstdFile

            options: dict[int, int] = {CompressionParameter.compression_level: 3, CompressionParameter.checksum_flag: 1}
            writer = ZstdFile(file, "wb", options=options)
            return writer, writer.close, ".zst"  # type: ignore[return-value]
    return file, lambda: None, ""
