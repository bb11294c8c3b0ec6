"""Ways to rotate a log, as a table: a script for the shell between two looks, and what must come out, each line once."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import Limits, Place, SourceStream
from scribengin.connectors.files.bytestreams import compression_of
from scribengin.connectors.files.source import FilesSource
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
    source = open_source("files", Place("in", folder, given, parse_schema("value STRING")))
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


def all_there_is(reader: FilesReader, *, final: bool) -> list[list[SourceStream]]:
    entries = []
    while entry := reader.split(Limits(), final=final):
        entries.append(entry)
        assert len(entries) < 100
    return entries


HOW = ("one reader", "a new reader at each look", "read one step later", "one file at a time")
CASES = [
    pytest.param(way, how, id=f"{way.name}, {how}")
    for way in WAYS
    for how in HOW
    # of some ways what was taken is gone one step later; the source says so
    if (way.late or how != "read one step later")
    and all(shutil.which(tool) and compression_of(f"a{suffix}", "auto") != "none" for tool, suffix in TOOLS.items() if tool in way.name)
]


@pytest.mark.parametrize(("way", "how"), CASES)
def test_each_line_comes_once(tmp_path: Path, way: Way, how: str) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    source = source_of(tmp_path, way.path, **way.options)
    reader: FilesReader | None = None
    log: list[list[SourceStream]] = []
    found: list[str] = []
    waiting: list[SourceStream] = []
    lost: list[str] = []
    for script in way.steps:
        do(folder, script)
        if waiting:
            found += lines(source, waiting)
            waiting = []
        if reader is None or how == "a new reader at each look":
            reader = source.reader()
            reader.restore([[logged(stream) for stream in entry] for entry in log])
        limits = Limits(max_files=1) if how == "one file at a time" else Limits()
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
    labels = [stream.label for entry in log for stream in entry if not stream.skipped]
    assert len(labels) == len(set(labels)), "names of rows are made of the labels"
