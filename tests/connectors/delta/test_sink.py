"""The sink without Spark: the contract, modes, rivals, what a table takes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from scribengin.connectors.contract import BatchId
from scribengin.connectors.delta.options import SINK
from scribengin.connectors.delta.sink import DeltaSink
from scribengin.connectors.files.sink_folders import LineageFolder
from scribengin.core import faults
from scribengin.core.errors import EnvironmentFault, FencedError, Refused, SinkError, StateError
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.conformance import check_sink
from tests.connectors.delta.driver import Writer, place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Read = Callable[[Path], list[dict[str, Any]]]

SCHEMA = parse_schema("id BIGINT NOT NULL, name STRING, amount DOUBLE, at TIMESTAMP, tags ARRAY<STRING>")
NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
ROWS = [
    {"id": n, "name": None if n == 2 else 'a "quoted", odd\nname \\N', "amount": n / 4, "at": NOON, "tags": ["a", 'b"']} for n in range(6)
]


def test_it_keeps_the_contract(tmp_path: Path, read: Read) -> None:
    where = place(tmp_path)
    wider = (parse_schema(f"{SCHEMA}, colour STRING"), [row | {"colour": "red"} for row in ROWS])
    check_sink(
        lambda: DeltaSink(where),
        lambda: read(tmp_path / "kept"),
        schema=SCHEMA,
        rows=ROWS,
        wider=wider,
        declared=SINK,
        options=where.options,
    )
    sink = DeltaSink(where)
    with pytest.raises(Refused, match='commits of the flow "flow"'):
        sink.clear(owner="conformance", flow="another")
    assert sink.clear(owner="conformance", flow="flow", dry_run=True) == len(read(tmp_path / "kept")) > 0
    assert sink.clear(owner="conformance", flow="flow") > 0
    assert read(tmp_path / "kept") == []
    sink.prepare(owner="another", lineage="after")


def test_it_keeps_the_contract_with_partitions(tmp_path: Path, read: Read) -> None:
    where = place(tmp_path, partition_by=["name"])

    def read_back() -> list[dict[str, Any]]:
        return [{name: row[name] for name in SCHEMA.names} for row in read(tmp_path / "kept")]

    check_sink(lambda: DeltaSink(where), read_back, schema=SCHEMA, rows=ROWS)


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "key": ["e"], "partition_by": ["c"]}])
def test_every_type_comes_back_as_it_went_in(tmp_path: Path, read: Read, options: dict[str, Any]) -> None:
    schema = parse_schema(
        "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h STRING, i BINARY, j DATE, k TIMESTAMP, l DECIMAL(20,3), "
        "m ARRAY<BIGINT>, n MAP<STRING, INT>, o STRUCT<at: TIMESTAMP, raw: DOUBLE>"
    )
    full = {
        "a": True, "b": -128, "c": 2**15 - 1, "d": -(2**31), "e": 2**63 - 1, "f": 0.5, "g": float("-inf"), "h": "", "i": b"\x00\xff",
        "j": dt.date(1, 1, 1), "k": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC), "l": Decimal("12345678901234567.125"),
        "m": [1, None], "n": [("k", 1)], "o": {"at": NOON, "raw": 1.5},
    }  # fmt: skip
    empty = dict.fromkeys(full) | {"e": 1}
    writer = Writer(place(tmp_path, **options), schema)
    assert writer.sink.unlike(schema) == []
    writer.write(0, [full, empty])
    assert writer.sink.unlike(schema) == []
    two, one = sorted(read(tmp_path / "kept"), key=lambda row: row["e"])
    assert one | {"o": {**one["o"], "at": one["o"]["at"].astimezone(dt.UTC)}} == full
    assert two == empty


def test_files_are_apart_by_values_of_any_kind_and_the_log_says_which(tmp_path: Path, read: Read) -> None:
    schema = parse_schema("id BIGINT, c STRING, d DATE, t TIMESTAMP, b BOOLEAN, m DECIMAL(6,2)")
    rows = [
        {"id": n, "c": c, "d": dt.date(2026, 1, n + 1), "t": NOON, "b": n % 2 == 0, "m": Decimal("1.50")}
        for n, c in enumerate(["DE", "a b/c%41=ü", None, "#?*", "__HIVE_DEFAULT_PARTITION__"])
    ]
    rows.append(dict.fromkeys(schema.names, None) | {"id": 9})
    writer = Writer(place(tmp_path, partition_by=["c", "d", "t", "b", "m"]), schema)
    assert writer.write(0, [*rows, rows[0] | {"id": 10, "c": ""}]) == [
        '6: column "c" is an empty text, which a Delta table stores as null in a partition column'
    ]
    found = sorted(read(tmp_path / "kept"), key=lambda row: row["id"])
    assert [{name: row[name] for name in schema.names} for row in found] == rows


def test_the_log_says_of_files_what_their_footers_say(tmp_path: Path) -> None:
    schema = parse_schema("id BIGINT, name STRING, at TIMESTAMP, f DOUBLE, tags ARRAY<STRING>")
    long = "z" * 50
    rows = [{"id": n, "name": long if n else None, "at": NOON, "f": float("nan"), "tags": []} for n in range(3)]
    Writer(place(tmp_path), schema).write(0, rows)
    (told,) = pa.table(DeltaTable(tmp_path / "kept").get_add_actions(flatten=True)).to_pylist()
    assert (told["num_records"], told["min.id"], told["max.id"]) == (3, 0, 2)
    assert (told["null_count.name"], told["min.name"], told.get("max.name")) == (1, long[:32], None)
    assert told["min.at"] == told["max.at"] == NOON
    assert told.get("min.f") is None, "a reader that sorts NaN would be misled"


def test_a_batch_replaces_the_partitions_that_it_has_rows_of(tmp_path: Path, read: Read) -> None:
    schema = parse_schema("id BIGINT, c STRING, d INT")
    writer = Writer(place(tmp_path, mode="overwrite", partition_by=["c", "d"]), schema)
    writer.write(0, [{"id": n, "c": c, "d": d} for n, (c, d) in enumerate([("a b", 1), ("a b", 2), ("e", 1), (None, 1), ("e", None)])])
    decided, _ = writer.stage(1, [{"id": 10, "c": "a b", "d": 1}], [{"id": 11, "c": None, "d": 1}, {"id": 12, "c": "a b", "d": 1}])
    writer.sink.publish(decided)
    writer.sink.publish(decided)
    Writer(place(tmp_path, mode="overwrite", partition_by=["c", "d"]), schema).sink.publish(decided)
    assert sorted(row["id"] for row in read(tmp_path / "kept")) == [1, 2, 4, 10, 11, 12]
    told = list(writer.sink.audit(lineage="one", decided=[decided]))
    assert [(each.number, each.rows, each.violations) for each in told] == [(0, 5, ()), (1, 3, ())]


def test_of_rows_of_one_key_the_last_to_come_stands(tmp_path: Path, read: Read) -> None:
    schema = parse_schema("id BIGINT, name STRING")
    writer = Writer(place(tmp_path, mode="upsert", key=["id"], partition_by=["name"]), schema)
    first, second = ([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 1, "name": "c"}], [{"id": 2, "name": "d"}])
    assert writer.write(0, first, second) == []
    decided, refused = writer.stage(1, [{"id": 1, "name": "e"}, {"id": None, "name": "nobody"}, {"id": 3, "name": None}])
    assert refused == ['1: column "id" is null, but it is part of the key']
    writer.sink.publish(decided)
    writer.sink.publish(decided)
    assert sorted((row["id"], row["name"] or "") for row in read(tmp_path / "kept")) == [(1, "e"), (2, "d"), (3, "")]
    assert [each.violations for each in writer.sink.audit(lineage="one", decided=[decided])] == [(), ()]
    assert writer.sink.clear(owner="me", flow="flow") == 3


def test_of_rows_of_one_key_the_one_with_the_greatest_version_stands_whenever_it_comes(tmp_path: Path, read: Read) -> None:
    schema = parse_schema("Id BIGINT, `ver-sion` INT, name STRING")
    writer = Writer(place(tmp_path, mode="upsert", key=["Id"], version="ver-sion"), schema)
    rows = [(1, 5, "newest"), (1, 4, "older"), (1, None, "unknown")]
    writer.write(0, [dict(zip(schema.names, row, strict=True)) for row in rows])
    late = [dict(zip(schema.names, row, strict=True)) for row in [(1, 3, "late"), (2, 1, "other")]]
    writer.write(1, late)
    assert {row["name"] for row in read(tmp_path / "kept")} == {"newest", "other"}
    writer.write(2, late[:1])  # changes nothing: there is no commit
    writer.write(3, [late[0] | {"ver-sion": 5, "name": "as new"}])
    assert {row["name"] for row in read(tmp_path / "kept")} == {"as new", "other"}
    told = list(writer.sink.audit(lineage="one", decided=[]))
    assert [each.number for each in told] == [0, 1, 2, 3]


def test_a_table_that_is_there_is_compared_before_anything_is_written(tmp_path: Path) -> None:
    fields = [
        pa.field("id", pa.int32()),
        pa.field("name", pa.string()),
        pa.field("must", pa.date32(), nullable=False),
        ("more", pa.string()),
    ]
    DeltaTable.create(tmp_path / "kept", pa.schema(fields), partition_by=["name"])
    coming = parse_schema("id BIGINT, name STRING, other STRING")
    assert DeltaSink(place(tmp_path)).unlike(coming) == [
        'column "id" is integer in the table, but BIGINT in the flow',
        'the table has no column "other" (STRING); `evolve: add` would add it',
        'the table requires column "must" (date), which the flow does not have',
        'the table has column "more", which the flow does not have; `evolve: add` leaves it null',
        "the table is partitioned by [name], the sink by nothing",
    ]
    by_name = DeltaSink(place(tmp_path, partition_by=["name"], evolve="add"))
    assert by_name.unlike(parse_schema("id INT, name STRING, must DATE, other STRING")) == [
        'column "must" is NOT NULL in the table, and may be null in the flow'
    ]
    assert by_name.unlike(parse_schema("id INT, name STRING, must DATE NOT NULL, other STRING")) == []
    assert DeltaSink(place(tmp_path, path="none")).unlike(SCHEMA) == []
    odd = DeltaSink(place(tmp_path, path="none")).unlike(parse_schema("`a b` INT, id INT, ID INT"))
    assert [text.partition(" ")[0] for text in odd] == ['"a', "columns"]


def test_rules_of_a_table_that_files_are_not_checked_by_are_told(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path / "kept", pa.schema([("id", pa.int64())]), configuration={"delta.appendOnly": "true"})
    table.alter.add_constraint({"positive": "id > 0"})
    schema = parse_schema("id BIGINT")
    (told,) = DeltaSink(place(tmp_path)).unlike(schema)
    assert "delta.constraints.positive" in told
    assert any("delta.appendOnly" in text for text in DeltaSink(place(tmp_path, mode="upsert", key=["id"])).unlike(schema))


def test_columns_come_to_the_table_where_that_is_agreed(tmp_path: Path, read: Read) -> None:
    Writer(place(tmp_path), parse_schema("id BIGINT, old STRING")).write(0, [{"id": 1, "old": "x"}])
    wider = parse_schema("id BIGINT, tags ARRAY<STRING>")
    writer = Writer(place(tmp_path, evolve="add"), wider)
    assert writer.sink.unlike(wider) == []
    writer.write(1, [{"id": 2, "tags": ["a"]}])
    assert sorted(read(tmp_path / "kept"), key=lambda row: row["id"]) == [
        {"id": 1, "old": "x", "tags": None},
        {"id": 2, "old": None, "tags": ["a"]},
    ]
    with pytest.raises(SinkError, match='altered while the flow was running: the table has no column "later"') as told:
        Writer(place(tmp_path), parse_schema("id BIGINT, old STRING, tags ARRAY<STRING>, later INT")).write(2, [{"id": 3}])
    assert told.value.code == "delta-altered"


def test_a_table_with_rows_of_others_is_refused_and_taken_where_that_is_said(tmp_path: Path, read: Read) -> None:
    write_deltalake(tmp_path / "kept", pa.table({"id": pa.array([7], pa.int64())}))
    with pytest.raises(Refused, match="holds rows that this lineage did not write") as told:
        DeltaSink(place(tmp_path)).prepare(owner="me", lineage="one")
    assert "--append-new-lineage" in told.value.remedy
    writer = Writer(place(tmp_path), parse_schema("id BIGINT"), adopt=True)
    decided, _ = writer.stage(0, [{"id": 1}])
    writer.sink.publish(decided)
    assert sorted(row["id"] for row in read(tmp_path / "kept")) == [1, 7]
    assert [each.violations for each in writer.sink.audit(lineage="one", decided=[decided])] == [()]
    with pytest.raises(Refused, match="held rows of other writers when the flow started"):
        writer.sink.clear(owner="me", flow="flow")


def test_what_is_no_table_is_told(tmp_path: Path) -> None:
    (tmp_path / "kept" / "_delta_log").mkdir(parents=True)
    (tmp_path / "kept" / "_delta_log" / "00000000000000000000.json").write_text("no log\n")
    with pytest.raises(SinkError, match="cannot be read as a Delta table") as told:
        DeltaSink(place(tmp_path)).prepare(owner="me", lineage="one")
    assert told.value.remedy


def test_a_file_in_the_place_of_the_table_is_told(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file")
    with pytest.raises(EnvironmentFault, match="Not a directory") as told:
        DeltaSink(place(tmp_path)).unlike(SCHEMA)
    assert told.value.code == "delta-place"


def test_an_answer_that_is_lost_behind_the_commit_is_settled_by_the_log(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = parse_schema("id BIGINT")
    writer = Writer(place(tmp_path), schema)
    writer.write(0, [{"id": 1}])
    decided, _ = writer.stage(1, [{"id": 2}])
    commit = DeltaTable.create_write_transaction

    def lost(*args: Any, **named: Any) -> None:
        commit(*args, **named)
        raise DeltaError("the answer was lost")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost)
    writer.sink.publish(decided)
    assert sorted(row["id"] for row in read(tmp_path / "kept")) == [1, 2]


def test_a_reset_table_can_be_written_again_and_an_older_lineage_cannot(tmp_path: Path, read: Read) -> None:
    schema = parse_schema("id BIGINT")
    old = Writer(place(tmp_path), schema)
    old.write(0, [{"id": 1}])
    assert old.sink.clear(owner="me", flow="flow") == 1
    new = Writer(place(tmp_path), schema, lineage="two")
    new.write(0, [{"id": 2}])
    assert [row["id"] for row in read(tmp_path / "kept")] == [2]


def test_a_driver_that_sleeps_between_its_look_and_its_commit_loses_to_a_newer_lineage(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = parse_schema("id BIGINT")
    old = Writer(place(tmp_path), schema)
    old.write(0, [{"id": 1}])
    decided, _ = old.stage(1, [{"id": 2}])

    def other_first(point: str) -> None:
        if point == "publish.renamed":
            monkeypatch.setattr(faults, "reached", lambda _: None)
            Writer(place(tmp_path), schema, lineage="two", adopt=True).write(0, [{"id": 3}])

    monkeypatch.setattr(faults, "reached", other_first)
    with pytest.raises(FencedError, match="a newer one has claimed"):
        old.sink.publish(decided)
    assert sorted(row["id"] for row in read(tmp_path / "kept")) == [1, 3]


def test_commits_of_others_hold_up_nobody(tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = parse_schema("id BIGINT")
    writer = Writer(place(tmp_path), schema)
    writer.write(0, [{"id": 1}])
    writer.write(1, [{"id": 2}])
    update, times = DeltaTable.update_incremental, iter(range(3))

    def others_follow(table: DeltaTable) -> None:
        update(table)
        match next(times, None):
            case 0 | 1:
                write_deltalake(tmp_path / "kept", pa.table({"id": pa.array([100], pa.int64())}), mode="append")
            case 2:
                DeltaTable(tmp_path / "kept").optimize.compact()

    monkeypatch.setattr(DeltaTable, "update_incremental", others_follow)
    decided, _ = writer.stage(2, [{"id": 3}])
    writer.sink.publish(decided)
    assert next(times, None) is None, "all three collisions came about"
    assert sorted(row["id"] for row in read(tmp_path / "kept")) == [1, 2, 3, 100, 100]
    told = [text for each in writer.sink.audit(lineage="one", decided=[]) for text in each.violations]
    assert told[-1].startswith("2 rows in ")
    with pytest.raises(Refused, match="2 rows that no batch wrote"):
        writer.sink.clear(owner="me", flow="flow")


def test_what_another_adds_to_a_partition_while_it_is_replaced_is_replaced_too(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = parse_schema("id BIGINT, c STRING")
    writer = Writer(place(tmp_path, mode="overwrite", partition_by=["c"]), schema)
    writer.write(0, [{"id": 1, "c": "a"}, {"id": 2, "c": "b"}])
    update, first = DeltaTable.update_incremental, iter([True])

    def other_follows(table: DeltaTable) -> None:
        update(table)
        if next(first, False):
            theirs = pa.table({"id": pa.array([100, 200], pa.int64()), "c": ["a", "b"]})
            write_deltalake(tmp_path / "kept", theirs, mode="append", partition_by=["c"])

    monkeypatch.setattr(DeltaTable, "update_incremental", other_follows)
    writer.write(1, [{"id": 3, "c": "a"}])
    assert next(first, None) is None
    assert sorted(row["id"] for row in read(tmp_path / "kept")) == [2, 3, 200]


def test_two_drivers_with_one_decision_commit_it_once(tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = parse_schema("id BIGINT")
    one, two = Writer(place(tmp_path), schema), Writer(place(tmp_path), schema)
    one.write(0, [{"id": 1}])
    decided, _ = one.stage(1, [{"id": 2}])
    update, first = DeltaTable.update_incremental, iter([True])

    def other_first(table: DeltaTable) -> None:
        update(table)
        if next(first, False):
            two.sink.publish(decided)

    monkeypatch.setattr(DeltaTable, "update_incremental", other_first)
    one.sink.publish(decided)
    assert sorted(row["id"] for row in read(tmp_path / "kept")) == [1, 2]


def test_a_driver_that_was_overtaken_writes_nothing_more(tmp_path: Path, read: Read) -> None:
    schema = parse_schema("id BIGINT")
    old, new = Writer(place(tmp_path), schema, term=1), Writer(place(tmp_path), schema, term=2)
    of_old, _ = old.stage(0, [{"id": 1}])
    new.write(0, [{"id": 2}])
    with pytest.raises(FencedError, match="already exists with another"):
        old.sink.publish(of_old)
    after, _ = old.stage(1, [{"id": 3}])
    with pytest.raises(FencedError, match="newer Term 2"):
        old.sink.publish(after)
    assert [row["id"] for row in read(tmp_path / "kept")] == [2]


def test_a_kill_at_any_point_of_a_publication_is_made_good(tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = parse_schema("id BIGINT, c STRING")
    points = ("publish.record.before", "publish.record.after", "publish.renamed", "the log's commit")
    for number, point in enumerate(points):
        writer = Writer(place(tmp_path, partition_by=["c"]), schema)
        decided, _ = writer.stage(number, [{"id": 2 * number, "c": "a"}, {"id": 2 * number + 1, "c": "b"}])

        def die(reached: str, point: str = point) -> None:
            if reached == point:
                raise KeyboardInterrupt

        def die_behind(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(faults, "reached", die)
            if point == points[-1]:
                patched.setattr(LineageFolder, "write_mark", die_behind)
            with pytest.raises(KeyboardInterrupt):
                writer.sink.publish(decided)
        Writer(place(tmp_path, partition_by=["c"]), schema).sink.recover(decided, lineage="one", before=number + 1)
        assert sorted(row["id"] for row in read(tmp_path / "kept")) == list(range(2 * number + 2)), point


def test_a_batch_that_was_committed_and_compacted_before_its_driver_knew_is_not_committed_again(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = parse_schema("id BIGINT")
    writer = Writer(place(tmp_path), schema)
    writer.write(0, [{"id": 1}])
    decided, _ = writer.stage(1, [{"id": 2}])

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LineageFolder, "write_mark", dies)
        with pytest.raises(KeyboardInterrupt):
            writer.sink.publish(decided)
    DeltaTable(tmp_path / "kept").optimize.compact()
    Writer(place(tmp_path), schema).sink.recover(decided, lineage="one", before=2)
    assert sorted(row["id"] for row in read(tmp_path / "kept")) == [1, 2]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_what_attempts_have_staged_goes_once_their_batch_is_through(tmp_path: Path, read: Read, mode: str) -> None:
    schema = parse_schema("id BIGINT")
    writer = Writer(place(tmp_path, mode=mode, key=["id"]), schema)
    killed = writer.sink.stream(BatchId("flow", "query", "one", 0, 1), 0, "killed", schema)
    killed.write(pa.RecordBatch.from_pylist([{"id": 1}], schema=arrow_schema(schema)))
    killed.close()  # and the receipt never arrives
    sleeping, _ = writer.stage(1, [{"id": 3}])
    writer.write(0, [{"id": 2}])
    assert [path.parent.name for path in tmp_path.glob("kept/_scribengin/one/staged/*/*")] == ["0000000001"]
    writer.sink.publish(sleeping)
    assert sorted(row["id"] for row in read(tmp_path / "kept")) == [2, 3]
    assert not [*tmp_path.glob("kept/_scribengin/one/staged/*/*")]


def test_no_vacuum_takes_what_is_staged_or_decided(tmp_path: Path, read: Read) -> None:
    schema = parse_schema("id BIGINT, c STRING")
    writer = Writer(place(tmp_path, partition_by=["c"]), schema)
    writer.write(0, [{"id": 1, "c": "a"}])
    decided, _ = writer.stage(1, [{"id": 2, "c": "a"}])
    DeltaTable(tmp_path / "kept").vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    writer.sink.publish(decided)
    assert sorted(row["id"] for row in read(tmp_path / "kept")) == [1, 2]
    assert [each.violations for each in writer.sink.audit(lineage="one", decided=[decided])] == [(), ()]


def test_what_is_gone_from_a_table_is_found_by_an_audit(tmp_path: Path) -> None:
    schema = parse_schema("id BIGINT")
    writer = Writer(place(tmp_path), schema)
    decided = []
    for number in range(4):
        each, _ = writer.stage(number, [{"id": number * 10 + n} for n in range(5)])
        writer.sink.publish(each)
        decided.append(each)
    DeltaTable(tmp_path / "kept").delete("id >= 10 AND id < 15")
    files = sorted((tmp_path / "kept").glob("part-*2-00000-*"))
    files[0].write_bytes(files[0].read_bytes()[:-9])
    next((tmp_path / "kept").glob("part-*3-00000-*")).unlink()
    told = {each.number: " ".join(each.violations) for each in writer.sink.audit(lineage="one", decided=decided)}
    assert told[0] == ""
    assert "(5 rows) was removed from the table by DELETE (version" in told[1]
    assert "bytes" in told[2]
    assert "is missing: 5 rows" in told[3]


def test_staged_files_that_are_gone_stop_the_flow(tmp_path: Path, read: Read) -> None:
    for mode, options in (("append", {}), ("upsert", {"key": ["id"]})):
        writer = Writer(place(tmp_path, path=mode, mode=mode, **options), parse_schema("id BIGINT"))
        decided, _ = writer.stage(0, [{"id": 1}, {"id": 2}])
        next((tmp_path / mode).glob("_scribengin/one/staged/*/*")).unlink()
        with pytest.raises(StateError) as told:
            writer.sink.publish(decided)
        assert "restore" in told.value.remedy
        assert read(tmp_path / mode) == []
