"""The formats: the decoder and the encoder for each name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.core.types import Schema
    from scribengin.formats.contract import Decoder, Encoder, EncoderFactory

TEXT_COMPRESSIONS = ("none", "gzip", "zstd")
PARQUET_COMPRESSIONS = ("none", "gzip", "zstd", "snappy")


def decoder_for(format: str, schema: Schema, options: Mapping[str, Any]) -> Decoder:
    """A new decoder.

    Args:
        format: The name of the format.
        schema: The columns.
        options: The options of the source.

    Raises:
        ValueError: The format is unknown, or cannot represent a column.
    """
    truncate = options.get("time") == "truncate"
    match format:
        case "json":
            from scribengin.formats.json import JsonDecoder

            return JsonDecoder(schema, (options.get("json") or {}).get("text") or (), truncate=truncate)
        case "csv":
            from scribengin.formats.csv import CsvDecoder
            from scribengin.formats.dialect import Dialect

            return CsvDecoder(schema, Dialect.of(options), truncate=truncate)
        case "text":
            from scribengin.formats.text import TextDecoder

            return TextDecoder(schema, comment=options.get("comment"), encoding=options.get("encoding") or "utf-8")
        case "parquet":
            from scribengin.formats.table_blocks import TableDecoder

            return TableDecoder(schema)
        case "avro":
            from scribengin.formats.avro_container import AvroFileDecoder

            return AvroFileDecoder(schema, truncate=truncate)
    raise ValueError(f"unknown format {format!r}; formats are json, csv, text, parquet, avro")


def encoder_for(format: str, *, compression: str = "auto", options: Mapping[str, Any] | None = None) -> EncoderFactory:
    """A factory of encoders; picklable.

    Args:
        format: The name of the format.
        compression: `auto` is none for text formats and zstd for Parquet.
        options: The options of the sink.

    Raises:
        ValueError: The format does not support the compression.
    """
    allowed = PARQUET_COMPRESSIONS if format == "parquet" else TEXT_COMPRESSIONS
    if compression == "auto":
        compression = "zstd" if format == "parquet" else "none"
    if compression not in allowed:
        raise ValueError(f"{format} does not support compression {compression!r}; it supports {', '.join(allowed)}")
    return _Factory(format, compression, dict(options or {}))


@dataclass(frozen=True, slots=True)
class _Factory:
    format: str
    compression: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, file: IO[bytes], schema: Schema) -> Encoder:
        from scribengin.formats import encoders

        match self.format:
            case "json":
                return encoders.JsonEncoder(file, schema, compression=self.compression)
            case "csv":
                given = self.options
                return encoders.CsvEncoder(
                    file,
                    schema,
                    compression=self.compression,
                    delimiter=given.get("delimiter", ","),
                    null=given.get("null", ""),
                    header=given.get("header", True),
                )
            case "text":
                return encoders.TextEncoder(file, schema, compression=self.compression)
            case "parquet":
                return encoders.ParquetEncoder(file, schema, compression=self.compression)
        raise ValueError(f"unknown format {self.format!r}; formats are json, csv, text, parquet")
