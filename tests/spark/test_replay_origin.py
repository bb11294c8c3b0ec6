"""Records behind a native part are found again by reading their stream; however many die, it is read once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import SourceStream
from scribengin.formats.blocks import LineBlock
from scribengin.spark.row_origin import ReplayOrigin, pack_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BLOCKS, _LINES = 50, 10


class _Source:
    def __init__(self) -> None:
        self.read_blocks = 0

    def read(self, stream: SourceStream) -> Iterator[LineBlock]:
        for number in range(_BLOCKS):
            self.read_blocks += 1
            lines = b"".join(b"%s %d\n" % (stream.label.encode(), number * _LINES + line) for line in range(_LINES))
            yield LineBlock(stream.label, lines, number * 100, 1 + number * _LINES)


def test_a_stream_is_read_once_for_all_of_its_dead_and_again_for_one_that_lies_before(tmp_path: Path) -> None:
    source: Any = _Source()
    streams = {"rows": tuple(SourceStream(label, {}, 1, 100) for label in ("a", "b"))}
    origin = ReplayOrigin({"rows": source}, {0: "rows"}, streams, tmp_path)
    at = pack_at(0, 0)
    for sequence in range(_BLOCKS * _LINES):
        assert origin.payload(at + sequence) == b"a %d" % sequence
    assert source.read_blocks == _BLOCKS
    assert origin.payload(at + 3) == b"a 3"
    assert origin.payload(pack_at(0, 1) + 25) == b"b 25"
    assert origin.place(at + 499).line == 500
    assert origin.payload(at + 500) is None
    assert origin.payload(at + 7) == b"a 7"
