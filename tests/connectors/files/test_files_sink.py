import datetime as dt
import errno
import json
import os
import signal
import zlib
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from file_sinks import LINEAGE, SCHEMA, batch, decide, ids, internal, make, rows, stage, visible
from hypothesis import given
from hypothesis import strategies as st

from scribengin.connectors.contract import Decided, Receipt
from scribengin.connectors.delta.sink_stream import partition_of
from scribengin.connectors.files import sink_stream
from scribengin.connectors.files.audit import read_again
from scribengin.connectors.files.maintenance import keep_folder
from scribengin.connectors.files.sink_partition import Partitions, escape, folder_of
from scribengin.connectors.files.time_path import NULL
from scribengin.core import faults, numbered_log
from scribengin.core.errors import EnvironmentFault, FencedError, Refused, SinkError, StateError
from scribengin.core.storage import SummedFile
from scribengin.core.types import arrow_schema, parse_schema


def test_nothing_is_visible_before_publish_and_everything_after(tmp_path: Path) -> None:
    sink = make(tmp_path)
    decided = decide(sink, 0, rows(1, 2), rows(3))
    assert visible(tmp_path) == []
    (staged,) = internal(tmp_path, "staged")
    assert staged.suffix == ""
    sink.publish(decided)
    (name,) = visible(tmp_path)
    assert name.startswith("part-0000000000-00000-000")
    assert name.endswith(".jsonl")
    assert ids(tmp_path) == [1, 2, 3]
    assert internal(tmp_path, "staged") == []


def test_names_in_order_are_batches_units_and_rows_in_order(tmp_path: Path) -> None:
    sink = make(tmp_path)
    for number in (0, 1, 2):
        receipts = tuple(
            stage(sink, batch(number), rows(1000 * number + 10 * unit, 1000 * number + 10 * unit + 1), unit=unit) for unit in (0, 1, 11)
        )
        sink.publish(Decided(batch(number), f"h{number}", receipts))
    assert ids(tmp_path) == sorted(ids(tmp_path))
    assert len(ids(tmp_path)) == 18


def test_the_final_name_is_the_same_for_every_attempt_and_the_staged_one_never(tmp_path: Path) -> None:
    sink = make(tmp_path)
    first, second = stage(sink, batch(0), rows(1), attempt="a"), stage(sink, batch(0), rows(1), attempt="b")
    assert first.segments[0]["name"] == second.segments[0]["name"]
    assert first.segments[0]["staged"] != second.segments[0]["staged"]


def test_a_unit_without_rows_leaves_no_file_and_its_batch_is_recorded(tmp_path: Path) -> None:
    sink = make(tmp_path)
    decided = decide(sink, 0, rows())
    assert decided.receipts == (Receipt("kept", 0, 0, 0, ()),)
    sink.publish(decided)
    assert visible(tmp_path) == []
    assert len(internal(tmp_path, "batches")) == 1
    assert [each.violations for each in sink.audit(lineage=LINEAGE, decided=[decided])] == [()]


def test_publishing_again_changes_nothing(tmp_path: Path) -> None:
    sink = make(tmp_path)
    decided = decide(sink, 0, rows(1, 2))
    sink.publish(decided)
    before = (tmp_path / "out" / visible(tmp_path)[0]).stat()
    make(tmp_path).publish(decided)
    make(tmp_path).recover(decided, lineage=LINEAGE, before=1)
    after = (tmp_path / "out" / visible(tmp_path)[0]).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_renames_that_a_crash_cut_off_are_completed(tmp_path: Path) -> None:
    sink = make(tmp_path, partition_by=("country",))
    decided = decide(sink, 0, rows(1, country="DE"), rows(2, country="FR"), rows(3, country="IT"))
    faults.arm("publish.renamed@2:enospc")
    try:
        with pytest.raises(OSError, match="No space"):
            sink.publish(decided)
    finally:
        faults.arm("")
    assert len(visible(tmp_path)) == 2
    make(tmp_path, partition_by=("country",)).recover(decided, lineage=LINEAGE, before=1)
    assert len(visible(tmp_path)) == 3
    assert internal(tmp_path, "staged") == []


def test_a_batch_decided_otherwise_is_fenced(tmp_path: Path) -> None:
    sink = make(tmp_path)
    decided = decide(sink, 0, rows(1), attempt="a")
    sink.publish(decided)
    with pytest.raises(FencedError, match="another hash"):
        sink.publish(replace(decided, input_hash="other"))
    with pytest.raises(FencedError, match="another files"):
        sink.publish(decide(sink, 0, rows(1), attempt="b"))
    assert ids(tmp_path) == [1]


def test_an_older_batch_and_an_older_term_are_fenced(tmp_path: Path) -> None:
    sink = make(tmp_path)
    sink.publish(decide(sink, 3, rows(3), term=5))
    with pytest.raises(FencedError, match="batch 3 already exists"):
        sink.publish(decide(sink, 2, rows(2), term=5))
    with pytest.raises(FencedError, match="newer Term 5"):
        sink.publish(decide(sink, 4, rows(4), term=4))
    assert ids(tmp_path) == [3]


def test_another_lineage_owner_or_sink_is_refused_unless_adopted(tmp_path: Path) -> None:
    old = make(tmp_path)
    first = decide(old, 0, rows(1))
    old.publish(first)
    with pytest.raises(Refused, match="another lineage"):
        make(tmp_path, lineage="l2")
    with pytest.raises(Refused, match="another installation"):
        make(tmp_path, prepare=False).prepare(owner="you", lineage=LINEAGE)
    with pytest.raises(Refused, match='holds commits of the sink "kept"'):
        make(tmp_path, node="other")
    new = make(tmp_path, prepare=False)
    new.prepare(owner="me", lineage="l2", adopt=True)
    new.publish(Decided(batch(0, lineage="l2"), "h0", (stage(new, batch(0, lineage="l2"), rows(7)),)))
    assert sorted(ids(tmp_path)) == [1, 7]
    assert all(each.number >= 0 and not each.violations for each in old.audit(lineage=LINEAGE, decided=[first]))
    with pytest.raises(FencedError, match="another lineage"):
        old.publish(decide(old, 1, rows(2)))
    with pytest.raises(Refused, match="has taken"):
        make(tmp_path, prepare=False).prepare(owner="me", lineage=LINEAGE, adopt=True)


@pytest.mark.parametrize("name", ["part-0.jsonl", "day=2026-01-01/part-0.jsonl", "a=1/b=2/x"])
def test_files_that_nobody_has_signed_are_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "out" / name
    file.parent.mkdir(parents=True)
    file.touch()
    with pytest.raises(Refused, match="written by an unknown writer"):
        make(tmp_path)


def test_a_file_that_is_gone_in_both_forms_is_told(tmp_path: Path) -> None:
    sink = make(tmp_path)
    decided = decide(sink, 0, rows(1))
    internal(tmp_path, "staged")[0].unlink()
    with pytest.raises(StateError, match="is missing, and its staged form"):
        sink.publish(decided)


def test_a_strange_file_of_the_same_name_is_not_overwritten(tmp_path: Path) -> None:
    sink = make(tmp_path)
    decided = decide(sink, 0, rows(1))
    strange = tmp_path / "out" / decided.receipts[0].segments[0]["name"]
    strange.write_text("mine")
    with pytest.raises(StateError, match="already exists"):
        sink.publish(decided)
    assert strange.read_text() == "mine"


def test_recovery_deletes_what_decided_batches_left_and_nothing_of_an_undecided_one(tmp_path: Path) -> None:
    sink = make(tmp_path)
    decided = decide(sink, 0, rows(1), attempt="a")
    stage(sink, batch(0), rows(1), attempt="failed")
    stage(sink, batch(1), rows(2), attempt="sleeping")
    sink.recover(decided, lineage=LINEAGE, before=1)
    assert [path.name for path in internal(tmp_path, "staged")] == ["00000-sleeping-00000"]
    assert ids(tmp_path) == [1]


def test_an_aborted_stream_leaves_nothing(tmp_path: Path) -> None:
    sink = make(tmp_path, partition_by=("country",))
    stream = sink.stream(batch(0), 0, "a", SCHEMA)
    stream.write(rows(1, country="DE"))
    stream.write(rows(2, country="FR"))
    stream.abort()
    assert internal(tmp_path, "staged") == []
    sink.stream(batch(0), 1, "b", SCHEMA).abort()


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sink = make(tmp_path, format=format)
    stream = sink.stream(batch(0), 0, "a", SCHEMA)
    monkeypatch.setattr(SummedFile, "write", full)
    with pytest.raises(EnvironmentFault, match=r'sink "kept" cannot stage in .*: No space left on device'):
        _write_and_close(stream)
    stream.abort()
    assert internal(tmp_path, "staged") == []
    assert visible(tmp_path) == []


def _write_and_close(stream: sink_stream.FilesSinkStream) -> None:
    stream.write(rows(*range(1000)))
    stream.close()


FORMATS = [
    ("json", "none", ".jsonl"),
    ("json", "gzip", ".jsonl.gz"),
    ("json", "zstd", ".jsonl.zst"),
    ("csv", "auto", ".csv"),
    ("csv", "gzip", ".csv.gz"),
    ("parquet", "auto", ".parquet"),
    ("parquet", "snappy", ".parquet"),
]


@pytest.mark.parametrize("partition_by", [(), ("country",), ("country", "day")])
@pytest.mark.parametrize(("format", "compression", "suffix"), FORMATS)
def test_a_foreign_reader_reads_every_format(
    tmp_path: Path, format: str, compression: str, suffix: str, partition_by: Sequence[str]
) -> None:
    sink = make(tmp_path, format=format, compression=compression, partition_by=partition_by)
    written = [rows(1, 2, country="DE"), rows(3, country=None), rows(4, country="FR", day=None)]
    decided = decide(sink, 0, *written)
    sink.publish(decided)
    stage(sink, batch(1), rows(99))
    assert all(name.endswith(suffix) for name in visible(tmp_path))
    assert [(each.rows, each.violations) for each in sink.audit(lineage=LINEAGE, decided=[decided])] == [(4, ())]
    if compression == "zstd" or (format == "csv" and compression == "gzip"):
        return  # pyarrow's reader does not take them by their names
    partitioning = ds.partitioning(flavor="hive") if partition_by else None
    table = ds.dataset(tmp_path / "out", format=format, partitioning=partitioning).to_table()
    assert sorted(table.column("id").to_pylist()) == [1, 2, 3, 4]
    countries = dict(zip(table.column("id").to_pylist(), table.column("country").to_pylist(), strict=True))
    assert {id_: country or None for id_, country in countries.items()} == {1: "DE", 2: "DE", 3: None, 4: "FR"}


def test_partition_folders_are_named_as_hive_names_them(tmp_path: Path) -> None:
    sink = make(tmp_path, partition_by=("country", "day"))
    decided = decide(sink, 0, rows(1, country="a/b:c"), rows(2, country=None, day=None), rows(3, country="ü x"), rows(4, country=NULL))
    sink.publish(decided)
    assert {str(Path(name).parent) for name in visible(tmp_path)} == {
        "country=a%2Fb%3Ac/day=2026-01-01",
        "country=__HIVE_DEFAULT_PARTITION__/day=__HIVE_DEFAULT_PARTITION__",
        "country=ü x/day=2026-01-01",
        "country=%5F_HIVE_DEFAULT_PARTITION__/day=2026-01-01",
    }
    assert "country" not in (tmp_path / "out" / visible(tmp_path)[0]).read_text()


def test_a_text_that_is_the_name_of_nulls_folder_is_no_null_in_a_delta_log() -> None:
    assert partition_of(f"country={folder_of(NULL)}/part-0.parquet") == {"country": NULL}
    assert partition_of(f"country={folder_of(None)}/part-0.parquet") == {"country": None}


def test_folders_of_decimals_have_plain_digits(tmp_path: Path) -> None:
    schema = parse_schema("id BIGINT, z DECIMAL(20,10)")
    batch_ = pa.RecordBatch.from_pylist(
        [{"id": n, "z": z} for n, z in enumerate(map(Decimal, ("0", "0E+3", "1E-10")))], schema=arrow_schema(schema)
    )
    assert [part.folder for part in Partitions(schema, ("z",)).split(batch_)] == ["z=0.0000000000/", "z=0.0000000001/"]


def test_many_partitions_keep_few_files_open_and_the_order_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_stream, "MAX_OPEN", 3)
    sink = make(tmp_path, partition_by=("country",))
    stream = sink.stream(batch(0), 0, "a", SCHEMA)
    for id_ in range(40):
        stream.write(rows(id_, country=f"c{id_ % 8}"))
        assert len(stream._open) <= 3
    sink.publish(Decided(batch(0), "h", (stream.close(),)))
    for country in range(8):
        folder = tmp_path / "out" / f"country=c{country}"
        found = [json.loads(line)["id"] for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
        assert found == list(range(country, 40, 8))


@given(st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=5)), st.one_of(st.none(), st.dates())), max_size=50))
def test_splitting_loses_and_reorders_nothing(values: list[tuple[str | None, dt.date | None]]) -> None:
    batch_ = pa.RecordBatch.from_pylist([{"id": i, "country": c, "day": d} for i, (c, d) in enumerate(values)], schema=arrow_schema(SCHEMA))
    seen: dict[str, list[int]] = {}
    for folder, part, places, _ in Partitions(SCHEMA, ("country", "day")).split(batch_):
        assert folder not in seen
        assert list(places) == part.column("id").to_pylist()
        assert part.schema.names == ["id"]
        seen[folder] = part.column("id").to_pylist()
    expected: dict[str, list[int]] = {}
    null = "__HIVE_DEFAULT_PARTITION__"
    for i, (country, day) in enumerate(values):
        expected.setdefault(f"country={escape(country) if country else null}/day={day.isoformat() if day else null}/", []).append(i)
    assert seen == expected


@pytest.mark.parametrize(
    ("columns", "why"), [(("town",), "is not a column"), (("tags",), "ARRAY<STRING>"), (("id", "country", "tags"), "ARRAY")]
)
def test_columns_that_cannot_name_folders_are_refused(columns: tuple[str, ...], why: str) -> None:
    with pytest.raises(Refused, match=why):
        Partitions(parse_schema("id BIGINT, country STRING, tags ARRAY<STRING>"), columns)


def test_partitioning_by_every_column_is_refused() -> None:
    with pytest.raises(Refused, match="no column is left"):
        Partitions(parse_schema("id BIGINT, country STRING"), ("id", "country"))


def test_audit_names_what_is_missing_changed_or_strange(tmp_path: Path) -> None:
    sink = make(tmp_path)
    decided = [decide(sink, number, rows(number)) for number in range(5)]
    for each in decided[:4]:
        sink.publish(each)
    names = visible(tmp_path)
    (tmp_path / "out" / names[0]).unlink()
    whole = (tmp_path / "out" / names[1]).read_text()
    (tmp_path / "out" / names[1]).write_text(whole.replace('"id":1', '"id":9'))
    (tmp_path / "out" / names[2]).write_text(whole + "more")
    (tmp_path / "out" / "part-strange.jsonl").touch()
    told = {each.number: each.violations for each in sink.audit(lineage=LINEAGE, decided=decided)}
    assert "is missing: 1 rows" in told[0][0]
    assert "was changed after it was written" in told[1][0]
    assert "bytes" in told[2][0]
    assert told[3] == ()
    assert "decided, but not published" in told[4][0]
    assert "no batch wrote it" in told[-1][0]


def test_audit_and_run_say_the_same_of_files_that_were_moved_away(tmp_path: Path) -> None:
    sink = make(tmp_path)
    decided = decide(sink, 0, rows(1))
    sink.publish(decided)
    (tmp_path / "out").rename(tmp_path / "moved")
    (told,) = sink.audit(lineage=LINEAGE, decided=[decided])
    again = make(tmp_path)
    with pytest.raises(StateError, match="which is missing, and its staged form") as caught:
        again.publish(decided)
    assert told.violations == (f"{caught.value.message}; {caught.value.remedy}",)


def test_old_commit_records_are_folded_and_a_driver_that_slept_withdraws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_log, "CHUNK", 5)
    sink = make(tmp_path)
    decided = [decide(sink, number, rows(number)) for number in range(20)]
    for each in decided:
        sink.publish(each)
    assert len(list((tmp_path / "out/_scribengin" / LINEAGE / "batches").glob("*.json"))) == 5
    assert ids(tmp_path) == list(range(20))
    assert all(each.violations == () for each in sink.audit(lineage=LINEAGE, decided=decided))
    with pytest.raises(FencedError):
        sink.publish(decide(sink, 2, rows(2), attempt="slept"))
    assert ids(tmp_path) == list(range(20))


def test_clear_deletes_what_was_committed_and_nothing_else(tmp_path: Path) -> None:
    sink = make(tmp_path, partition_by=("country",))
    sink.publish(decide(sink, 0, rows(1), rows(2, country="FR")))
    (tmp_path / "out" / "notes.txt").touch()
    assert sink.clear(owner="me", flow="f", dry_run=True) == 2
    assert len(visible(tmp_path)) == 3
    assert sink.clear(owner="me", flow="f") == 2
    assert visible(tmp_path) == ["notes.txt"]
    assert not (tmp_path / "out" / "_scribengin").exists()
    make(tmp_path, lineage="l2")


@pytest.mark.parametrize(("owner", "node", "flow"), [("you", "kept", "f"), ("me", "other", "f"), ("me", "kept", "g")])
def test_clear_refuses_what_another_installation_sink_or_flow_has_written(tmp_path: Path, owner: str, node: str, flow: str) -> None:
    sink = make(tmp_path)
    sink.publish(decide(sink, 0, rows(1)))
    with pytest.raises(Refused, match="holds commits of"):
        make(tmp_path, prepare=False, node=node).clear(owner=owner, flow=flow)
    assert ids(tmp_path) == [1]


def test_files_that_a_reader_took_away_after_publishing_do_not_stop_a_restart(tmp_path: Path) -> None:
    sink = make(tmp_path)
    decided = decide(sink, 0, rows(1))
    sink.publish(decided)
    (tmp_path / "out" / visible(tmp_path)[0]).unlink()
    make(tmp_path).recover(decided, lineage=LINEAGE, before=1)
    assert any("is missing" in text for each in sink.audit(lineage=LINEAGE, decided=[decided]) for text in each.violations)


def test_a_place_that_cannot_be_a_folder_is_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(SinkError, match=r'sink "kept": cannot write to .*out: .*out is a file') as told:
        make(tmp_path)
    assert "a part of its path is a file" in told.value.remedy


def test_recovery_removes_the_drafts_of_killed_writers(tmp_path: Path) -> None:
    sink = make(tmp_path)
    decided = decide(sink, 0, rows(1))
    draft = tmp_path / "out/_scribengin" / LINEAGE / "batches" / f".0000000000.json.{'a' * 32}"
    draft.parent.mkdir(parents=True)
    draft.touch()
    sink.recover(decided, lineage=LINEAGE, before=1)
    assert not draft.exists()


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl.gz", "a.txt.zst"])
def test_a_file_that_is_not_what_it_is_called_is_told_by_the_audit(tmp_path: Path, name: str) -> None:
    data = b"no such thing"
    (tmp_path / name).write_bytes(data)
    rows_, said = read_again(tmp_path / name, {"rows": 2, "bytes": len(data), "crc": zlib.crc32(data)}, "json")
    assert rows_ == 0
    assert f"{tmp_path / name} cannot be read in the format of its name" in said[0]


HOSTILE = ["..", ".", "a/b", "/", "", None, "a\x00b", "new\nline", "é", "\ufffd", "A", "a", "x" * 247, "%2F", "-", " ", "\u202e"]


def test_whatever_a_partitions_value_is_its_rows_are_below_the_sinks_folder_or_dead_letters(tmp_path: Path) -> None:
    sink = make(tmp_path, partition_by=("country",))
    stream = sink.stream(batch(0), 0, "a", SCHEMA)
    values = [*HOSTILE, "x" * 248, "é" * 124, "/" * 90, *HOSTILE]
    refused = stream.write(pa.concat_batches([rows(n, country=value) for n, value in enumerate(values)]))
    n = len(HOSTILE)
    assert [(bad.ordinal, bad.reason) for bad in refused] == [(n, "too-large"), (n + 1, "too-large"), (n + 2, "too-large")]
    assert "of 256 bytes; the maximum is 255" in refused[0].message
    decided = Decided(batch(0), "h0", (stream.close(),))
    sink.publish(decided)
    assert sorted(ids(tmp_path)) == sorted({*range(len(values))} - {n, n + 1, n + 2})
    assert {len(name.split("/")) for name in visible(tmp_path)} == {2}, "each in one folder of its own"
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    assert len({name.partition("/")[0] for name in visible(tmp_path)}) == n - 1, "null and the empty text have one"


def test_a_path_of_many_long_partitions_is_a_dead_letter(tmp_path: Path) -> None:
    columns = tuple(f"c{n}" for n in range(16))
    schema = parse_schema(", ".join(f"{name} STRING" for name in ("id", *columns)))
    stream = make(tmp_path, partition_by=columns).stream(batch(0), 0, "a", schema)
    (bad,) = stream.write(pa.RecordBatch.from_pylist([dict.fromkeys(columns, "x" * 250)], schema=arrow_schema(schema)))
    assert (bad.reason, stream.close().rows) == ("too-large", 0)


@pytest.mark.parametrize("roll", [None, {"size": 10**6, "every": 300.0}])
@pytest.mark.parametrize(
    "point",
    ["stage.mid_write", "stage.mid_write@4", "publish.record.before", "publish.record.after", "publish.renamed", "publish.renamed@4"],
)
def test_of_many_segments_all_are_committed_or_none_wherever_the_writer_is_killed(tmp_path: Path, point: str, roll: Any) -> None:
    options: dict[str, Any] = {"partition_by": ("country",), "segment": 30, "roll": roll}
    batches = [rows(2 * n, 2 * n + 1, country=country) for n, country in enumerate(["DE", "FR"] * 4)]
    sink = make(tmp_path, **options)
    decided = decide(sink, 0, *batches, attempt="decided")
    assert len(decided.receipts[0].segments) >= 4, "in two folders, and in each several by size"
    pid = os.fork()
    if pid == 0:
        try:
            faults.arm(f"{point}:die")
            decide(sink, 0, *batches, attempt="killed")
            sink.publish(decided)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    again = make(tmp_path, **options)
    published = not point.startswith(("stage", "publish.record.before"))
    again.recover(decided if published else None, lineage=LINEAGE, before=1 if published else 0)
    keep_folder(tmp_path / "out", lambda: None, flush=True)
    assert sorted(ids(tmp_path)) == (list(range(16)) if published else [])


def test_a_sink_of_another_form_does_not_begin_in_the_folder(tmp_path: Path) -> None:
    sink = make(tmp_path, format="parquet", partition_by=("country",))
    sink.publish(decide(sink, 0, rows(1)))
    (name,) = visible(tmp_path)
    with pytest.raises(Refused) as caught:
        make(tmp_path, format="json", partition_by=("country",))
    assert caught.value.code == "output-form"
    assert f"such as {name}: found format parquet, expected json" in caught.value.message
    assert caught.value.remedy.startswith("write `format: parquet`; or")
    for by, expected in (((), "no folders"), (("country", "day"), "folders by country/day")):
        with pytest.raises(Refused, match=f"found folders by country, expected {expected}\n"):
            make(tmp_path, format="parquet", partition_by=by)
    make(tmp_path, format="parquet", partition_by=("country",), compression="snappy", evolve="strict")


def test_the_form_is_that_of_the_newest_rows_hidden_ones_too_and_batches_without_rows_say_nothing(tmp_path: Path) -> None:
    roll = {"roll": {"size": 1 << 20, "every": 1.0}}
    sink = make(tmp_path, format="parquet", **roll)
    sink.publish(decide(sink, 0, rows(1)))
    for number in range(1, 24):
        sink.publish(Decided(batch(number), f"h{number}", ()))
    assert visible(tmp_path) == []
    with pytest.raises(Refused, match="found format parquet, expected text"):
        make(tmp_path, format="text", **roll)
    later = make(tmp_path, format="json", evolve="any", **roll)
    later.publish(decide(later, 24, rows(2)))
    make(tmp_path, format="json", **roll)  # it was agreed to, and has begun
    with pytest.raises(Refused, match="found format json, expected parquet"):
        make(tmp_path, format="parquet", **roll)


def test_folders_by_time_may_have_another_path_but_do_not_come_or_go(tmp_path: Path) -> None:
    def by(path: str) -> dict[str, Any]:
        return {"partition_by": ("country", {"time": "at", "path": path})}

    schema = parse_schema("id BIGINT, country STRING, at TIMESTAMP")
    sink = make(tmp_path, **by("dt=%Y-%m-%d"))
    stream = sink.stream(batch(0), 0, "a", schema)
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    stream.write(pa.RecordBatch.from_pylist([{"id": 1, "country": "DE", "at": at}], schema=arrow_schema(schema)))
    sink.publish(Decided(batch(0), "h0", (stream.close(),)))
    make(tmp_path, **by("day=%Y-%m-%d/hour=%H"))
    with pytest.raises(Refused, match="found folders by country/dt, expected folders by country\n"):
        make(tmp_path, partition_by=("country",))
    with pytest.raises(Refused, match="found folders by country/dt, expected folders by dt\n"):
        make(tmp_path, partition_by=by("dt=%Y-%m-%d")["partition_by"][1:])


def test_a_sink_does_not_begin_in_the_folder_of_another_nor_around_it(tmp_path: Path) -> None:
    outer = make(tmp_path, path="a/b")
    for path in ("a/b/c", "a/b/c/d"):
        with pytest.raises(Refused, match=r'lies in .*/a/b, which is the folder of sink "kept"\n'):
            make(tmp_path, path=path, node="other")
        assert not (tmp_path / path).exists()
    with pytest.raises(Refused, match=r'/a contains .*/a/b, which is the folder of sink "kept"\n'):
        make(tmp_path, path="a", node="other")
    outer.publish(decide(outer, 0, rows(1)))
    with pytest.raises(Refused, match=r'which is the folder of sink "kept" of flow "f"\n'):
        make(tmp_path, path="a/b/c", node="other")
    make(tmp_path, path="a/b c", node="other")
