"""The files source: what it finds, when it takes it, and that each record is handed out once."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import pickle
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.manual_clock import ManualClock
from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import BatchLimits, ConnectorContext, SourceStream
from scribengin.connectors.files import reader as files_reader
from scribengin.connectors.files.pieces import without_file
from scribengin.connectors.files.source import FilesSource
from scribengin.connectors.files.splitting import read_compressed
from scribengin.core import zstd
from scribengin.core.errors import SourceError
from scribengin.core.types import Schema, parse_schema
from tests.looking import calls_in, look_until

ID = parse_schema("id BIGINT")


def source_of(folder: Path, path: str = "data", schema: Schema | None = ID, **options: Any) -> FilesSource:
    source = open_source("files", ConnectorContext("in", folder, {"path": path, "format": "json", **options}, schema))
    assert isinstance(source, FilesSource)
    return source


def write(path: Path, ids: range | list[int], *, end: bytes = b"\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(b'{"id":%d}' % n for n in ids) + end)


def ids(source: FilesSource, streams: list[SourceStream]) -> list[int]:
    """What the streams hold, through JSON and pickle as between driver and executor."""
    source = pickle.loads(pickle.dumps(source))
    decoder = source.decoder()
    found: list[int] = []
    for stream in streams:
        again = SourceStream.from_json(json.loads(json.dumps(stream.as_json())))
        for block in source.read(again):
            rows = decoder.rows(block)
            assert rows.bad == []
            found += [row["id"] for row in rows.rows]
    return found


def paths(source: FilesSource, streams: list[SourceStream]) -> list[str]:
    return sorted({piece[0] for stream in streams for piece in stream.place["pieces"]})


def test_files_of_a_folder_are_taken_once_and_in_path_order(tmp_path: Path) -> None:
    write(tmp_path / "data/b.jsonl", range(2, 4))
    write(tmp_path / "data/a.jsonl", range(2))
    source = source_of(tmp_path)
    reader = source.reader()
    assert ids(source, reader.split(BatchLimits(), final=True)) == [0, 1, 2, 3]
    assert reader.split(BatchLimits(), final=True) == []
    write(tmp_path / "data/0.jsonl", [9])
    assert ids(source, reader.split(BatchLimits(), final=True)) == [9]


def test_a_restored_reader_goes_on_where_the_log_ends(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / f"data/{name}.jsonl", [ord(name)])
    first = source_of(tmp_path).reader()
    entries = [first.split(BatchLimits(max_files=1), final=True) for _ in range(2)]
    source = source_of(tmp_path)
    reader = source.reader()
    reader.restore(entries)
    assert ids(source, reader.split(BatchLimits(), final=True)) == [ord("c")]


def test_a_path_that_is_written_another_way_means_the_same_files(tmp_path: Path) -> None:
    write(tmp_path / "data/a.jsonl", [1])
    entries = [source_of(tmp_path, "data").reader().split(BatchLimits(), final=True)]
    for other in ("data/*.jsonl", "**/*.jsonl", "data/a.jsonl", "d*/a.jsonl"):
        reader = source_of(tmp_path, other).reader()
        reader.restore(entries)
        assert reader.split(BatchLimits(), final=True) == [], other


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("data", ["a.jsonl", "b.txt"]),
        ("data/a.jsonl", ["a.jsonl"]),
        ("data/*.jsonl", ["a.jsonl"]),
        ("data/**/*.jsonl", ["a.jsonl", "x/c.jsonl", "x/y/d.jsonl"]),
        ("data/**", ["a.jsonl", "b.txt", "x/c.jsonl", "x/y/d.jsonl"]),
        ("data/*/*.jsonl", ["x/c.jsonl"]),
        ("data/[ab].*", ["a.jsonl", "b.txt"]),
        ("data/x/**/d.jsonl", ["y/d.jsonl"]),
        ("data/nothing*", []),
    ],
)
def test_globs(tmp_path: Path, path: str, found: list[str]) -> None:
    for name in ("a.jsonl", "b.txt", "x/c.jsonl", "x/y/d.jsonl", "_x/e.jsonl", ".x/f.jsonl", "x/_g.jsonl", ".h.jsonl", "_SUCCESS"):
        write(tmp_path / "data" / name, [1])
    source = source_of(tmp_path, path)
    assert paths(source, source.reader().split(BatchLimits(), final=True)) == found


def test_what_is_passed_over_is_said_once(tmp_path: Path) -> None:
    for name in ("a.jsonl", "_SUCCESS", ".tmp", "sub/b.jsonl", "_scribengin/readers/a.json"):
        write(tmp_path / "data" / name, [1])
    reader = source_of(tmp_path).reader()
    reader.split(BatchLimits())
    notices = reader.notices()
    assert len(notices) == 2
    assert notices[0].startswith(".tmp, _SUCCESS in "), "what a sink of ours keeps there is none of it"
    assert "**/*" in notices[1]
    reader.split(BatchLimits())
    assert reader.notices() == []


def test_limits_take_at_least_one_file(tmp_path: Path) -> None:
    for n in range(5):
        write(tmp_path / f"data/{n}.jsonl", [n])
    source = source_of(tmp_path, max_bytes=1)
    reader = source.reader()
    assert [ids(source, reader.split(BatchLimits(), final=True)) for _ in range(6)] == [[0], [1], [2], [3], [4], []]
    source = source_of(tmp_path, max_files=2)
    reader = source.reader()
    assert [ids(source, reader.split(BatchLimits(max_files=3), final=True)) for _ in range(3)] == [[0, 1], [2, 3], [4]]
    assert ids(source, source_of(tmp_path).reader().split(BatchLimits(max_bytes=20), final=True)) == [0, 1]


def test_a_file_is_taken_when_it_has_been_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data/a.jsonl"
    write(path, [1])
    clock = ManualClock()
    monkeypatch.setattr(files_reader, "time", SimpleNamespace(time=clock, monotonic=clock))
    os.utime(path, (clock(), clock()))
    reader = source_of(tmp_path, settle=0.2).reader()
    for _ in range(2):
        assert reader.split(BatchLimits()) == []
        assert reader.backlog().files == 1
        clock.advance(seconds=0.09)
    clock.advance(seconds=0.1)
    (stream,) = reader.split(BatchLimits())
    assert stream.files == 1


def test_a_file_from_a_clock_that_is_ahead_is_taken_too(tmp_path: Path) -> None:
    path = tmp_path / "data/a.jsonl"
    write(path, [1])
    os.utime(path, (time.time() + 3600, time.time() + 3600))
    reader = source_of(tmp_path, settle=0.05).reader()
    look_until(lambda: reader.split(BatchLimits()), "the file is taken", 60, 0.001)


def test_an_old_file_and_a_last_look_do_not_wait(tmp_path: Path) -> None:
    write(tmp_path / "data/new.jsonl", [1])
    write(tmp_path / "data/old.jsonl", [2])
    os.utime(tmp_path / "data/old.jsonl", (1, 1))
    source = source_of(tmp_path, settle=60.0)
    reader = source.reader()
    assert ids(source, reader.split(BatchLimits())) == [2]
    assert ids(source, reader.split(BatchLimits(), final=True)) == [1]


def test_an_empty_file_is_nothing_until_it_has_something(tmp_path: Path) -> None:
    path = tmp_path / "data/a.jsonl"
    write(path, [], end=b"")
    source = source_of(tmp_path)
    reader = source.reader()
    assert reader.split(BatchLimits(), final=True) == []
    assert reader.backlog().files == 0
    write(path, [1])
    assert ids(source, reader.split(BatchLimits(), final=True)) == [1]


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 9), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_every_line_belongs_to_exactly_one_range(sizes: list[int], count: int, end: bytes, ended: bool) -> None:
    from tempfile import TemporaryDirectory

    from scribengin.connectors.files.pieces import FilePiece, cut, streams_of

    with TemporaryDirectory() as folder:
        lines = [b'{"id":%d,"pad":"%s"}' % (n, b"x" * size) for n, size in enumerate(sizes)]
        data = end.join(lines) + (end if ended else b"")
        path = Path(folder) / "a.jsonl"
        path.write_bytes(data)
        if not data:
            return
        status = path.stat()
        whole = FilePiece("a.jsonl", status.st_size, status.st_mtime_ns, status.st_ino, 0, len(data), len(data))
        streams = streams_of(cut(whole, max(1, len(data) // count)), root="", stream_bytes=1)
        assert ids(source_of(Path(folder), "a.jsonl"), streams) == list(range(len(sizes)))


def test_ranges_know_their_line_numbers(tmp_path: Path) -> None:
    rng = random.Random(1)
    lines = [json.dumps({"id": n, "pad": "x" * rng.randrange(2000)}) for n in range(400)]
    lines[77] = lines[300] = "bad"
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    source = source_of(tmp_path, "a.jsonl", split=65536)
    streams = source.reader().split(BatchLimits(), final=True)
    assert len(streams) > 3
    decoder = source.decoder()
    blocks = [(block, bad) for stream in streams for block in source.read(stream) for bad in decoder.rows(block).bad]
    assert [block.place(bad.ordinal).line for block, bad in blocks] == [78, 301]
    assert [block.place(bad.ordinal).offset for block, bad in blocks] == [sum(len(line) + 1 for line in lines[:n]) for n in (77, 300)]


def test_ten_thousand_tiny_files_make_a_few_tasks(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for n in range(10_000):
        (tmp_path / f"data/{n:05}.jsonl").write_bytes(b'{"id":%d}' % n)
    source = source_of(tmp_path)
    reader = source.reader()
    streams = reader.split(BatchLimits(), final=True)
    assert len(streams) == 10
    assert sum(stream.files for stream in streams) == 10_000
    assert ids(source, streams) == list(range(10_000))
    os.utime(tmp_path / "data", (1, 1))
    reader.split(BatchLimits())
    assert calls_in(lambda: reader.split(BatchLimits())) < 25_000, "a look asks little more of each file than its name"
    assert reader.split(BatchLimits()) == []


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".zst", zstd.compress)])
def test_compressed_files_of_several_members_are_read(tmp_path: Path, suffix: str, pack: Any) -> None:
    (tmp_path / "data").mkdir()
    members = [pack(b"".join(b'{"id":%d}\n' % n for n in range(start, start + 1000))) for start in (0, 1000)]
    (tmp_path / f"data/a.jsonl{suffix}").write_bytes(b"".join(members) + (b"\0" * 100 if suffix == ".gz" else b""))
    source = source_of(tmp_path)
    streams = source.reader().split(BatchLimits(), final=True)
    assert ids(source, streams) == list(range(2000))


@pytest.mark.parametrize("sizes", [(300_000, 300_000), (1, 300_000, 1), (600_000,), (3,) * 200, (0, 5, 0, 150_000)])
@pytest.mark.parametrize(("kind", "pack"), [("gzip", gzip.compress), ("zstd", zstd.compress), ("bzip2", bz2.compress)])
def test_members_of_any_size_are_read_whole(kind: str, pack: Any, sizes: tuple[int, ...]) -> None:
    chance = random.Random(1)
    members = [chance.randbytes(size // 2).hex().encode() for size in sizes]
    found = list(read_compressed(io.BytesIO(b"".join(map(pack, members)) + bytes(1000) * (kind == "gzip")), kind))
    assert [each for each in found if not isinstance(each, bytes)] == []
    assert b"".join(each for each in found if isinstance(each, bytes)) == b"".join(members)


def test_compression_can_be_told(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.bin").write_bytes(gzip.compress(b'{"id":1}\n'))
    source = source_of(tmp_path, compression="gzip")
    assert ids(source, source.reader().split(BatchLimits(), final=True)) == [1]


def test_a_growing_file_is_read_on_from_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "data/a.log"
    write(path, [1, 2])
    source = source_of(tmp_path, growing=True)
    reader = source.reader()
    entries = [reader.split(BatchLimits())]
    assert ids(source, entries[0]) == [1, 2]
    with path.open("ab") as file:
        file.write(b'{"id":3}\n{"id":')
        file.flush()
        entries.append(reader.split(BatchLimits()))
        assert ids(source, entries[1]) == [3]
        assert reader.split(BatchLimits(), final=True) == []
        file.write(b"4}\n")
    later = source_of(tmp_path, growing=True).reader()
    later.restore(entries)
    for each in (reader, later):
        assert ids(source, each.split(BatchLimits())) == [4]
    assert ids(source, entries[0] + entries[1]) == [1, 2, 3]  # and is read again as it was


def test_what_was_taken_of_a_growing_file_and_is_nowhere_any_more_is_told(tmp_path: Path) -> None:
    path = tmp_path / "data/a.log"
    source = source_of(tmp_path, growing=True)
    for change in ("cut", "exchanged", "gone"):
        write(path, range(100))
        streams = source.reader().split(BatchLimits())
        if change == "cut":
            os.truncate(path, 10)
        elif change == "exchanged":
            write(path.with_name("_new"), range(200, 400))
            path.with_name("_new").replace(path)
        else:
            path.unlink()
        with pytest.raises(SourceError, match="is missing; it had" if change == "gone" else "changed after it was assigned"):
            ids(source, streams)


def test_csv_reads_quoted_line_ends_and_columns_by_name(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    text = '\ufeffname,extra,id\r\n"a\nb",x,1\r\n,y,2\r\n"",z,3'
    (tmp_path / "data/a.csv").write_bytes(text.encode())
    (tmp_path / "data/b.csv.gz").write_bytes(gzip.compress(text.encode()))
    source = source_of(tmp_path, schema=parse_schema("id BIGINT, name STRING, none INT"), format="csv")
    decoder = source.decoder()
    for stream in source.reader().split(BatchLimits(), final=True):
        found = [(block, block_rows) for block in source.read(stream) if (block_rows := decoder.rows(block))]
        assert [row for _, rows in found for row in rows.rows] == [
            {"id": 1, "name": "a\nb", "none": None}, {"id": 2, "name": None, "none": None}, {"id": 3, "name": "", "none": None}
        ] * 2  # fmt: skip
        assert [block.place(n).line for block, rows in found for n in rows.ordinals] == [2, 4, 5] * 2


def test_a_growing_csv_keeps_its_header_and_its_records_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,name\n1,"x\ny"\n2,"half\n')
    source = source_of(tmp_path, "a.csv", schema=parse_schema("id BIGINT, name STRING"), format="csv", growing=True)
    reader = source.reader()
    assert ids(source, reader.split(BatchLimits())) == [1]
    with path.open("ab") as file:
        file.write(b'"\n3,z\n')
    assert ids(source, reader.split(BatchLimits())) == [2, 3]


def test_text_is_one_column_of_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\n\nthree")
    source = source_of(tmp_path, "a.txt", schema=None, format="text")
    assert str(source.resolve_schema()) == "value STRING NOT NULL"
    decoder = source.decoder()
    rows = [
        row
        for stream in source.reader().split(BatchLimits(), final=True)
        for block in source.read(stream)
        for row in decoder.rows(block).rows
    ]
    assert rows == [{"value": "one"}, {"value": ""}, {"value": "three"}]


def test_parquet_row_groups_are_split_and_rows_know_their_number(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    table = pa.table({"id": pa.array(range(50_000), pa.int32()), "other": [str(random.Random(n).random()) for n in range(50_000)]})
    pq.write_table(table, tmp_path / "data/a.parquet", row_group_size=10_000, compression="none")
    source = source_of(tmp_path, schema=parse_schema("id BIGINT, gone STRING"), format="parquet", split=300_000)
    streams = source.reader().split(BatchLimits(), final=True)
    assert len(streams) > 2
    assert ids(source, streams) == list(range(50_000))
    last = list(source.read(streams[-1]))[-1]
    assert last.place(len(last) - 1).row == 49_999


def test_parquet_says_its_columns_itself(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    source = source_of(tmp_path, schema=None, format="parquet")
    with pytest.raises(SourceError, match="holds no Parquet file yet"):
        source.resolve_schema()
    pq.write_table(pa.table({"id": [1], "at": pa.array([0], pa.timestamp("ms"))}), tmp_path / "data/a.parquet")
    assert str(source.resolve_schema()) == "id BIGINT, at TIMESTAMP"
    assert ids(source, source.reader().split(BatchLimits(), final=True)) == [1]


def test_json_without_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match='source "in" reads json and declares no columns'):
        source_of(tmp_path, schema=None).decoder()


def test_a_skipped_file_leaves_the_stream(tmp_path: Path) -> None:
    for n in range(3):
        write(tmp_path / f"data/{n}.jsonl", [n])
    source = source_of(tmp_path)
    (stream,) = source.reader().split(BatchLimits(), final=True)
    left = without_file(stream, "1.jsonl")
    assert left is not None
    assert ids(source, [left]) == [0, 2]
    assert (left.files, left.bytes) == (2, 18)


def test_backlog_tells_what_waits(tmp_path: Path) -> None:
    for n in range(3):
        write(tmp_path / f"data/{n}.jsonl", [n])
        os.utime(tmp_path / f"data/{n}.jsonl", (time.time() - 100, time.time() - 100))
    reader = source_of(tmp_path).reader()
    reader.split(BatchLimits(max_files=1), final=True)
    backlog = reader.backlog()
    assert (backlog.files, backlog.bytes) == (2, 18)
    assert backlog.oldest_s == pytest.approx(100, abs=30)
