"""Some records of some files, as blocks: the sample for `infer`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.files.bytestreams import compression_of
from scribengin.connectors.files.discovery import Discovery
from scribengin.connectors.files.globs import WILDCARD
from scribengin.connectors.files.pieces import FilePiece, streams_of
from scribengin.connectors.files.source import FilesSource
from scribengin.core.errors import SourceError
from scribengin.formats.avro_container import AvroBlock
from scribengin.formats.blocks import ArrowBlock, LineBlock
from scribengin.formats.dialect import guess_encoding, in_utf_8, line_end_of
from scribengin.formats.spans import SpanBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.core.types import Schema
    from scribengin.formats.contract import Block

MOST_FILES = 100
"""maximum number of files that are opened"""
_SUFFIXES = {"json": "json", "jsonl": "json", "ndjson": "json", "csv": "csv", "tsv": "csv", "parquet": "parquet", "avro": "avro"}
_MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"PAR1": ".parquet", b"Obj\x01": ".avro"}
_HEAD_BYTES = 2**18
_HEAD_LINES = 1_000
_STDIN_BYTES = 2**26


@dataclass(frozen=True, slots=True)
class FileSample:
    """`blocks` hold at most the requested number of records; `whole` is True if there are no others."""

    blocks: list[Block]
    files: int
    whole: bool

    @property
    def records(self) -> int:
        """Their number, empty lines included."""
        return sum(map(len, self.blocks))


def files_of(paths: Sequence[str]) -> list[Path]:
    """The files of paths, folders and globs, as a files source reads them. Raises SourceError if one does not exist, or there is no
    file."""
    found: dict[Path, None] = {}
    for path in paths:
        given = Path(path).expanduser()
        if given.is_file():
            found[given] = None
            continue
        if not WILDCARD.search(path) and not given.exists():
            raise SourceError(f"{path} does not exist", remedy="name files, folders or globs that hold data, or - for stdin")
        discovery = Discovery(given)
        found |= dict.fromkeys(discovery.root / each for each in discovery.changed() or [])
    if not found:
        raise SourceError(f"{', '.join(paths)}: no file found", remedy="name files, folders or globs that hold data")
    return list(found)


def keep_stdin(stream: IO[bytes], folder: Path, records: int) -> tuple[Path, bool]:
    """Input from a stream, as a file with the name that its first bytes call for, and whether it is complete: only as many lines are kept
    as are sampled (at least a thousand, at most 64 MiB), because the stream may be endless."""
    path = folder / "stdin"
    head = stream.read(max(map(len, _MAGIC)))
    suffix = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), "")
    with path.open("wb") as file:
        file.write(head)
        whole = True
        if suffix:
            shutil.copyfileobj(stream, file)
        else:
            whole = _keep_lines(stream, file, max(records, _HEAD_LINES))
    return (path.rename(path.with_name(f"stdin{suffix}")) if suffix else path), whole


def _keep_lines(stream: IO[bytes], file: IO[bytes], most: int) -> bool:
    """True if the stream ended before more than `most` lines, or 64 MiB, were read; otherwise cut at the end of a line, if there is one."""
    lines = size = 0
    read = getattr(stream, "read1", stream.read)  # the available bytes, without waiting for more
    while lines <= most and size < _STDIN_BYTES:
        chunk = read(2**16)
        if not chunk:
            return True
        file.write(chunk)
        lines += chunk.count(b"\n")
        size += len(chunk)
    file.truncate(file.tell() - (len(chunk) - chunk.rfind(b"\n") - 1) if b"\n" in chunk else file.tell())
    return False


def head_of(path: Path, *, compression: str = "auto") -> bytes:
    """The first bytes, decompressed; a whole number of lines if the file has more."""
    chunk = b""
    if compression_of(path.name, compression) == "none":
        with path.open("rb") as file:
            chunk = file.read(_HEAD_BYTES)
    else:
        sample = read_sample([path], "text", {}, None, records=2_000)
        chunk = b"".join(block.data for block in sample.blocks if isinstance(block, LineBlock))
    end = chunk.rfind(b"\n") + 1
    return chunk[:end] if end and len(chunk) >= _HEAD_BYTES else chunk


def format_of(path: Path) -> str:
    """The format by the name, else by the first bytes."""
    suffixes = [suffix.lower().lstrip(".") for suffix in path.suffixes]
    for suffix in reversed(suffixes):
        if suffix in _SUFFIXES:
            return _SUFFIXES[suffix]
    head = head_of(path)
    for magic, suffix in _MAGIC.items():
        if head.startswith(magic) and suffix.lstrip(".") in _SUFFIXES:
            return suffix.lstrip(".")
    head = in_utf_8(head, guess_encoding(head)).removeprefix(b"\xef\xbb\xbf")
    lines = head.split(line_end_of("auto", head).mark)
    if lines[0].lstrip()[:1] == b"{":
        return "json"
    cut = [line for line in lines[:20] if line.strip()]
    return "csv" if any(cut and all(mark in line for line in cut) for mark in (b",", b";", b"\t", b"|")) else "text"


def read_sample(paths: Sequence[Path], format: str, options: Mapping[str, Any], schema: Schema | None, *, records: int) -> FileSample:
    """The first records of each file, distributed as evenly as possible. Raises SourceError for a file that cannot be read."""
    looked = paths if len(paths) <= MOST_FILES else [paths[len(paths) * index // MOST_FILES] for index in range(MOST_FILES)]
    blocks: list[Block] = []
    left, whole = records, len(looked) == len(paths)
    for index, path in enumerate(looked):
        share = max(1, left // (len(looked) - index))
        for block in blocks_of(path, format, options, schema):
            part = _first(block, share)
            if part is not None:
                blocks.append(part)
                share, left = share - len(part), left - len(part)
            if part is not block:
                whole = False
                break
    return FileSample(blocks, len(looked), whole)


def blocks_of(path: Path, format: str, options: Mapping[str, Any], schema: Schema | None) -> Iterator[Block]:
    """All records of a file, as a task would read them."""
    at = path.stat()
    piece = FilePiece(path.name, at.st_size, at.st_mtime_ns, at.st_ino, 0, -1 if format == "parquet" else at.st_size, at.st_size)
    stream = streams_of([piece], root=".", stream_bytes=1)[0]
    given = {"path": path.name, "format": format, **options}
    return FilesSource(ConnectorContext("infer", path.parent, given, schema)).read(stream)


def _first(block: Block, count: int) -> Block | None:
    """At most `count` of its records, None if that is zero; a block that cannot be split stays whole."""
    if len(block) <= count:
        return block
    if count <= 0:
        return None
    if isinstance(block, SpanBlock):
        data = b"".join(line + b"\n" for line in block.lines()[:count])
        return replace(block, data=data, starts=block.starts[:count], ends=block.ends[:count], _lines=None)
    if isinstance(block, LineBlock):
        return replace(block, data=b"".join(line + block.end.mark for line in block.lines()[:count]), _lines=None, _length=-1)
    if isinstance(block, ArrowBlock):
        return replace(block, batch=block.batch.slice(0, count))
    if isinstance(block, AvroBlock):
        return replace(block, records=block.records[:count], unclean={at: bad for at, bad in block.unclean.items() if at < count})
    return block
