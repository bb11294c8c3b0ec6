"""Ways to rotate a log, as a table: a script for the shell between two looks, and what must come out, each line once."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import shutil
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import BatchLimits, ConnectorContext, SourceStream
from scribengin.connectors.files.identity import ContentMark, FileStatus, OpenFile, is_turn_of, related, scan
from scribengin.connectors.files.source import FilesSource
from scribengin.connectors.files.splitting import compression_of
from scribengin.core.errors import SourceError
from scribengin.core.types import parse_schema

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scribengin.connectors.files.reader import FilesReader

TOOLS = {"bzip2": ".bz2", "zstd": ".zst"}
LIVE, ALL = "log/app.log", "log/app*"
LONG = "".join(f"{n:05} a line of a log that is longer than what is looked at\n" for n in range(200))


@dataclass(frozen=True)
class Way:
    """`steps` are shell scripts in the folder of the logs; behind each the source looks. `lines` is what comes out, in any order."""

    name: str
    steps: tuple[str, ...]
    lines: str
    path: str = LIVE
    options: dict[str, Any] = field(default_factory=dict)
    late: bool = True
    """whether what was taken at a look can still be read behind the next step"""


WAYS = [
    Way("rename, create", ("echo a > app.log", "echo b >> app.log; mv app.log app.log.1; echo c > app.log"), "a b c"),
    Way("rename, create, all names", ("echo a > app.log", "echo b >> app.log; mv app.log app.log.1; echo c > app.log"), "a b c", ALL),
    Way("rename, nothing new yet", ("echo a > app.log", "mv app.log app.log-20260302", "echo b > app.log"), "a b", ALL),
    Way(
        "rename, nothing new yet, one name",
        ("echo a > app.log", "echo b >> app.log; mv app.log app.log-20260302", ":", "echo c > app.log"),
        "a b c",
    ),
    Way(
        "rename, the writer goes on in the old file",
        (
            "echo a > app.log",
            "mv app.log app.log.1; : > app.log",
            "echo b >> app.log.1",
            "echo c >> app.log; echo d >> app.log.1",
        ),
        "a b c d",
    ),
    Way(
        "rename while a line is half written",
        ("printf 'a\nb' > app.log", "mv app.log app.log.1; echo c > app.log", "echo b >> app.log.1"),
        "a bb c",
    ),
    Way(
        "rename of a file whose last line never ends",
        (
            "printf 'a\nb' > app.log",
            "mv app.log app.log.1; echo c > app.log",
            "touch -d '2 minutes ago' app.log.1",
            ":",
        ),
        "a b c",
    ),
    Way(
        "rename with shifting numbers",
        (
            "echo a > app.log",
            "mv app.log app.log.1; echo b > app.log",
            "mv app.log.1 app.log.2; mv app.log app.log.1; echo c > app.log",
            "echo d >> app.log",
        ),
        "a b c d",
        ALL,
    ),
    Way(
        "two rotations between two looks",
        (
            "echo a > app.log",
            "echo b >> app.log; mv app.log app.log.1; echo c > app.log; sleep 0.02; mv app.log.1 app.log.2; "
            "mv app.log app.log.1; echo d > app.log",
            "echo e >> app.log",
        ),
        "a b c d e",
    ),
    Way(
        "two rotations between two looks, all names",
        (
            "echo a > app.log",
            "echo b >> app.log; mv app.log app.log.1; echo c > app.log; mv app.log.1 app.log.2; mv app.log app.log.1; echo d > app.log",
        ),
        "a b c d",
        ALL,
    ),
    Way(
        "names with dates before the suffix",
        ("echo a > app.log", "echo b >> app.log; mv app.log app-2026-03-02.log; echo c > app.log"),
        "a b c",
        ALL,
    ),
    Way(
        "rename and compress at once",
        ("echo a > app.log", "echo b >> app.log; mv app.log app.log.1; gzip app.log.1; echo c > app.log"),
        "a b c",
    ),
    Way(
        "rename and compress at once, all names",
        ("echo a > app.log", "echo b >> app.log; mv app.log app.log.1; gzip app.log.1; echo c > app.log"),
        "a b c",
        ALL,
    ),
    Way(
        "rename, compress later",
        (
            "echo a > app.log",
            "echo b >> app.log; mv app.log app.log.1; echo c > app.log",
            "gzip app.log.1; mv app.log.1.gz app.log.2.gz; mv app.log app.log.1; echo d > app.log",
            "gzip app.log.1; mv app.log.2.gz app.log.3.gz; mv app.log.1.gz app.log.2.gz; mv app.log app.log.1",
            ":",
        ),
        "a b c d",
        ALL,
    ),
    Way("compressed by bzip2", ("echo a > app.log", "echo b >> app.log; bzip2 app.log; echo c > app.log"), "a b c", ALL),
    Way("compressed by zstd", ("echo a > app.log", "echo b >> app.log; zstd -q --rm app.log; echo c > app.log"), "a b c", ALL),
    Way(
        "copy and cut",
        ("echo a > app.log", "cp app.log app.log.1; : > app.log; printf 'longer than before\nb\n' >> app.log"),
        "longer·than·before a b",
    ),
    Way(
        "copy and cut, all names",
        ("echo a > app.log", "cp app.log app.log.1; : > app.log; printf 'longer\nb\n' >> app.log", "echo c >> app.log"),
        "longer a b c",
        ALL,
    ),
    Way(
        "copy and cut, with more in the copy",
        ("echo a > app.log", "echo b >> app.log; cp app.log app.log.1; : > app.log; echo c > app.log"),
        "a b c",
    ),
    Way(
        "copy, a look, cut",
        ("echo a > app.log", "echo b >> app.log; cp app.log app.log.1", ": > app.log", "echo c >> app.log"),
        "a b c",
        ALL,
    ),
    Way(
        "copy, more lines, cut",
        ("echo a > app.log", "cp app.log app.log.1; echo b >> app.log", ": > app.log; echo c >> app.log"),
        "a b c",
        ALL,
        late=False,
    ),
    Way(
        "copy and cut, compressed",
        ("echo a > app.log", "echo b >> app.log; gzip -c app.log > app.log.1.gz; : > app.log; echo c >> app.log"),
        "a b c",
    ),
    Way(
        "copy and cut, compressed, all names",
        ("echo a > app.log", "echo b >> app.log; gzip -c app.log > app.log.1.gz; : > app.log; echo c >> app.log"),
        "a b c",
        ALL,
    ),
    Way(
        "two copies and cuts between two looks",
        (
            "echo a > app.log",
            "echo b >> app.log; cp app.log app.log.1; echo c > app.log; mv app.log.1 app.log.2; sleep 0.02; cp app.log app.log.1; "
            "echo d > app.log",
        ),
        "a b c d",
    ),
    Way("opened anew", ("echo one > app.log", "echo two > app.log", "echo three > app.log"), "one two three", late=False),
    Way("opened anew, shorter", ("echo start > app.log; echo one >> app.log", "echo two > app.log"), "start one two", late=False),
    Way("opened anew, longer", ("echo one > app.log", "printf 'two\nthree\nfour\n' > app.log"), "one two three four", late=False),
    Way(
        "opened anew, the same first line",
        ("printf 'start\na\nb\n' > app.log", "printf 'start\nc\n' > app.log"),
        "start a b start c",
        late=False,
    ),
    Way(
        "opened anew, the same first line, longer",
        ("printf 'start\na\n' > app.log", "printf 'start\nb\nc\nd\n' > app.log"),
        "start a start b c d",
        late=False,
    ),
    Way(
        "renamed, the same first line",
        ("printf 'start\na\nb\n' > app.log", "mv app.log app.log.1; echo start > app.log", "echo c >> app.log"),
        "start a b start c",
    ),
    Way(
        "renamed, the same first line, all names",
        (
            "printf 'start\na\nb\n' > app.log",
            "mv app.log app.log.1; echo start > app.log",
            "echo c >> app.log",
        ),
        "start a b start c",
        ALL,
    ),
    Way(
        "two logs with the same first line",
        ("printf 'start\na\n' > app1.log", "printf 'start\nb\n' > app2.log", "echo start > app3.log"),
        "start a start b start",
        ALL,
    ),
    Way(
        "deleted, and its inode given to another",
        ("echo a > app.log", "rm app.log; echo b > app-b.log", "rm app-b.log; echo c > app.log"),
        "a b c",
        ALL,
        late=False,
    ),
    Way("empty files", (": > app.log", "mv app.log app.log.1; : > app.log", "echo a >> app.log.1; echo b >> app.log"), "a b", ALL),
    Way(
        "exchanged by a longer one (rsync)",
        ("echo a > app.log", "cp app.log t; echo b >> t; mv t app.log", "cp app.log t; echo c >> t; mv t app.log"),
        "a b c",
    ),
    Way("copied over by a longer one (cp)", ("echo a > app.log", "cp app.log t; echo b >> t; cp t app.log"), "a b"),
    Way(
        "moved by copying, as between file systems",
        ("echo a > app.log", "echo b >> app.log; cp -p app.log app.log.1; rm app.log; echo c > app.log"),
        "a b c",
    ),
    Way(
        "a copy that stays",
        (
            "echo a > app.log",
            "cp app.log app.log.bak; echo b >> app.log",
            "echo c >> app.log",
            "mv app.log app.log.1; echo d > app.log",
            "rm app.log.1",
        ),
        "a b c d",
        ALL,
    ),
    Way(
        "hard link",
        ("echo a > app.log", "ln app.log app.log.1; echo b >> app.log", "rm app.log; echo c > app.log; echo d >> app.log.1"),
        "a b c d",
        ALL,
    ),
    Way(
        "long, renamed and compressed",
        (
            f"printf '{LONG}' > app.log",
            "echo a >> app.log; mv app.log app.log.1; echo b > app.log",
            "gzip app.log.1",
            "mv app.log.1.gz app.log.2.gz",
        ),
        LONG.replace(" ", "·") + "a b",
        ALL,
    ),
    Way(
        "long, copied and cut under another name",
        (f"printf '{LONG}' > app.log", "cp app.log apple; : > app.log; echo a > app.log"),
        LONG.replace(" ", "·") + "a",
        ALL,
    ),
    Way(
        "csv, renamed",
        ("printf 'value\na\n' > app.log", "mv app.log app.log.1; printf 'value\nb\n' > app.log", "echo c >> app.log"),
        "a b c",
        options={"format": "csv"},
    ),
    Way(
        "csv, copied and cut",
        ("printf 'value\na\n' > app.log", "cp app.log app.log.1; printf 'value\nb\nc\n' > app.log"),
        "a b c",
        options={"format": "csv"},
    ),
    Way(
        "csv, compressed with more in it",
        ("printf 'value\na\n' > app.log", "echo b >> app.log; gzip app.log; printf 'value\nc\n' > app.log"),
        "a b c",
        ALL,
        {"format": "csv"},
    ),
    Way(
        "on_change: ignore, renamed",
        (
            "printf 'a\nb\nc\n' > app.log",
            "mv app.log app.log.1; printf 'd\ne\n' > app.log",
            "printf 'f\ng\nh\n' >> app.log",
        ),
        "a b c d e f g h",
        options={"on_change": "ignore"},
    ),
    Way(
        "on_change: ignore, copied and cut",
        ("printf 'a\nb\nc\n' > app.log", "cp app.log app.log.1; echo d > app.log", "printf 'e\nf\n' >> app.log"),
        "a b c d e f",
        options={"on_change": "ignore"},
    ),
]


def source_of(folder: Path, path: str = LIVE, **options: Any) -> FilesSource:
    given = {"path": path, "format": "text", "growing": True, "settle": 0.0, **options}
    source = open_source("files", ConnectorContext("in", folder, given, parse_schema("value STRING")))
    assert isinstance(source, FilesSource)
    return source


def do(folder: Path, script: str) -> None:
    subprocess.run(["/bin/sh", "-ec", script], cwd=folder, check=True)


def lines(source: FilesSource, streams: Sequence[SourceStream]) -> list[str]:
    """What the streams hold, through JSON and pickle as between driver and executor."""
    source = pickle.loads(pickle.dumps(source))
    decoder = source.decoder()
    found: list[str] = []
    for stream in streams:
        if not stream.skipped:
            for block in source.read(logged(stream)):
                rows = decoder.rows(block)
                assert rows.bad == []
                found += [row["value"] for row in rows.rows]
    return found


def logged(stream: SourceStream) -> SourceStream:
    return SourceStream.from_json(json.loads(json.dumps(stream.as_json())))


def all_there_is(reader: FilesReader) -> list[list[SourceStream]]:
    entries = []
    while entry := reader.split(BatchLimits()):
        entries.append(entry)
    return entries


HOW = ("one reader", "a new reader at each look", "read one step later", "one file at a time", "inodes that change")
CASES = [
    pytest.param(way, how, id=f"{way.name}, {how}")
    for way in WAYS
    for how in HOW
    # of some ways what was taken is gone one step later; the source says so
    if (way.late or how != "read one step later")
    and all(shutil.which(tool) and compression_of(f"a{suffix}", "auto") != "none" for tool, suffix in TOOLS.items() if tool in way.name)
]


@pytest.mark.parametrize(("way", "how"), CASES)
def test_each_line_comes_once(tmp_path: Path, way: Way, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    source = source_of(tmp_path, way.path, **way.options)
    reader: FilesReader | None = None
    log: list[list[SourceStream]] = []
    found: list[str] = []
    waiting: list[SourceStream] = []
    lost: list[str] = []
    for number, script in enumerate(way.steps):
        do(folder, script)
        if how == "inodes that change":
            monkeypatch.setattr(
                FileStatus, "of", lambda found, at=number: FileStatus(at, found.st_ino + at, found.st_size, found.st_mtime_ns)
            )
        if waiting:
            found += lines(source, waiting)
            waiting = []
        if reader is None or how == "a new reader at each look":
            reader = source.reader()
            reader.restore([[logged(stream) for stream in entry] for entry in log])
        limits = BatchLimits(max_files=1) if how == "one file at a time" else BatchLimits()
        while entry := reader.split(limits, final=how == "a new reader at each look"):
            log.append(entry)
            lost += [stream.lost for stream in entry if stream.lost]
            if how == "read one step later":
                waiting += entry
            else:
                found += lines(source, entry)
    found += lines(source, waiting)
    assert Counter(found) == Counter(line.replace("·", " ") for line in way.lines.split())
    assert lost == []
    assert [stream.again for entry in log for stream in entry if stream.again] == [], "a rotation is no edit"
    labels = [stream.label for entry in log for stream in entry if not stream.skipped]
    assert len(labels) == len(set(labels)), "names of rows are made of the labels"


def looked(source: FilesSource, *looks: Sequence[Sequence[SourceStream]], final: bool = True) -> tuple[list[str], list[list[SourceStream]]]:
    """What a new reader that knows of earlier looks finds: its lines, and its entries."""
    reader = source.reader()
    reader.restore([[logged(stream) for stream in entry] for entries in looks for entry in entries])
    entries = []
    while entry := reader.split(BatchLimits(), final=final):
        entries.append(entry)
    return [line for entry in entries for line in lines(source, entry)], entries


def old(stream: SourceStream) -> SourceStream:
    """As a version that knew no traces has logged it."""
    return replace(stream, place={**stream.place, "pieces": [piece[:7] for piece in stream.place["pieces"]]})


def test_a_file_that_is_copied_over_is_not_read_before_it_is_clear_what_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    path = folder / "app.log"
    path.write_text("a\nb\nc\n")
    source = source_of(tmp_path, settle=60.0)
    reader = source.reader()
    assert lines(source, reader.split(BatchLimits())) == ["a", "b", "c"]
    with path.open("w") as file:  # as `cp` does: cut, and written from the start
        for part in ("a\n", "b\nc\n"):
            file.write(part)
            file.flush()
            assert reader.split(BatchLimits()) == []
        file.write("d\n")
    assert lines(source, reader.split(BatchLimits())) == ["d"]


def test_a_last_look_waits_until_it_is_clear(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    path = folder / "app.log"
    path.write_text("start\na\n")
    source = source_of(tmp_path, settle=0.3)
    found, before = looked(source)
    assert found == ["start", "a"]
    path.write_text("start\n")
    reader = source.reader()
    reader.restore(before)
    assert lines(source, reader.split(BatchLimits(), final=True)) == ["start"]
    assert time.time() - path.stat().st_mtime >= 0.3
    assert "app.log was rewritten: 8 of its bytes were read, and now it has 6" in reader.notices()[0]


@pytest.mark.parametrize("on_change", ["stop", "ignore"])
def test_a_long_file_that_is_cut_in_its_midst_is_told(tmp_path: Path, on_change: str) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    path = folder / "app.log"
    path.write_text(LONG)
    source = source_of(tmp_path, on_change=on_change)
    _, before = looked(source)
    os.truncate(path, 6000)
    reader = source.reader()
    reader.restore(before)
    if on_change == "stop":
        with pytest.raises(SourceError, match=r"12,000 bytes of it were read, then it was truncated to 6,000 bytes"):
            reader.split(BatchLimits(), final=True)
        return
    assert reader.split(BatchLimits()) == []
    assert "it is not read until it is longer" in reader.notices()[0]
    with path.open("a") as file:
        file.write(LONG[6000:] + "more\n")
    assert lines(source, reader.split(BatchLimits())) == ["more"]


def test_what_is_lost_is_told_once_and_logged(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    source = source_of(tmp_path, ALL)
    do(folder, "printf 'a\nhalf' > app.log")
    _, first = looked(source)
    do(folder, "rm app.log; echo b > app.log.new; mv app.log.new app.log")
    found, second = looked(source, first)
    assert found == ["b"]
    (lost,) = [stream for entry in second for stream in entry if stream.lost]
    assert "app.log was replaced or deleted while 4 of its 6 bytes were unread" in lost.lost
    assert lost.skipped
    assert looked(source, first, second) == ([], [])


def packed(text: str, folder: Path) -> None:
    (folder / "app.log.gz").write_bytes(gzip.compress(text.encode()))


def exchanged(text: str, folder: Path) -> None:
    (folder / "_new").write_text(text)
    (folder / "_new").replace(folder / "app.log")


WRITES = {
    "compressed": packed,
    "in place": lambda text, folder: (folder / "app.log").write_text(text),
    "by an editor": exchanged,
}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("path", ["log/app*", "log"])
def test_a_file_that_is_edited_is_read_again_and_that_is_said(tmp_path: Path, how: str, path: str) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    source = source_of(tmp_path, path)
    write = WRITES[how]
    write(LONG, folder)
    _, first = looked(source)
    write(LONG.replace("00100 a", "00100 b") + "more\n", folder)
    entries = first
    if how != "compressed":  # the edit of a middle line of a plain file is not seen; that of a line near its start is
        assert looked(source, entries)[0] == ["more"]
        write(LONG.replace("00010 a", "00010 b") + "more\n", folder)
    found, second = looked(source, entries)
    assert len(found) == 201
    (again,) = [stream for entry in second for stream in entry if stream.again]
    assert again.skipped
    assert again.again.startswith(str(folder / "app.log"))
    assert looked(source, entries, second) == ([], [])
    write(LONG.replace("00010 a", "00010 c") + "more\n", folder)
    _, third = looked(source, entries, second)
    (once_more,) = [stream for entry in third for stream in entry if stream.again]
    assert once_more.label != again.label


def test_a_file_that_begins_otherwise_is_said_to_be_written_anew(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    source = source_of(tmp_path)
    (folder / "app.log").write_text(LONG)
    reader = source.reader()
    reader.split(BatchLimits())
    (folder / "app.log").write_text(LONG.replace("00000 a", "00000 b"))
    (stream,) = reader.split(BatchLimits())
    assert not stream.again
    assert any("app.log was rewritten" in notice for notice in reader.notices())


def test_a_log_that_is_deleted_and_made_anew_is_no_edit(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    source = source_of(tmp_path)
    (folder / "app.log").write_text(LONG)
    _, first = looked(source)
    exchanged(LONG.replace(" a line", " another line"), folder)
    found, second = looked(source, first)
    assert len(found) == 200
    assert [stream for entry in second for stream in entry if stream.again] == []


def test_a_log_without_traces_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    source = source_of(tmp_path)
    do(folder, "echo a > app.log")
    first = [[old(stream) for stream in entry] for entry in looked(source)[1]]
    assert looked(source, first) == ([], [])
    assert lines(source, first[0]) == ["a"]
    do(folder, "echo b >> app.log")
    found, second = looked(source, first)
    assert found == ["b"]
    do(folder, "echo c >> app.log; mv app.log app.log.1; echo d > app.log")
    assert looked(source, first)[0] == ["b", "c", "d"]
    assert looked(source, first, second)[0] == ["c", "d"]
    assert lines(source, first[0]) == ["a"]  # by its inode
    do(folder, ": > app.log; echo e > app.log")
    assert looked(source, first, second)[0] == ["c", "e"]


def test_a_log_without_traces_is_known_when_it_comes_back_compressed(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    source = source_of(tmp_path, ALL)
    do(folder, "echo a > app.log; echo other > app-other.log")
    first = [[old(stream) for stream in entry] for entry in looked(source)[1]]
    do(folder, "echo b >> app-other.log")
    found, second = looked(source, first)  # which notes how the others begin
    assert found == ["b"]
    do(folder, "echo c >> app.log; gzip app.log")
    assert looked(source, first, second)[0] == ["c"]


def test_a_first_line_that_is_half_written_when_its_file_is_renamed_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    source = source_of(tmp_path)
    do(folder, "printf half > app.log")
    reader = source.reader()
    assert reader.split(BatchLimits()) == []
    do(folder, "mv app.log app.log.1; echo b > app.log; echo ' and half' >> app.log.1")
    assert sorted(line for entry in all_there_is(reader) for line in lines(source, entry)) == ["b", "half and half"]


def test_a_known_file_that_comes_back_compressed_and_cut_off_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    path = folder / "app.log"
    path.write_text(LONG)
    source = source_of(tmp_path, ALL)
    _, first = looked(source)
    packed = gzip.compress("".join([LONG, *(f"{random.random()}\n" for _ in range(20_000))]).encode())
    path.unlink()
    (folder / "app.log.1.gz").write_bytes(packed[:-20_000])
    reader = source.reader()
    reader.restore([[logged(stream) for stream in entry] for entry in first])
    assert len(lines(source, reader.split(BatchLimits(), final=True))) > 1000
    assert any("app.log.1.gz: the gzip file is truncated" in notice for notice in reader.notices())


def test_it_is_asked_for_contents_whether_a_file_can_be_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    source = source_of(tmp_path)
    do(folder, "echo a > app.log")
    _, [(stream,)] = looked(source)
    assert source.gone(stream) == ""
    do(folder, "mv app.log app.log.1; gzip app.log.1; echo b > app.log")
    assert source.gone(stream) == ""
    do(folder, "rm app.log.1.gz")
    assert source.gone(stream) == "app.log"


@pytest.mark.parametrize("on_change", ["stop", "ignore"])
def test_an_exchanged_file_that_was_logged_without_a_trace_stops_the_source(tmp_path: Path, on_change: str) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    source = source_of(tmp_path, on_change=on_change)
    do(folder, "echo a > app.log")
    first = [[old(stream) for stream in entry] for entry in looked(source)[1]]
    do(folder, "echo b > new; echo c >> new; mv new app.log")
    if on_change == "stop":
        with pytest.raises(SourceError, match="2 bytes of it were read, then another file took its name"):
            looked(source, first)
    else:
        assert looked(source, first)[0] == ["b", "c"]


def test_a_single_file_may_be_away_while_it_is_rotated_but_not_from_the_start(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    with pytest.raises(SourceError, match=r"app\.log does not exist"):
        looked(source_of(tmp_path))
    do(folder, "echo a > app.log")
    _, first = looked(source_of(tmp_path))
    do(folder, "echo b >> app.log; mv app.log app.log.1")
    source = source_of(tmp_path)
    found, second = looked(source, first)
    assert found == ["b"]
    do(folder, "echo c > app.log")
    assert looked(source, first, second)[0] == ["c"]


def test_a_file_that_is_being_compressed_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    path = folder / "app.log.1"
    path.write_text(LONG)
    source = source_of(tmp_path, ALL)
    _, first = looked(source)
    whole = gzip.compress(LONG.encode() + b"more\n")
    for part in (0, 10, len(whole) // 2, len(whole) - 1):
        (folder / "app.log.1.gz").write_bytes(whole[:part])
        assert looked(source, first) == ([], []), part
    (folder / "app.log.1.gz").write_bytes(whole)
    with path.open("a") as file:
        file.write("more\n")
    found, second = looked(source, first)
    assert found == ["more"]
    path.unlink()
    assert looked(source, first, second) == ([], [])


@pytest.mark.parametrize("format", ["text", "csv"])
def test_ranges_of_a_file_that_was_compressed_before_it_was_read_are_read(tmp_path: Path, format: str) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    rows = [f"{n:05} {'x' * (n % 90)}" for n in range(6000)]
    (folder / "app.log").write_text("value\n" + "\n".join(rows) + "\n")
    source = source_of(tmp_path, ALL, split=65536, format=format)
    streams = source.reader().split(BatchLimits(), final=True)
    assert (len(streams) > 3) == (format == "text")
    do(folder, "mv app.log app.log.1; gzip app.log.1; echo other > app.log")
    assert lines(source, streams) == (["value"] if format == "text" else []) + rows


def test_a_look_reads_a_few_kib_of_what_changed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    for n in range(20):
        with (folder / f"app{n}.log").open("wb") as file:
            file.write(b"%d\n" % n)
            file.seek(10**9)
            file.write(b"\n")
        os.utime(folder / f"app{n}.log", (1, 1))
    source = source_of(tmp_path, ALL)
    read: list[int] = []

    def pread(descriptor: int, size: int, at: int) -> bytes:
        data = os_pread(descriptor, size, at)
        read.append(len(data))
        return data

    os_pread = os.pread
    monkeypatch.setattr(os, "pread", pread)
    reader = source.reader()
    assert reader.split(BatchLimits())
    assert sum(read) <= 20 * 8192
    read.clear()
    assert reader.split(BatchLimits()) == []
    assert read == []
    do(folder, "echo a >> app0.log; mv app1.log app1.log.1")
    assert reader.split(BatchLimits())
    assert sum(read) <= 4 * 8192


@pytest.mark.parametrize(
    ("one", "other", "are"),
    [
        ("app.log", "app.log.1", True),
        ("app.log.1", "app.log.2.gz", True),
        ("app.log", "app-2026-03-02.log", True),
        ("access.log", "access.log-20260302.bz2", True),
        ("app.log", "app.1.log", True),
        ("app.log", "app.log.bak", True),
        ("host1.log", "host2.log", False),
        ("app.log", "apple.log", False),
        ("part-1.csv", "part-10.csv", False),
    ],
)
def test_names_that_a_rotation_gives(one: str, other: str, are: bool) -> None:
    assert related(one, other) is related(other, one) is are


def test_names_that_a_file_had_before() -> None:
    turns = ("app.log.1", "app.log-20260302", "app-2026-03-02.log", "app.1.log.gz", "app.log.2026-03-02_10")
    assert all(is_turn_of(name, "app.log") for name in turns)
    assert not any(is_turn_of(name, "app.log") for name in ("app.log", "app.log.err", "apple.1.log", "app.logs", "app2.log"))


def test_marks_tell_contents_apart_and_go_through_json(tmp_path: Path) -> None:
    for end in (1, 63, 64, 65, 4095, 4096, 4097, 12000):
        (tmp_path / "one").write_bytes(LONG.encode())
        descriptor = os.open(tmp_path / "one", os.O_RDONLY)
        file = OpenFile(descriptor)
        mark = file.mark(end)
        assert mark is not None
        assert ContentMark.from_json(json.loads(json.dumps(mark.as_json()))) == mark
        assert file.holds(mark)
        assert scan([LONG.encode()[at : at + 100] for at in range(0, len(LONG), 100)], [mark]).holds == (mark,)
        os.close(descriptor)
        for at in {0, end - 1}:
            (tmp_path / "one").write_bytes(LONG.encode()[:at] + b"!" + LONG.encode()[at + 1 :])
            descriptor = os.open(tmp_path / "one", os.O_RDONLY)
            assert not OpenFile(descriptor).holds(mark)
            os.close(descriptor)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_lines_looks_and_rotations(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    folder = tmp_path / "log"
    folder.mkdir()
    live = folder / "app.log"
    one_name = chance.random() < 0.5
    source = source_of(tmp_path, LIVE if one_name else ALL)
    banner = chance.choice(["", "start\n", "start " * 20 + "\n"])
    written, found = Counter[str](), Counter[str]()
    log: list[list[SourceStream]] = []
    reader = source.reader() if not one_name else None

    def write(path: Path, text: str, mode: str = "a") -> None:
        with path.open(mode) as file:
            file.write(text)
        written.update(text.splitlines())

    def lines_of(count: int) -> str:
        return "".join(f"{written.total() + n} {'x' * chance.choice([0, 3, 200])}\n" for n in range(count))

    def look() -> None:
        nonlocal reader
        if reader is None or chance.random() < 0.4:
            reader = source.reader()
            reader.restore([[logged(stream) for stream in entry] for entry in log])
        limits = BatchLimits(max_files=1 if chance.random() < 0.3 else None)
        while entry := reader.split(limits, final=chance.random() < 0.5):
            log.append(entry)
            found.update(lines(source, entry))
            assert not [stream.lost for stream in entry if stream.lost]

    write(live, banner + lines_of(1), "w")
    look()
    for _ in range(chance.randrange(5, 25)):
        numbered = sorted(folder.glob("app.log.*"), key=lambda path: -int(path.name.split(".")[2]))
        match chance.choice(["write", "write", "look", "rename", "copy and cut", "compress"]):
            case "write":
                write(live, lines_of(chance.choice([1, 3, 60])))
            case "look":
                look()
            case "compress" if plain := [path for path in numbered if path.suffix != ".gz"]:
                do(folder, f"gzip {chance.choice(plain).name}")
            case "rename" | "copy and cut" as how:
                if one_name:  # else another rotation may take what was never seen
                    look()
                write(live, lines_of(chance.choice([1, 2])))
                for path in numbered:
                    name, number, *suffix = path.name.rsplit(".", 1 if path.suffix != ".gz" else 2)
                    path.rename(folder / ".".join([name, str(int(number) + 1), *suffix]))
                if how == "rename":
                    live.rename(folder / "app.log.1")
                else:
                    shutil.copyfile(live, folder / "app.log.1")
                write(live, banner + lines_of(1), "w")
    look()
    look()
    assert found == written
