"""A dead letter as input of a decoder: its record's own bytes for the source's decoder, its row as JSON for that of the row's columns."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from scribengin.formats.added_columns import AddedColumns, own_decoder
from scribengin.formats.blocks import DamageBlock, FileFacts, LineBlock
from scribengin.formats.contract import Bad, RecordPlace
from scribengin.formats.csv import CsvDecoder
from scribengin.formats.csv_records import CsvBlock
from scribengin.formats.dialect import LF
from scribengin.formats.json import JsonDecoder
from scribengin.formats.messages import MessageBlock, MessageDecoder
from scribengin.formats.origins import Hop, Origins
from scribengin.formats.spans import SpanBlock
from scribengin.formats.text import TextDecoder

if TYPE_CHECKING:
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Block, Decoder
    from scribengin.state.contract import DeadLetter


_RECORD = re.compile(r"(.*[+@/])(\d+)(?:\.(\d+))?", re.DOTALL)


def form_of(block: Block) -> str:
    """See `DeadLetter.form`: whether the payload of a block's record is what its decoder reads, or a row."""
    if isinstance(block, LineBlock | DamageBlock | MessageBlock):
        return "bytes"
    return "" if isinstance(getattr(block, "bad", None), Bad) else "row"  # what came from another tier, and is no pack


def extra_of(block: Block, ordinal: int) -> dict[str, Any]:
    """See `DeadLetter.extra`: what the decoder needs beside the record's bytes."""
    facts = getattr(block, "facts", None)
    of_file = {} if facts is None else {"file_time_us": facts.time_us, "file_size": facts.size}
    if isinstance(block, CsvBlock):
        return of_file | {"delimiter": block.dialect.delimiter, "header": None if block.header is None else list(block.header)}
    if not isinstance(block, MessageBlock):
        return of_file
    extra: dict[str, Any] = {"topic": block.topic, "partition": block.partition, "offset": block.offsets[ordinal]}
    if block.keys:
        extra["key"] = _text(block.keys[ordinal])
    if block.timestamps_ms:
        extra["timestamp_ms"] = block.timestamps_ms[ordinal]
    if block.headers:
        extra["headers"] = [[name, _text(value)] for name, value in block.headers[ordinal]]
    return extra


def row_decoder(schema: Schema) -> Decoder:
    """The decoder of a row in JSON, as `json_lines` writes it."""
    return JsonDecoder(schema)


def letter_decoder(letter: DeadLetter, decoder: Decoder) -> Decoder:
    """What reads the block that `record_block` makes, where it does: the source's decoder, or that of rows, each with what the source's
    record had beside its own columns."""
    own = own_decoder(decoder)
    reads = row_decoder(own.schema) if letter.form == "row" else own
    if not isinstance(decoder, AddedColumns):
        return reads
    time_us, size = letter.extra.get("file_time_us"), letter.extra.get("file_size")
    facts = None if time_us is None or size is None else FileFacts(time_us, size)
    return decoder.placed(RecordPlace(letter.file, letter.line, letter.row, letter.offset), facts, reads)


def row_block(letter: DeadLetter, row: bytes) -> Block:
    """The block of a dead letter's row, for `row_decoder`."""
    return LineBlock(letter.file, _one_line(row))


def record_block(letter: DeadLetter, decoder: Decoder) -> Block | None:
    """The dead letter's record, for its source's decoder; None if that takes no such record: the source was another when it died."""
    decoder = own_decoder(decoder)
    decoder = getattr(decoder, "strict", decoder)  # a lenient one
    if letter.form == "row" or isinstance(decoder, JsonDecoder):
        return LineBlock(letter.file, _one_line(letter.payload))
    if isinstance(decoder, TextDecoder):
        payload = letter.payload  # of several lines with `multiline`
        return SpanBlock(letter.file, payload, end=LF, content=payload, starts=[0], ends=[len(payload)])
    extra = letter.extra
    if isinstance(decoder, CsvDecoder):
        header = extra.get("header")
        dialect = decoder.dialect
        mark = dialect.line_end.mark
        return CsvBlock(letter.file, letter.payload + mark, dialect=dialect, header=None if header is None else tuple(header))
    if not isinstance(decoder, MessageDecoder) or "topic" not in extra:
        return None
    return MessageBlock(
        extra["topic"],
        extra["partition"],
        [letter.payload],
        [extra["offset"]],
        [_bytes(extra.get("key"))],
        [extra.get("timestamp_ms")],
        [[(name, _bytes(value)) for name, value in extra.get("headers", ())]],
    )


def origins_of(letter: DeadLetter) -> Origins | None:
    """The first coordinates of the record, and the way by which it had come; None if none are known."""
    found = _RECORD.fullmatch(letter.record)
    if found is None:
        return None
    trail = tuple(Hop(**hop) for hop in letter.trail[:-1])  # the last stop is where it died
    one = np.zeros(1, np.int32)
    return Origins([found[1]], one, np.array([int(found[2])], np.int64), np.array([int(found[3] or 0)], np.int32), [trail])


def _one_line(data: bytes) -> bytes:
    """JSON on one line: a line feed inside of it can be nothing but white space, or a mistake, and so is the carriage return."""
    return data.strip().replace(b"\n", b"\r") + b"\n"


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
