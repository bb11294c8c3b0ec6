from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.testing.checker import Findings, Found, check_output, check_records, compare_rows, read_output
from scribengin.testing.protocol import SINKS, Driver, Job
from scribengin.testing.records import RecordKey, Records, make_record

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = Records("r", parts=2, rows=10)


def found(keys: list[RecordKey] | None = None) -> list[Found]:
    return [Found(".", make_record(key)) for key in (keys if keys is not None else list(RECORDS.keys()))]


def kinds(rows: list[Found], **options: Any) -> dict[str, int]:
    return check_records(RECORDS.keys(), rows, **options).kinds()


def test_all_records_once_whole_and_in_order_are_right() -> None:
    findings = check_records(RECORDS.keys(), found(), ledger_rows=20)
    assert not findings
    assert str(findings) == "nothing lost, doubled, reordered, torn or invented"


def test_parts_may_be_interleaved() -> None:
    rows = found()
    assert not check_records(RECORDS.keys(), [row for pair in zip(rows[:10], rows[10:], strict=True) for row in pair])


def test_each_kind_of_fault_has_its_name() -> None:
    rows = found()
    assert kinds(rows[1:]) == {"lost": 1}
    assert kinds([*rows, rows[-1]]) == {"doubled": 1}
    assert kinds([rows[1], rows[0], *rows[2:]]) == {"reordered": 1}
    assert kinds([rows[1], rows[0], *rows[2:]], ordered=False) == {}
    assert kinds([*rows, *found([RecordKey("r", 1, 10)])]) == {"invented": 1}
    assert kinds([*rows, *found([RecordKey("other run", 0, 0)])]) == {"invented": 1}
    assert kinds(rows, ledger_rows=21) == {"imbalance": 1}
    for changed in ({"body": "x"}, {"crc": 0}, {"seq": 3}, {"bucket": "z"}):
        assert kinds([replace(rows[0], row={**rows[0].row, **changed}), *rows[1:]]) == {"lost": 1, "torn": 1}
    assert kinds([Found(".", {"run": "r"}), *rows]) == {"torn": 1}


def test_rows_without_names_are_compared_as_they_are() -> None:
    rows = [{"hour": 1, "n": 3}, {"hour": 2, "n": 4}, {"hour": 2, "n": 4}]
    assert not compare_rows(rows, reversed(rows))
    assert compare_rows(rows, rows[:2]).imbalance == ["missing: {'hour': 2, 'n': 4} x 1"]
    assert compare_rows(rows[:1], rows).imbalance == ["too many: {'hour': 2, 'n': 4} x 2"]


FORMATS = [("json", "none"), ("json", "gzip"), ("json", "zstd"), ("csv", "none"), ("text", "none"), ("parquet", "auto")]


@pytest.fixture(params=[(*each, partition) for each in FORMATS for partition in ((), ("bucket",))], ids=str)
def job(request: pytest.FixtureRequest, place: Path) -> Job:
    format, compression, partition_by = request.param
    job = Job(place / "state", place / "out", format, partition_by, compression, batches=2)
    Driver(job).run()
    return job


def test_the_checker_reads_every_format_and_finds_what_is_done_to_it(job: Job) -> None:
    folder = job.out / SINKS[0]
    keys = [RecordKey(each.row["run"], int(each.row["part"]), int(each.row["seq"])) for each in read_output(folder, job.format)]
    assert keys
    assert not check_output(folder, job.format, keys, ledger_rows=len(keys))
    first, *_, last = sorted(path for path in folder.rglob("part-*"))
    spoil: list[tuple[Callable[[], object], str]] = [
        (lambda: (last.parent / f"z{last.name}").write_bytes(last.read_bytes()), "doubled"),
        (lambda: last.write_bytes(last.read_bytes()[:-7]), "torn"),
        (first.unlink, "lost"),
    ]
    for act, kind in spoil:
        act()
        findings = check_output(folder, job.format, keys)
        assert kind in findings.kinds(), findings


def test_a_reader_sees_neither_staged_files_nor_records(job: Job) -> None:
    assert all("_scribengin" not in each.group for each in read_output(job.out / SINKS[0], job.format))


def test_findings_name_what_they_found() -> None:
    assert str(Findings(lost=[RecordKey("r", 0, 7)])) == "1 lost: [RecordKey(run='r', part=0, seq=7)]"
