import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.broken_files import PurgesEarly
from harness.broken_sinks import BROKEN, CopyingSink, NamesFromTheAttempt, NoStaging, SkippingSink, TrustingSink
from scribengin.connectors.catalog import open_sink, open_source, source_types
from scribengin.connectors.contract import ConnectorContext, StagingSink
from scribengin.connectors.files.maintenance import roll_folder
from scribengin.connectors.files.options import SINK
from scribengin.core.types import parse_schema
from scribengin.testing.checker import read_output
from scribengin.testing.conformance import check_sink, check_source
from scribengin.testing.records import SCHEMA, Records

Kind = Callable[[ConnectorContext], StagingSink]

RECORDS = Records("conformance", parts=3, rows=25)
ROWS = [row for part in (0, 1) for row in RECORDS.of(part, 0, 2)]


def files_source(folder: Path, **options: object) -> ConnectorContext:
    RECORDS.write(folder / "in")
    (folder / "in" / "records-003.jsonl.gz").write_bytes(gzip.compress((folder / "in" / "records-000.jsonl").read_bytes()))
    (folder / "in" / "empty.jsonl").touch()
    given = source_types()["files"].filled({"path": "in", "format": "json"} | options)
    return ConnectorContext("records", folder, given, parse_schema(SCHEMA))


def test_the_files_source_keeps_the_contract(tmp_path: Path) -> None:
    assert check_source(open_source("files", files_source(tmp_path)), declared=source_types()["files"]) == 100


def test_the_sequence_source_keeps_the_contract(tmp_path: Path) -> None:
    options = source_types()["sequence"].filled({"rows": 40, "max_rows": 10})
    assert check_source(open_source("sequence", ConnectorContext("n", tmp_path, options)), declared=source_types()["sequence"]) == 40


def sink_place(folder: Path, format: str, partition_by: tuple[str, ...] = ()) -> ConnectorContext:
    return ConnectorContext("out", folder, SINK.filled({"path": "out", "format": format, "partition_by": partition_by}))


def read_rows(folder: Path, format: str) -> list[dict[str, object]]:
    order = ("run", "part", "seq", "bucket", "body", "crc")
    numbers = ("part", "seq", "crc")
    return [
        {name: int(each.row[name]) if name in numbers else each.row[name] or "" for name in order} for each in read_output(folder, format)
    ]


@pytest.mark.parametrize("partition_by", [(), ("bucket",)])
@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_the_files_sink_keeps_the_contract(tmp_path: Path, format: str, partition_by: tuple[str, ...]) -> None:
    place = sink_place(tmp_path, format, partition_by)
    rows = [row | {"bucket": row["bucket"] or ""} for row in ROWS]
    check_sink(
        lambda: open_sink("files", place),
        lambda: read_rows(tmp_path / "out", format),
        schema=parse_schema(SCHEMA),
        rows=rows,
        declared=SINK,
    )


def test_a_files_sink_that_rolls_keeps_the_contract_whenever_somebody_rolls(tmp_path: Path) -> None:
    options = SINK.filled({"path": "out", "format": "json", "partition_by": ("bucket",), "roll": {"size": 1024, "every": 300.0}})
    rows = [row | {"bucket": row["bucket"] or ""} for row in ROWS]

    def read() -> list[dict[str, object]]:
        roll_folder(tmp_path / "out", lambda: None, flush=True)
        return read_rows(tmp_path / "out", "json")

    check_sink(lambda: open_sink("files", ConnectorContext("out", tmp_path, options)), read, schema=parse_schema(SCHEMA), rows=rows)


TOLD: dict[str, tuple[Kind, str]] = {
    "no_staging": (NoStaging, "what is staged, or aborted, is not visible"),
    "names_from_the_attempt": (NamesFromTheAttempt, "what is staged, or aborted, is not visible"),
    "replay_from_rerun": (TrustingSink, "refuses a Batch that was decided otherwise"),
    "skipped_silently": (SkippingSink, "refuses a Batch that was decided otherwise"),
    "copied_into_place": (CopyingSink, "refuses a Batch that was decided otherwise"),
    "purged_too_early": (PurgesEarly, "recover keeps what an undecided Batch has staged"),
}
"""faults of the commit protocol that a sink alone can have → the sink that has it, and what is said"""


def test_all_but_two_faults_of_the_protocol_are_seen_without_a_driver() -> None:
    """Of these, one is no sink's, and `own_sinks.check_trials` tells the other."""
    assert set(BROKEN) - set(TOLD) == {"decision_overwritten", "publish_before_fsync"}


@pytest.mark.parametrize("name", TOLD)
def test_a_sink_that_breaks_the_contract_is_told_how(tmp_path: Path, name: str) -> None:
    (broken, sentence), place = TOLD[name], sink_place(tmp_path, "json")
    rows = [row | {"bucket": row["bucket"] or ""} for row in ROWS]
    with pytest.raises(AssertionError, match=sentence):
        check_sink(lambda: broken(place), lambda: read_rows(tmp_path / "out", "json"), schema=parse_schema(SCHEMA), rows=rows)
