"""Bad places in good data: a clear message with the remedy, and no good record lost."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.connectors.files.pieces import pieces_of
from scribengin.connectors.files.splitting import CsvCutter, Cutter, Damage, LineFinder
from scribengin.core import zstd
from scribengin.core.errors import SourceError
from scribengin.core.types import Schema, parse_schema
from scribengin.formats.constants import PAYLOAD_BYTES

if TYPE_CHECKING:
    from scribengin.formats.contract import Bad, RecordPlace

ID = parse_schema("id BIGINT")


def source_of(path: Path, schema: Schema | None = ID, **options: Any) -> Any:
    return open_source("files", ConnectorContext("in", path.parent, {"path": path.name, "format": "json", **options}, schema))


def everything(source: Any) -> tuple[list[int], list[tuple[Bad, RecordPlace, bytes]]]:
    decoder = source.decoder()
    ids: list[int] = []
    bad: list[tuple[Bad, RecordPlace, bytes]] = []
    for stream in source.reader().split(BatchLimits(), final=True):
        for block in source.read(stream):
            rows = decoder.rows(block)
            ids += [row["id"] for row in rows.rows]
            bad += [(each, block.place(each.ordinal), block.payload(each.ordinal)) for each in rows.bad]
            assert len(block) == len(rows.rows) + len(rows.bad) + rows.skipped
    return ids, bad


def lines(count: int) -> bytes:
    return b"".join(b'{"id":%d,"x":"%d"}\n' % (n, random.Random(n).getrandbits(200)) for n in range(count))


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("zst", zstd.compress)])
@pytest.mark.parametrize("share", [0.3, 0.9, 0.9999])
def test_a_truncated_file_gives_its_good_records_and_one_bad(tmp_path: Path, suffix: str, pack: Any, share: float) -> None:
    data = pack(lines(20_000))
    cut = int(len(data) * share)
    path = tmp_path / f"a.jsonl.{suffix}"
    path.write_bytes(data[:cut])
    ids, ((bad, place, _),) = everything(source_of(path))
    assert ids == list(range(len(ids)))
    assert len(ids) >= 20_000 * share - 6000  # zstd blocks are whole or not at all
    assert bad.reason == "truncated"
    assert f"at its byte {cut}" in bad.message
    assert (place.line, place.offset) == (len(ids) + 1, len(lines(len(ids))))


def test_a_gzip_file_that_is_broken_inside_gives_what_stood_before(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(lines(100_000)))
    data[len(data) // 2 : len(data) // 2 + 2000] = bytes(2000)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(data)
    ids, bad = everything(source_of(path))
    assert ids[:1000] == list(range(1000))
    assert bad[-1][0].reason == "corrupt"
    assert "near byte" in bad[-1][0].message


def test_a_gzip_file_with_a_wrong_checksum_says_so(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(lines(100)))
    data[-8] ^= 1
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(data)
    ids, bad = everything(source_of(path))
    assert (ids, [each[0].reason for each in bad]) == (list(range(100)), ["corrupt"])


def test_a_file_that_is_no_gzip_is_one_bad(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b'{"id":1}\n')
    ids, bad = everything(source_of(path))
    assert (ids, [each[0].reason for each in bad]) == ([], ["wrong-format"])


_READ_LONG = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_files_source_bad_input import everything, source_of
path = Path(sys.argv[2])
everything(source_of(path.with_name("small.jsonl")))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ids, bad = everything(source_of(path))
assert ids == [1, 2], ids
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
unit = 1024 if sys.platform == "linux" else 1 << 20
print(bad[0][0].reason, bad[0][1].line, len(bad), len(bad[0][2]), (after - before) // unit)
"""


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_of_100_mb_is_one_bad_and_takes_little_memory(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / f"a.jsonl{'.gz' if packed else ''}"
    (tmp_path / "small.jsonl").write_bytes(lines(100_000))
    pack = zlib.compressobj(1, wbits=31)
    with path.open("wb") as file:
        for part in [b'{"id":1}\n{"id":"', *[b"x" * 1_000_000] * 100, b'"}\n{"id":2}\n']:
            file.write(pack.compress(part) if packed else part)
        file.write(pack.flush() if packed else b"")
    here = str(Path(__file__).parent)
    run = subprocess.run([sys.executable, "-c", _READ_LONG, here, str(path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    reason, line, count, payload, grown_mib = run.stdout.split()
    assert (reason, line, count, int(payload)) == ("too-long", "2", "1", PAYLOAD_BYTES)
    assert int(grown_mib) < 70


def test_a_line_that_is_longer_than_its_ranges_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":1}\n{"id":2,"x":"' + b"x" * 1_000_000 + b'"}\n{"id":3}')
    assert everything(source_of(path, split=65536)) == ([1, 2, 3], [])
    ids, ((bad, place, payload),) = everything(source_of(path, split=65536, max_record=100_000))
    assert (ids, bad.reason, place.line, place.offset, len(payload)) == ([1, 3], "too-long", 2, 9, PAYLOAD_BYTES)
    assert "976.6 KiB" in bad.message


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("counted", [True, False])
def test_overlong_lines_are_found_wherever_the_chunks_end(chunk: int, counted: bool) -> None:
    data = b"\xef\xbb\xbfab\n" + b"x" * 10 + b"\n" + b"y" * 11 + b"\nc\n\n" + b"z" * 30 + b"\n" + b"w" * 25
    chunks = [data[at : at + chunk] for at in range(0, len(data), chunk)]
    found = []
    for block in Cutter("f", 10, None if counted else (lambda offset: data[:offset].count(b"\n") + 1)).cut(chunks, 0):
        for ordinal in range(len(block)):
            place = block.place(ordinal)
            found.append((type(block).__name__[0], block.payload(ordinal), place.line, place.offset))
    assert found == [
        ("L", b"ab", 1, 3), ("L", b"x" * 10, 2, 6), ("D", b"y" * 11, 3, 17), ("L", b"c", 4, 29), ("L", b"", 5, 31),
        ("D", b"z" * 30 if chunk > 30 else b"z" * len(found[5][1]), 6, 32), ("D", b"w" * len(found[6][1]), 7, 63),
    ]  # fmt: skip


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("way", ["rows", "structs", "columns"])
def test_the_lines_of_bad_records_are_right_and_no_byte_is_read_twice_for_them(
    tmp_path: Path, parts: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = lines(30_000).splitlines()
    bad = {5, 6, 7_000, 7_001, 12_345, 20_000, 29_999}
    for at in bad:
        whole[at] = b"" if at == 7_000 else b"{nothing"
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(whole))
    source = source_of(tmp_path / "a.jsonl", split=(tmp_path / "a.jsonl").stat().st_size // parts + 1)
    counted: list[int] = []
    count = LineFinder.__call__
    monkeypatch.setattr(LineFinder, "__call__", lambda self, offset: counted.append(offset) or count(self, offset))
    found = []
    for stream in source.reader().split(BatchLimits(), final=True):
        decode = getattr(source.decoder(), way)
        for block in source.read(stream):
            found += [block.place(each.ordinal).line for each in decode(block).bad]
    assert found == sorted(at + 1 for at in bad if at != 7_000)
    assert len(counted) == parts - 1, "once for each part that begins in the midst of the file"


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_a_csv_quote_that_is_never_closed_costs_only_its_line(chunk: int) -> None:
    data = b'1,a\n2,"open\n3,"x\ny"\n4,b\n' + b"5,c\n" * 20
    chunks: list[bytes | Damage] = [data[at : at + chunk] for at in range(0, len(data), chunk)]
    blocks = list(CsvCutter("f", 30).cut(chunks, 0))
    records = [(block.payload(n), block.place(n).line) for block in blocks for n in range(len(block))]
    assert records[:5] == [(b"1,a", 1), (b'2,"open', 2), (b'3,"x\ny"', 3), (b"4,b", 5), (b"5,c", 6)]
    assert len(records) == 24


def test_line_ends_boms_and_nul_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id":1}\r\n\r\n{"id":2}\r\n\x00\r\n{"id":3}\n{"id":\x004}\n{"id":5}')
    ids, bad = everything(source_of(path))
    assert ids == [1, 2, 3, 5]
    assert [(each.reason, place.line, payload) for each, place, payload in bad] == [
        ("malformed", 4, b"\x00"), ("malformed", 6, b'{"id":\x004}')
    ]  # fmt: skip


def test_a_missing_folder_is_told_at_the_start(tmp_path: Path) -> None:
    for path in ("gone", "gone.jsonl", "gone/*.jsonl"):
        with pytest.raises(SourceError, match=r"gone.* does not exist") as caught:
            open_source("files", ConnectorContext("in", tmp_path, {"path": path, "format": "json"}, ID)).reader()
        assert "correct `path`" in caught.value.remedy


_WITHOUT_RIGHTS = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_files_source_bad_input import everything, source_of
from scribengin.core.errors import SourceError
if os.geteuid() == 0:
    everything(source_of(Path(sys.argv[2])))  # loads all modules while they may be read: Python itself may lie in a folder of root's
    os.setegid(65534)
    os.seteuid(65534)
try:
    everything(source_of(Path(sys.argv[2])))
except SourceError as error:
    print(error, "|", error.remedy)
"""


@pytest.mark.parametrize(("what", "remedy"), [("data", "chmod a+rx"), ("data/a.jsonl", "chmod a+r")])
def test_a_folder_or_file_without_permission_is_told_with_the_remedy(public_path: Path, what: str, remedy: str) -> None:
    (public_path / "data").mkdir()
    (public_path / "data/a.jsonl").write_bytes(b'{"id":1}\n')
    (public_path / what).chmod(0)  # only that is in the way of a child without root's rights
    try:
        here = str(Path(__file__).parent)
        run = subprocess.run(
            [sys.executable, "-c", _WITHOUT_RIGHTS, here, str(public_path / "data")], capture_output=True, text=True, check=False
        )
    finally:
        (public_path / what).chmod(0o755)
    assert f"this user is not allowed to read {public_path / what} | make it readable: {remedy}" in run.stdout, run.stderr


def test_a_file_that_is_removed_before_or_while_it_is_read_fails_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for when in ("before", "while"):
        path.write_bytes(lines(100_000))
        source = source_of(path)
        (stream, *_) = source.reader().split(BatchLimits(), final=True)
        blocks = source.read(stream)
        if when == "while":
            next(blocks)
        path.unlink()
        with pytest.raises(SourceError, match=r"a\.jsonl is missing; it had \d+ bytes") as caught:
            list(blocks)
        assert caught.value.remedy == "restore it, or skip it: scribengin offsets skip FLOW a.jsonl"


def test_a_file_that_has_another_time_only_is_told_by_its_times(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":1}\n')
    os.utime(path, (1_700_000_000, 1_700_000_000))
    source = source_of(path)
    first = source.reader()
    entries = [first.split(BatchLimits(), final=True)]
    os.utime(path, (1_700_000_060, 1_700_000_060))
    reader = source.reader()
    reader.restore(entries)
    how = r"it has 9 bytes as before, but its modification time was 2023-11-14T22:13:20\+00:00 and is 2023-11-14T22:14:20\+00:00"
    with pytest.raises(SourceError, match=how):
        reader.split(BatchLimits())
    with pytest.raises(SourceError, match=how):
        list(source_of(path).read(entries[0][0]))


def test_a_file_that_changes_before_or_while_it_is_read_fails_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for when in ("before", "while"):
        path.write_bytes(lines(100_000))
        source = source_of(path)
        (stream, *_) = source.reader().split(BatchLimits(), final=True)
        blocks = source.read(stream)
        if when == "while":
            next(blocks)
        with path.open("ab") as file:
            file.write(b'{"id":1}\n')
        with pytest.raises(SourceError, match=r"a\.jsonl changed after it was assigned") as caught:
            list(blocks)
        assert "restore it with its old modification time (cp -p)" in caught.value.remedy
        if when == "before":
            ignoring = source_of(path, on_change="ignore")
            assert len([1 for _ in ignoring.read(stream)]) > 0


def test_a_file_that_is_restored_with_its_time_is_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":1}\n')
    source = source_of(path)
    (stream,) = source.reader().split(BatchLimits(), final=True)
    was = path.stat()
    path.unlink()
    path.write_bytes(b'{"id":1}\n')
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert len(list(source.read(stream))) == 1


@pytest.mark.parametrize("mtime_ns", [1_700_000_000_562_827_901, 1_700_000_000_000_000_001, 1_700_000_000_000_000_000])
def test_the_command_that_gives_a_file_its_old_time_can_be_typed_as_it_is_printed(tmp_path: Path, mtime_ns: int) -> None:
    (tmp_path / "my data").mkdir()
    path = tmp_path / "my data/a.jsonl"
    path.write_bytes(b'{"id":1}\n')
    os.utime(path, ns=(mtime_ns, mtime_ns))
    source = source_of(path)
    entries = [source.reader().split(BatchLimits(), final=True)]
    path.unlink()
    path.write_bytes(b'{"id":1}\n')
    later = source_of(path).reader()
    later.restore(entries)
    with pytest.raises(SourceError) as committed:
        later.split(BatchLimits())
    with pytest.raises(SourceError) as not_yet:
        list(source.read(entries[0][0]))
    for caught in (committed, not_yet):
        command = re.search(r"touch -d .*?'(?=; or )", caught.value.remedy)
        assert command, caught.value.remedy
        subprocess.run(command[0], shell=True, check=True)
        assert later.split(BatchLimits(), final=True) == []
        assert len(list(source.read(entries[0][0]))) == 1
        os.utime(path)


def test_a_file_that_an_archive_brings_back_has_its_time_in_whole_seconds_and_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":1}\n')
    os.utime(path, ns=(1_700_000_000_562_827_901,) * 2)
    entries = [source_of(path).reader().split(BatchLimits(), final=True)]
    path.unlink()
    path.write_bytes(b'{"id":1}\n')
    for mtime_ns, same in ((1_700_000_000_000_000_000, True), (1_700_000_000_000_000_001, False), (1_700_000_001_000_000_000, False)):
        os.utime(path, ns=(mtime_ns, mtime_ns))
        later = source_of(path).reader()
        later.restore(entries)
        if same:
            assert later.split(BatchLimits(), final=True) == []
            continue
        with pytest.raises(SourceError, match="changed after it was assigned"):
            later.split(BatchLimits(), final=True)


@pytest.mark.parametrize("moved", ["file", "folder"])
def test_a_file_that_is_renamed_or_moved_with_its_folder_is_not_read_again(tmp_path: Path, moved: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b'{"id":1}\n')
    entries = [source_of(folder).reader().split(BatchLimits(), final=True)]
    if moved == "file":
        (folder / "a.jsonl").rename(folder / "b.jsonl")
    else:
        folder = folder.rename(tmp_path / "input")
    (folder / "new.jsonl").write_bytes(b'{"id":2}\n')
    for _start in range(2):
        reader = source_of(folder).reader()
        reader.restore(entries)
        (stream,) = reader.split(BatchLimits(), final=True)
        assert [piece.path for piece in pieces_of(stream)] == ["new.jsonl"]
        (notice,) = reader.notices()
        name, before = ("b.jsonl", "a.jsonl") if moved == "file" else ("a.jsonl", "../data/a.jsonl")
        assert notice == f"{name}, which was {before}, in {folder} not read again: read under the earlier name, and unchanged"
    name = "b.jsonl" if moved == "file" else "a.jsonl"
    with (folder / name).open("ab") as file:
        file.write(b'{"id":3}\n')
    later = source_of(folder).reader()
    later.restore(entries)
    assert {piece.path for stream in later.split(BatchLimits(), final=True) for piece in pieces_of(stream)} == {name, "new.jsonl"}


def test_a_folder_that_was_copied_with_its_times_is_not_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.jsonl").write_bytes(b'{"id":1}\n')
    entries = [source_of(folder).reader().split(BatchLimits(), final=True)]
    shutil.copytree(folder, tmp_path / "input")
    os.utime(tmp_path / "input/b.jsonl")
    reader = source_of(tmp_path / "input").reader()
    reader.restore(entries)
    (stream,) = reader.split(BatchLimits(), final=True)
    assert [piece.path for piece in pieces_of(stream)] == ["b.jsonl"], "whose time says that it may be another"


def test_another_link_of_a_file_is_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"id":1}\n')
    entries = [source_of(tmp_path).reader().split(BatchLimits(), final=True)]
    (tmp_path / "b.jsonl").hardlink_to(tmp_path / "a.jsonl")
    later = source_of(tmp_path).reader()
    later.restore(entries)
    (stream,) = later.split(BatchLimits(), final=True)
    assert [piece.path for piece in pieces_of(stream)] == ["b.jsonl"]


def test_a_compressed_file_that_changed_is_not_said_to_grow(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"id":1}\n'))
    entries = [source_of(path).reader().split(BatchLimits(), final=True)]
    path.write_bytes(gzip.compress(b'{"id":1}\n{"id":2}\n'))
    reader = source_of(path).reader()
    reader.restore(entries)
    with pytest.raises(SourceError) as caught:
        reader.split(BatchLimits())
    assert "growing" not in caught.value.remedy
    assert "touch" not in caught.value.remedy


@pytest.mark.parametrize("on_change", ["stop", "ignore"])
def test_a_file_that_changed_after_it_was_committed_is_found(tmp_path: Path, on_change: str) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data/a.jsonl"
    path.write_bytes(b'{"id":1}\n')
    first = source_of(tmp_path / "data").reader()
    entries = [first.split(BatchLimits(), final=True)]
    with path.open("ab") as file:
        file.write(b'{"id":2}\n')
    reader = source_of(tmp_path / "data", on_change=on_change).reader()
    reader.restore(entries)
    if on_change == "stop":
        with pytest.raises(SourceError, match=r"it had 9 bytes, and now has 18") as caught:
            reader.split(BatchLimits())
        assert "`growing: true` if lines are appended" in caught.value.remedy
    else:
        assert reader.split(BatchLimits()) == []
        assert "the change is ignored" in reader.notices()[0]
        assert reader.split(BatchLimits()) == []
        assert reader.notices() == []
    path.unlink()  # but what was read may be put away
    reader = source_of(tmp_path / "data").reader()
    reader.restore(entries)
    assert reader.split(BatchLimits(), final=True) == []


def test_a_csv_with_a_column_twice_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,id\n1,2\n")
    with pytest.raises(SourceError, match='has the column "id" twice'):
        everything(source_of(path, format="csv"))


def test_a_parquet_file_that_is_cut_off_is_one_bad(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": list(range(1000))}), path)
    path.write_bytes(path.read_bytes()[:-20])
    ids, ((bad, _, _),) = everything(source_of(path, format="parquet"))
    assert (ids, bad.reason) == ([], "corrupt")


@pytest.mark.parametrize(
    ("column", "ddl", "message"),
    [
        (pa.array(["1"]), "id BIGINT", 'has column "id" as string; expected BIGINT'),
        (pa.array([1.5]), "id FLOAT", 'has column "id" as double; expected FLOAT'),
        (pa.array([1]), "id BIGINT, x INT NOT NULL", 'has no column "x", which is NOT NULL'),
    ],
)
def test_a_parquet_file_with_other_columns_is_told(tmp_path: Path, column: pa.Array, ddl: str, message: str) -> None:
    """The file is one bad record, whatever the number of its pieces, and the others are read."""
    (tmp_path / "data").mkdir()
    long = pa.concat_arrays([column] * 5)
    pq.write_table(pa.table({"id": long}), tmp_path / "data/a.parquet", row_group_size=1)
    pq.write_table(pa.table({"id": pa.nulls(3, pa.int8()), "x": pa.array([1, 2, 3])}), tmp_path / "data/b.parquet")
    found, ((bad, place, _),) = everything(source_of(tmp_path / "data", parse_schema(ddl), format="parquet"))
    assert (len(found), bad.reason, place.file) == (3, "wrong-type", str(tmp_path / "data/a.parquet"))
    assert message in bad.message
    assert "none of its 5 rows is read" in bad.message


@pytest.mark.parametrize(
    ("column", "ddl", "found"),
    [
        (pa.array([7.0, 1.5]), "id BIGINT", "1.5"),
        (pa.array([1, 300]), "id TINYINT", "300"),
        (pa.array([1000, 1001], pa.timestamp("ns")), "id TIMESTAMP", "1970-01-01 00:00:00.000001001"),
        (pa.array([1000, 1001], pa.timestamp("ns")), "id TIMESTAMP", "finer than microseconds"),
    ],
)
def test_a_value_of_parquet_that_its_column_cannot_hold_costs_its_row_alone(tmp_path: Path, column: pa.Array, ddl: str, found: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": column}), path)
    ids, ((bad, place, payload),) = everything(source_of(path, parse_schema(ddl), format="parquet"))
    assert (len(ids), bad.reason, place.row) == (1, "out-of-range", 1)
    assert found in bad.message
    assert list(json.loads(payload)) == ["id"]


@pytest.mark.parametrize("by_spark", [False, True])
def test_nanoseconds_of_hive_and_impala_are_not_cut_off_but_where_it_is_said(tmp_path: Path, *, by_spark: bool) -> None:
    """In INT96, of which Arrow cuts off what is finer than asked; times before 1678 fit no nanoseconds of 64 bits."""
    path = tmp_path / "a.parquet"
    column = pa.array([1_772_452_800_000_000_000, 1_772_452_800_000_000_999, None], pa.timestamp("ns"))
    table = pa.table({"id": column}, metadata={"org.apache.spark.version": "4.0.0"} if by_spark else None)
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, store_schema=by_spark)
    ids, bad = everything(source_of(path, parse_schema("id TIMESTAMP"), format="parquet"))
    assert (len(ids), len(bad)) == ((3, 0) if by_spark else (2, 1))
    cut, none = everything(source_of(path, parse_schema("id TIMESTAMP"), format="parquet", time="truncate"))
    assert (len(cut), none) == (3, [])
    old = pa.table({"id": pa.array([dt.datetime(1200, 1, 1), dt.datetime(2026, 1, 1)], pa.timestamp("us"))})
    pq.write_table(old, path, use_deprecated_int96_timestamps=True, store_schema=False)
    assert everything(source_of(path, parse_schema("id TIMESTAMP"), format="parquet"))[1] == []


def test_a_null_where_parquet_must_have_a_value_is_dead_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, None, 3]}), path)
    ids, ((bad, place, payload),) = everything(source_of(path, parse_schema("id BIGINT NOT NULL"), format="parquet"))
    assert (ids, bad.reason, place.row, json.loads(payload)) == ([1, 3], "missing", 1, {"id": None})
