"""A dead letter as input of a decoder: the record's bytes for its source's decoder, or its row as JSON for a decoder of rows."""

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
from scribengin.formats.origins import Origins
from scribengin.formats.row_ids import Hop
from scribengin.formats.spans import SpanBlock
from scribengin.formats.text import TextDecoder

if TYPE_CHECKING:
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Block, Decoder
    from scribengin.state.contract import DeadLetter


_RECORD = re.compile(r"(.*[+@/])(\d+)(?:\.(\d+))?", re.DOTALL)


def form_of(block: Block) -> str:
    """The value of `DeadLetter.form` for a block: `bytes` if the payload of its records is what their decoder reads, `row` otherwise; empty
    for input from another tier that is no record batch."""
    if isinstance(block, LineBlock | DamageBlock | MessageBlock):
        return "bytes"
    return "" if isinstance(getattr(block, "bad", None), Bad) else "row"  # input from another tier that is no record batch


def extra_of(block: Block, ordinal: int) -> dict[str, Any]:
    """The value of `DeadLetter.extra` for record `ordinal` of a block: what the decoder needs in addition to the record's bytes."""
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
    """The decoder for the block that `record_block` makes: the source's decoder, or a decoder of rows. It adds the columns that the source
    takes from the place and the file of the record."""
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
    """The dead letter's record as a block for its source's decoder; None if that decoder does not read such records, because the source has
    changed since."""
    decoder = own_decoder(decoder)
    decoder = getattr(decoder, "strict", decoder)  # the decoder inside a lenient one
    if letter.form == "row" or isinstance(decoder, JsonDecoder):
        return LineBlock(letter.file, _one_line(letter.payload))
    if isinstance(decoder, TextDecoder):
        payload = letter.payload  # has several lines with `multiline`
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
    """The first coordinates of the record and its provenance before this tier; None if the coordinates are not known."""
    found = _RECORD.fullmatch(letter.record)
    if found is None:
        return None
    trail = tuple(Hop(**hop) for hop in letter.trail[:-1])  # the last hop is the Batch in which it died
    one = np.zeros(1, np.int32)
    return Origins([found[1]], one, np.array([int(found[2])], np.int64), np.array([int(found[3] or 0)], np.int32), [trail])


def _one_line(data: bytes) -> bytes:
    """Put JSON on one line. A line feed in it can only be white space, or an error; a carriage return in its place means the same."""
    return data.strip().replace(b"\n", b"\r") + b"\n"


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
