"""Sources that are wrong on purpose, each with one fault of a careless author; and the correct one from which they are derived.

`check_changing_source` must detect every one of `BROKEN`, and pass `LinesSource`: a folder of files to which lines are appended.
`check_bounded_source` must detect every one of `BROKEN_ONCE`, and pass `ONCE`.
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
    """A source that reads the lines of files. Each file is a part; a stream is a range of its lines, and its place contains their
    checksum."""

    schema: Schema | None = parse_schema("value STRING")

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resolve_schema(self) -> Schema:
        """One text column."""
        return parse_schema("value STRING")

    def reader(self) -> LinesReader:
        """A new reader."""
        return LinesReader(self.folder)

    def decoder(self) -> Decoder:
        """A decoder for text."""
        return TextDecoder(self.resolve_schema())

    def read(self, stream: SourceStream) -> Iterator[LineBlock]:
        """The lines of the range. Raises SourceError if they have changed."""
        place = stream.place
        lines = lines_of(self.folder / place["file"])[place["start"] : place["end"]]
        if crc32(b"".join(lines)) != place["crc"]:
            raise SourceError(f"{stream.label} is not what it was", remedy="restore it")
        yield from one_by_one(place["file"], lines)


class LinesReader:
    """Remembers the number of lines of each file that were handed out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.taken: dict[str, int] = {}

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Continue after the handed out lines."""
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
        """Unknown: the files are not read for it."""
        return Backlog()

    def notices(self) -> list[str]:
        """Returns no notices."""
        return []


def lines_of(path: Path) -> list[bytes]:
    """The lines of a file. Raises SourceError if it does not exist."""
    try:
        return path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        raise SourceError(f"{path} is gone", remedy="restore it") from None


def one_by_one(file: str, lines: Sequence[bytes]) -> Iterator[LineBlock]:
    """One block per line, so that a reader can be killed between two lines."""
    yield from (LineBlock(file, line) for line in lines)


class _Once(LinesReader):
    """Reads once: the lines that the first file has at the first poll."""

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
    """Resumes one line too early."""

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        super().restore(entries)
        self.taken = {file: max(0, end - 1) for file, end in self.taken.items()}


class _OneLate(LinesReader):
    """Resumes one line too late."""

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        super().restore(entries)
        self.taken = {file: end + 1 for file, end in self.taken.items()}


class _KnowsFiles(LinesReader):
    """Remembers which files it has handed out, but not how much of them: "a file is finished when it is there"."""

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:  # noqa: ARG002 (it is wrong in this too)
        known = set(self.taken)
        return [
            stream for stream in super().split(BatchLimits(), final=final) if stream.place["file"] not in known or not stream.place["start"]
        ]


class _WholeAgain(LinesReader):
    """Hands out a file that has grown from its beginning again."""

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:  # noqa: ARG002 (it is wrong in this too)
        whole = {path.name: len(lines_of(path)) for path in self.folder.glob("*.txt")}
        self.taken = {file: taken if whole.get(file) == taken else 0 for file, taken in self.taken.items()}
        return super().split(BatchLimits(), final=final)


class _ListsOnce(LinesReader):
    """Lists the files only once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._files = {path.name for path in folder.glob("*.txt")}

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        return [stream for stream in super().split(limits, final=final) if stream.place["file"] in self._files]


class _AtThePlace(LinesReader):
    """Stores its position at the place when it hands out streams, not in the source log."""

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
    """Reads the current lines of the range, without comparing them."""

    def read(self, stream: SourceStream) -> Iterator[LineBlock]:
        place = stream.place
        yield from one_by_one(place["file"], lines_of(self.folder / place["file"])[place["start"] : place["end"]])


class _OpenEnd(LinesSource):
    """Reads to the end of the file, not to the end of the range."""

    def read(self, stream: SourceStream) -> Iterator[LineBlock]:
        place = stream.place
        yield from one_by_one(place["file"], lines_of(self.folder / place["file"])[place["start"] :])


class _GoneIsEmpty(LinesSource):
    """Takes a missing file for an empty one."""

    def read(self, stream: SourceStream) -> Iterator[LineBlock]:
        if (self.folder / stream.place["file"]).exists():
            yield from super().read(stream)


class _Consumes(LinesSource):
    """Records at the place what it has read, so that a retried task continues there."""

    def read(self, stream: SourceStream) -> Iterator[LineBlock]:
        mark = self.folder / f"{stream.label}.read"
        done = int(mark.read_text()) if mark.exists() else 0
        for number, block in enumerate(super().read(stream)):
            if number >= done:
                mark.write_text(str(number + 1))
                yield block
        mark.unlink(missing_ok=True)


class _OnceAtThePlace(_AtThePlace, _Once):
    """Stores its position at the place, too."""


def _with_reader(reader: type[LinesReader], source: type[LinesSource] = LinesSource) -> type[LinesSource]:
    def make(self: LinesSource) -> LinesReader:
        return reader(self.folder)

    made: Any = type(
        f"{source.__name__}With{reader.__name__}", (source,), {"reader": make, "__module__": __name__, "__doc__": reader.__doc__}
    )
    globals()[made.__name__] = made  # so that pickle finds it by its name
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
    """A folder for a LinesSource, and the changes that a test makes there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written = 0
        self._parts = 0

    def add(self, rows: int, part: str = "part-0.txt") -> None:
        """Append lines to a file."""
        with (self.folder / part).open("a") as file:
            file.writelines(f"line {self._written + index}\n" for index in range(rows))
        self._written += rows

    def add_part(self, rows: int) -> None:
        """Write lines to a new file."""
        self._parts += 1
        self.add(rows, f"part-{self._parts}.txt")

    def remove_part(self) -> None:
        """Delete the newest file."""
        (self.folder / f"part-{self._parts}.txt").unlink()

    def change(self) -> None:
        """Change the first line."""
        path = self.folder / "part-0.txt"
        path.write_text(path.read_text().replace("line 0\n", "Line 0\n"))
