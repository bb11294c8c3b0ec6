"""Sources that are wrong on purpose, each in one way that a hurried author would choose; and the one that they are made of, which is not.

`check_changing_source` must catch every one of `BROKEN`, and pass `LinesSource`: a folder of files to which lines are added.
`check_bounded_source` must catch every one of `BROKEN_ONCE`, and pass `ONCE`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

from scribengin.connectors.contract import Backlog, BatchLimits, SourceStream
from scribengin.core.errors import SourceError
from scribengin.core.options import NodeType
from scribengin.core.types import Schema, parse_schema
from scribengin.formats.blocks import LineBlock
from scribengin.formats.text import TextDecoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from scribengin.formats.contract import Decoder

DECLARED = NodeType("lines", "source", "Lines of a folder's files.", (), frozenset({"replayable", "bounded"}))


class LinesSource:
    """Each file is a part; a range of its lines is a stream, whose place holds its checksum."""

    schema: Schema | None = parse_schema("value STRING")

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resolve_schema(self) -> Schema:
        """One text."""
        return parse_schema("value STRING")

    def reader(self) -> LinesReader:
        """A fresh one."""
        return LinesReader(self.folder)

    def decoder(self) -> Decoder:
        """Of text."""
        return TextDecoder(self.resolve_schema())

    def read(self, stream: SourceStream) -> Iterator[LineBlock]:
        """The range's lines, compared with what they were."""
        place = stream.place
        lines = lines_of(self.folder / place["file"])[place["start"] : place["end"]]
        if crc32(b"".join(lines)) != place["crc"]:
            raise SourceError(f"{stream.label} is not what it was", remedy="restore it")
        yield from one_by_one(place["file"], lines)


class LinesReader:
    """File → lines that were handed out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.taken: dict[str, int] = {}

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Go on behind what was handed out."""
        for streams in entries:
            for stream in streams:
                self.taken[stream.place["file"]] = stream.place["end"]

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:  # noqa: ARG002 (a line that is there is finished)
        """The next lines of each file."""
        streams = []
        for path in sorted(self.folder.glob("*.txt")):
            lines, start = lines_of(path), self.taken.get(path.name, 0)
            end = min(len(lines), start + (limits.max_rows or len(lines)))
            if end > start:
                self.taken[path.name] = end
                place = {"file": path.name, "start": start, "end": end, "crc": crc32(b"".join(lines[start:end]))}
                streams.append(SourceStream(f"{path.name}[{start}:{end}]", place, rows=end - start))
        return streams

    def backlog(self) -> Backlog:
        """Not looked at."""
        return Backlog()

    def notices(self) -> list[str]:
        """Nothing to tell."""
        return []


def lines_of(path: Path) -> list[bytes]:
    """Whole lines. Raises SourceError for a file that is gone."""
    try:
        return path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        raise SourceError(f"{path} is gone", remedy="restore it") from None


def one_by_one(file: str, lines: Sequence[bytes]) -> Iterator[LineBlock]:
    """A block a line, so that a reader can be killed between two."""
    yield from (LineBlock(file, line) for line in lines)


class _Once(LinesReader):
    """Reads once: what the first file has at the first look."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._ends: int | None = None

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        known = list(entries)
        super().restore(known)
        self._ends = known[0][0].place["ends"] if known else None

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        (path,) = self.folder.glob("part-0.txt")
        self._ends = len(lines_of(path)) if self._ends is None else self._ends
        left = self._ends - self.taken.get(path.name, 0)
        if not left:
            return []
        found = super().split(BatchLimits(max_rows=min(left, limits.max_rows or left)), final=final)
        return [replace(stream, place={**stream.place, "ends": self._ends}) for stream in found]


class _OneEarly(LinesReader):
    """Takes the newest position for the last line that is to be read."""

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        super().restore(entries)
        self.taken = {file: max(0, end - 1) for file, end in self.taken.items()}


class _OneLate(LinesReader):
    """Begins behind the line behind the position."""

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        super().restore(entries)
        self.taken = {file: end + 1 for file, end in self.taken.items()}


class _KnowsFiles(LinesReader):
    """Remembers which files it has handed out, and not how much of them: "a file is finished when it is there"."""

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:  # noqa: ARG002 (it is wrong in this too)
        known = set(self.taken)
        return [
            stream for stream in super().split(BatchLimits(), final=final) if stream.place["file"] not in known or not stream.place["start"]
        ]


class _WholeAgain(LinesReader):
    """Hands out a file that has grown from its beginning."""

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:  # noqa: ARG002 (it is wrong in this too)
        whole = {path.name: len(lines_of(path)) for path in self.folder.glob("*.txt")}
        self.taken = {file: taken if whole.get(file) == taken else 0 for file, taken in self.taken.items()}
        return super().split(BatchLimits(), final=final)


class _ListsOnce(LinesReader):
    """Looks once which files there are."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._files = {path.name for path in folder.glob("*.txt")}

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        return [stream for stream in super().split(limits, final=final) if stream.place["file"] in self._files]


class _AtThePlace(LinesReader):
    """Keeps its position at the place, and moves it when it hands out: "so that no other takes the same"."""

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        for _ in entries:
            pass
        for mark in self.folder.glob("*.taken"):
            self.taken[mark.stem] = int(mark.read_text())

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        streams = super().split(limits, final=final)
        for file, taken in self.taken.items():
            (self.folder / f"{file}.taken").write_text(str(taken))
        return streams


class _Unchecked(LinesSource):
    """Reads what stands at the range's lines now."""

    def read(self, stream: SourceStream) -> Iterator[LineBlock]:
        place = stream.place
        yield from one_by_one(place["file"], lines_of(self.folder / place["file"])[place["start"] : place["end"]])


class _OpenEnd(LinesSource):
    """Reads on to the file's end: "the more, the better"."""

    def read(self, stream: SourceStream) -> Iterator[LineBlock]:
        place = stream.place
        yield from one_by_one(place["file"], lines_of(self.folder / place["file"])[place["start"] :])


class _GoneIsEmpty(LinesSource):
    """Takes a file that is gone for one without lines."""

    def read(self, stream: SourceStream) -> Iterator[LineBlock]:
        if (self.folder / stream.place["file"]).exists():
            yield from super().read(stream)


class _Consumes(LinesSource):
    """Marks at the place what it has read, so that a task that is tried again goes on there."""

    def read(self, stream: SourceStream) -> Iterator[LineBlock]:
        mark = self.folder / f"{stream.label}.read"
        done = int(mark.read_text()) if mark.exists() else 0
        for number, block in enumerate(super().read(stream)):
            if number >= done:
                mark.write_text(str(number + 1))
                yield block
        mark.unlink(missing_ok=True)


class _OnceAtThePlace(_AtThePlace, _Once):
    """Keeps its position at the place, too."""


def _with_reader(reader: type[LinesReader], source: type[LinesSource] = LinesSource) -> type[LinesSource]:
    def make(self: LinesSource) -> LinesReader:
        return reader(self.folder)

    made: Any = type(
        f"{source.__name__}With{reader.__name__}", (source,), {"reader": make, "__module__": __name__, "__doc__": reader.__doc__}
    )
    globals()[made.__name__] = made  # to be pickled by its name
    return made  # type: ignore[no-any-return]


BROKEN: dict[str, type[LinesSource]] = {
    "resumes_one_early": _with_reader(_OneEarly),
    "resumes_one_late": _with_reader(_OneLate),
    "growth_unseen": _with_reader(_KnowsFiles),
    "whole_part_again": _with_reader(_WholeAgain),
    "new_part_unseen": _with_reader(_ListsOnce),
    "position_at_the_place": _with_reader(_AtThePlace),
    "other_rows": _Unchecked,
    "range_without_end": _OpenEnd,
    "gone_is_empty": _GoneIsEmpty,
    "consumed_by_reading": _Consumes,
}

ONCE = _with_reader(_Once)
BROKEN_ONCE: dict[str, type[LinesSource]] = {
    "never_through": LinesSource,
    "position_at_the_place": _with_reader(_OnceAtThePlace),
    "other_rows": _with_reader(_Once, _Unchecked),
    "range_without_end": _with_reader(_Once, _OpenEnd),
    "consumed_by_reading": _with_reader(_Once, _Consumes),
}


class LinesPlace:
    """A folder for a LinesSource, and what happens there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written = 0
        self._parts = 0

    def add(self, rows: int, part: str = "part-0.txt") -> None:
        """Lines more in the first file."""
        with (self.folder / part).open("a") as file:
            file.writelines(f"line {self._written + index}\n" for index in range(rows))
        self._written += rows

    def add_part(self, rows: int) -> None:
        """Lines in a file of their own."""
        self._parts += 1
        self.add(rows, f"part-{self._parts}.txt")

    def remove_part(self) -> None:
        """The newest file goes."""
        (self.folder / f"part-{self._parts}.txt").unlink()

    def change(self) -> None:
        """The first line becomes another one."""
        path = self.folder / "part-0.txt"
        path.write_text(path.read_text().replace("line 0\n", "Line 0\n"))
