"""A piece: the part of one file that one task reads, as recorded in the source's log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import SourceStream
from scribengin.connectors.files.identity import Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_FILES_PER_STREAM = 1000


@dataclass(frozen=True, slots=True)
class FilePiece:
    """The part of a file that a task reads. `path` is relative to the stream's root, with `/`. `size`, `mtime_ns` and `inode` are those of
    the file when it was assigned.

    `start` and `end` are byte offsets in a text file (a compressed file is always whole), row groups of a Parquet file, byte offsets at
    which blocks of an Avro file begin.
    """

    path: str
    size: int
    mtime_ns: int
    inode: int
    start: int
    end: int
    bytes: int
    """its share of the file's bytes, for lag and limits"""
    trace: Trace | None = None
    """the identity of a file of a growing source, with which it is found after a rename"""

    def as_json(self) -> list[Any]:
        """The piece in the form of a stream's place."""
        form = [self.path, self.size, self.mtime_ns, self.inode, self.start, self.end, self.bytes]
        return form if self.trace is None else [*form, self.trace.as_json()]

    @property
    def label(self) -> str:
        """The label of the piece: `a.jsonl`, or `a.jsonl[0:65536]` for a part of it; `a.jsonl#1` if the path belonged to another file
        before. Row ids contain the label, so it is never used twice."""
        name = f"{self.path}#{self.trace.turn}" if self.trace is not None and self.trace.turn else self.path
        return name if (self.start, self.end) == (0, self.size) else f"{name}[{self.start}:{self.end}]"

    @property
    def begins(self) -> bool:
        """True if a record begins at `start`, whatever is before it."""
        return self.start == (0 if self.trace is None else self.trace.since)


def pieces_of(stream: SourceStream) -> list[FilePiece]:
    """The pieces that `streams_of` stored."""
    return [_piece(*item) for item in stream.place["pieces"]]


def _piece(
    path: str, size: int, mtime_ns: int, inode: int, start: int, end: int, bytes: int, trace: Sequence[Any] | None = None
) -> FilePiece:
    return FilePiece(path, size, mtime_ns, inode, start, end, bytes, None if trace is None else Trace.from_json(trace))


def root_of(stream: SourceStream) -> str:
    """The folder that the pieces' paths are relative to; it may itself be relative to the flow's folder."""
    root: str = stream.place["root"]
    return root


def streams_of(pieces: Iterable[FilePiece], *, root: str, stream_bytes: int) -> list[SourceStream]:
    """Group pieces into streams, in order: each has as many pieces as fit into `stream_bytes`, and at most 1,000.

    Args:
        pieces: The pieces.
        root: The folder that their paths are relative to.
        stream_bytes: The size of a stream, in bytes; a larger piece is a stream of its own.
    """
    streams: list[SourceStream] = []
    packed: list[FilePiece] = []
    total = 0
    for piece in pieces:
        if packed and (total + piece.bytes > stream_bytes or len(packed) == _FILES_PER_STREAM):
            streams.append(_stream(packed, root))
            packed, total = [], 0
        packed.append(piece)
        total += piece.bytes
    if packed:
        streams.append(_stream(packed, root))
    return streams


def without_file(stream: SourceStream, path: str) -> SourceStream | None:
    """The stream without that file's pieces (`offsets skip`); None if none are left."""
    left = [piece for piece in pieces_of(stream) if piece.path != path]
    return _stream(left, root_of(stream)) if left else None


def _stream(pieces: Sequence[FilePiece], root: str) -> SourceStream:
    first, last = pieces[0], pieces[-1]
    label = first.label if len(pieces) == 1 else f"{first.label} … {last.label} ({len(pieces)} files)"
    return SourceStream(
        label,
        {"root": root, "pieces": [piece.as_json() for piece in pieces]},
        files=len({piece.path for piece in pieces}),
        bytes=sum(piece.bytes for piece in pieces),
    )


def cut(piece: FilePiece, split_bytes: int) -> list[FilePiece]:
    """Divide a piece into byte ranges of about `split_bytes`. A range includes the lines that begin in it."""
    count = max(1, round((piece.end - piece.start) / split_bytes))
    bounds = [piece.start + (piece.end - piece.start) * index // count for index in range(count + 1)]
    return [replace(piece, start=start, end=end, bytes=end - start) for start, end in pairwise(bounds)]
