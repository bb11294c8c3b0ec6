"""The sink over a real object store, without Spark: the contract, rivals, what attempts leave, readers."""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from contextlib import suppress
from subprocess import PIPE, Popen
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyarrow.fs import S3FileSystem, SubTreeFileSystem

from harness.object_stores import options
from scribengin.cli.main import main
from scribengin.connectors.contract import BatchId
from scribengin.connectors.delta import make_sink, table_place
from scribengin.connectors.delta.maintenance import keep_table
from scribengin.connectors.delta.options import SINK
from scribengin.connectors.delta.stored import StoredLineage, StorePlace
from scribengin.connectors.objects.manifests import Manifests, Notes
from scribengin.connectors.objects.s3 import Uploads
from scribengin.core import faults
from scribengin.core.errors import FencedError, Refused, StateError
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.conformance import check_sink
from tests.connectors.delta.driver import Writer, place
from tests.connectors.group.alternating import Alternating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from scribengin.connectors.contract import ConnectorContext
    from scribengin.connectors.objects.s3 import S3Store
    from scribengin.embedded.objects import ObjectServer

    At = Callable[..., ConnectorContext]

SCHEMA = parse_schema("id BIGINT NOT NULL, name STRING, amount DOUBLE, at TIMESTAMP, tags ARRAY<STRING>")
IDS = parse_schema("id BIGINT")
NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
ROWS = [
    {"id": n, "name": None if n == 2 else 'a "quoted", odd\nname \\N%41', "amount": n / 4, "at": NOON, "tags": ["a", 'b"']}
    for n in range(6)
]
LARGE, RETAIN_S = 1 << 20, 7 * 86400.0
HOUR_S = 3600.0


@pytest.fixture
def at(server: ObjectServer, prefix: str, tmp_path: Path) -> At:
    """A sink's place in the store."""

    def made(below: str = "", **more: Any) -> ConnectorContext:
        given = options(server, prefix + below)
        return place(tmp_path, **{"path": given.pop("url"), **given, **more})

    return made


def stored(where: ConnectorContext) -> StorePlace:
    found = table_place(where.node, where.options, where.folder)
    assert isinstance(found, StorePlace)
    return found


def dataset(where: ConnectorContext) -> Any:
    """As a foreign reader has it, by Arrow's own client of S3."""
    lies = stored(where)
    table = lies.open()
    login = lies.address.login
    assert login is not None
    endpoint = (lies.address.endpoint or "").removeprefix("http://")
    files = S3FileSystem(access_key=login.key, secret_key=login.secret, endpoint_override=endpoint, scheme="http", region="us-east-1")
    return None if table is None else table.to_pyarrow_dataset(filesystem=SubTreeFileSystem(lies.uri.removeprefix("s3://"), files))


def rows(where: ConnectorContext, *names: str) -> list[dict[str, Any]]:
    found = dataset(where)
    read = [] if found is None else found.to_table().to_pylist()
    utc = [{name: value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value for name, value in row.items()} for row in read]
    return [{name: row[name] for name in names or row} for row in utc]


def ids(where: ConnectorContext) -> list[int]:
    return sorted(row["id"] for row in rows(where))


def keys(where: ConnectorContext, folder: str = "") -> list[str]:
    return [entry.key for entry in stored(where).store.list(folder)]


@pytest.mark.long
def test_a_group_of_two_tables_keeps_the_contract_of_one(at: At, tmp_path: Path) -> None:
    both = [at("/near"), at("/far")]
    given = tuple(where.options for where in both)

    def found() -> list[dict[str, Any]]:
        return [row for where in both for row in rows(where, *SCHEMA.names)]

    check_sink(lambda: Alternating("delta", given, tmp_path), found, schema=SCHEMA, rows=ROWS)
    assert all(map(rows, both))


@pytest.mark.parametrize("more", [pytest.param({}, marks=pytest.mark.long), {"partition_by": ["name"]}])
def test_it_keeps_the_contract(at: At, more: dict[str, Any]) -> None:
    where = at(**more)
    check_sink(lambda: make_sink(where), lambda: rows(where, *SCHEMA.names), schema=SCHEMA, rows=ROWS, declared=SINK, options=where.options)
    sink: Any = make_sink(where)
    with pytest.raises(Refused, match='holds objects of the flow "flow"'):
        sink.clear(owner="conformance", flow="another")
    assert (objects := sink.clear(owner="conformance", flow="flow", dry_run=True)) > 5
    assert sink.clear(owner="conformance", flow="flow") == objects
    assert rows(where) == []
    assert keys(where, "_scribengin") == []
    sink.prepare(owner="another", lineage="after")


def test_rows_are_replaced_by_partition_and_by_key(at: At) -> None:
    schema = parse_schema("id BIGINT, c STRING, v INT")

    def made(*given: tuple[int, str, int | None]) -> list[dict[str, Any]]:
        return [dict(zip(schema.names, row, strict=True)) for row in given]

    parted = at("/parted", mode="overwrite", partition_by=["c"])
    writer = Writer(parted, schema)
    writer.write(0, made((1, "a b", 1), (2, "e", 1)))
    writer.write(1, made((3, "a b", 1)))
    assert ids(parted) == [2, 3]
    keyed = at("/keyed", mode="upsert", key=["id"], version="v", partition_by=["c"])
    writer = Writer(keyed, schema)
    first, _ = writer.stage(0, made((1, "newest", 5), (1, "older", 4)), made((2, "b", 1)))
    writer.sink.publish(first)
    decided, _ = writer.stage(1, made((1, "late", 3)))
    writer.sink.publish(decided)  # changes nothing: there is no commit
    Writer(keyed, schema).sink.recover(decided, lineage="one", before=2)
    third, _ = writer.stage(2, made((2, "d", 2), (3, "e", None)))
    writer.sink.publish(third)
    assert sorted((row["id"], row["c"]) for row in rows(keyed)) == [(1, "newest"), (2, "d"), (3, "e")]
    told = list(writer.sink.audit(lineage="one", decided=[first, decided, third]))
    assert [(each.number, each.violations) for each in told] == [(0, ()), (1, ()), (2, ())]
    assert keys(keyed, "_scribengin/rows") == []
    assert [key.rpartition("/")[2] for key in keys(keyed, "_scribengin/one/published")] == ["0000000002"]
    assert writer.sink.clear(owner="me", flow="flow") == 3


@pytest.mark.parametrize("more", [{"partition_by": ["c"]}, {"mode": "upsert", "key": ["id"]}])
def test_a_kill_at_any_point_of_a_publication_is_made_good(at: At, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    schema = parse_schema("id BIGINT, c STRING")
    where = at(**more)
    for number, point in enumerate(("publish.record.before", "publish.record.after", "behind the commit", "behind the mark")):
        writer = Writer(where, schema)
        decided, _ = writer.stage(number, [{"id": 2 * number, "c": "a"}, {"id": 2 * number + 1, "c": "b"}])

        def die(reached: str, point: str = point) -> None:
            if reached == point:
                raise KeyboardInterrupt

        def die_behind(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(faults, "reached", die)
            if point == "behind the commit":
                patched.setattr(*(StoredLineage, "write_mark") if "key" in more else (Notes, "sweep"), die_behind)
            elif point == "behind the mark":
                patched.setattr(Notes, "sweep", die_behind)
            with pytest.raises(KeyboardInterrupt):
                writer.sink.publish(decided)
        Writer(where, schema).sink.recover(decided, lineage="one", before=number + 1)
        assert ids(where) == list(range(2 * number + 2)), point
    assert [key for key in keys(where, "_scribengin") if "/staged/" in key or "/rows/" in key] == []


def test_a_driver_that_sleeps_loses_to_a_newer_lineage_before_and_behind_its_record(at: At, monkeypatch: pytest.MonkeyPatch) -> None:
    for nth, point in enumerate(("publish.record.before", "publish.record.after")):
        where = at(f"/{nth}")
        old = Writer(where, IDS)
        old.write(0, [{"id": 1}])
        decided, _ = old.stage(1, [{"id": 2}])

        def other_first(reached: str, point: str = point, where: ConnectorContext = where) -> None:
            if reached == point:
                monkeypatch.setattr(faults, "reached", lambda _: None)
                Writer(where, IDS, lineage="two", adopt=True).write(0, [{"id": 3}])

        monkeypatch.setattr(faults, "reached", other_first)
        with pytest.raises(FencedError):
            old.sink.publish(decided)
        assert ids(where) == [1, 3]
        with pytest.raises(FencedError):
            old.sink.publish(decided)
        assert keys(where, "_scribengin/two/staged") == []
        known = stored(where)
        recorded = [number for number, _ in Manifests(known.store, "one").committed()]
        assert recorded == ([0] if point == "publish.record.before" else [0, 1]), "a lineage that is over records nothing more"
        sink: Any = make_sink(where)
        told = [text for each in sink.audit(lineage="two", decided=[]) for text in each.violations]
        assert told == ["batch 0 is published, but there is no decision for it"], "its rows are counted, and its end is none of its Batches"


def test_two_drivers_with_one_decision_commit_it_once(at: At) -> None:
    where = at()
    writers = [Writer(where, IDS) for _ in range(2)]
    for number in range(5):
        decided, _ = writers[0].stage(number, [{"id": number}])
        gate = Barrier(2)

        def publish(writer: Writer, gate: Barrier = gate, decided: Any = decided) -> None:
            gate.wait()
            writer.sink.publish(decided)

        threads = [Thread(target=publish, args=(writer,)) for writer in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ids(where) == list(range(number + 1))


def test_commits_of_others_hold_up_nobody(at: At, monkeypatch: pytest.MonkeyPatch) -> None:
    where = at()
    lies = stored(where)
    writer = Writer(where, IDS)
    writer.write(0, [{"id": 1}])
    writer.write(1, [{"id": 2}])
    update, times = DeltaTable.update_incremental, iter(range(2))

    def others_follow(table: DeltaTable) -> None:
        update(table)
        match next(times, None):
            case 0:
                write_deltalake(lies.uri, pa.table({"id": pa.array([100], pa.int64())}), mode="append", storage_options=lies.options)
            case 1:
                DeltaTable(lies.uri, storage_options=lies.options).optimize.compact()

    monkeypatch.setattr(DeltaTable, "update_incremental", others_follow)
    decided, _ = writer.stage(2, [{"id": 3}])
    writer.sink.publish(decided)
    assert next(times, None) is None, "both collisions came about"
    assert ids(where) == [1, 2, 3, 100]
    told = [text for each in writer.sink.audit(lineage="one", decided=[]) for text in each.violations]
    assert told[-1] == f"1 rows in {lies.uri} belong to no batch"


@pytest.mark.parametrize(("rivals", "versions"), [pytest.param(2, 20, marks=pytest.mark.long), (16, 5)])
def test_one_of_rivals_for_a_version_wins(at: At, rivals: int, versions: int) -> None:
    lies = stored(at())
    DeltaTable.create(lies.uri, pa.schema([("id", pa.int64())]), storage_options=lies.options)
    assert winners(lies, rivals, versions) == [1] * versions


def winners(lies: StorePlace, rivals: int, versions: int) -> list[int]:
    """How many of the rivals have committed, of each version."""
    won: list[int] = []
    for version in range(versions):
        tables = [DeltaTable(lies.uri, storage_options=lies.options) for _ in range(rivals)]
        gate, through = Barrier(rivals), list[int]()

        def commit(rival: int, table: DeltaTable, gate: Barrier = gate, through: list[int] = through, version: int = version) -> None:
            known = CommitProperties(max_commit_retries=0, app_transactions=[Transaction("scribengin", rivals * version + rival)])
            gate.wait()
            with suppress(CommitFailedError):
                table.create_write_transaction([], "append", table.schema(), [], commit_properties=known)
                through.append(rival)

        threads = [Thread(target=commit, args=each) for each in enumerate(tables)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        won.append(len(through))
        assert DeltaTable(lies.uri, storage_options=lies.options).version() == version + 1
    return won


RIVAL = """
import sys
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
uri, rival, versions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = dict(line.rstrip("\\n").split("=", 1) for line in iter(sys.stdin.readline, "\\n"))
won = 0
for version in range(versions):
    table = DeltaTable(uri, storage_options=store)
    print("ready", flush=True)
    sys.stdin.readline()
    known = CommitProperties(max_commit_retries=0, app_transactions=[Transaction("scribengin", 100 * version + rival)])
    try:
        table.create_write_transaction([], "append", table.schema(), [], commit_properties=known)
        print("won", flush=True)
    except CommitFailedError:
        print("lost", flush=True)
"""


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("rivals", "versions"), [(2, 200), (16, 200)])
def test_one_of_processes_that_are_rivals_for_a_version_wins(at: At, rivals: int, versions: int) -> None:
    lies = stored(at())
    DeltaTable.create(lies.uri, pa.schema([("id", pa.int64())]), storage_options=lies.options)
    processes = [
        Popen([sys.executable, "-c", RIVAL, lies.uri, str(rival), str(versions)], stdin=PIPE, stdout=PIPE, text=True, bufsize=1)
        for rival in range(rivals)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("".join(f"{name}={value}\n" for name, value in lies.options.items()) + "\n")
    for _ in range(versions):
        said: list[str] = []
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
        for process in processes:
            assert process.stdout is not None
            said.append(process.stdout.readline().strip())
        assert (said.count("won"), said.count("lost")) == (1, rivals - 1)
    for process in processes:
        process.communicate(timeout=60)
    assert DeltaTable(lies.uri, storage_options=lies.options).version() == versions


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_what_attempts_have_left_goes_once_their_batch_is_through(at: At, mode: str) -> None:
    where = at(mode=mode, key=["id"])
    lies = stored(where)
    writer = Writer(where, IDS)
    killed = writer.sink.stream(BatchId("flow", "query", "one", 0, 1), 0, "killed", IDS)
    killed.write(pa.RecordBatch.from_pylist([{"id": 1}], schema=arrow_schema(IDS)))
    killed.close()  # and the receipt never arrives
    sleeping, _ = writer.stage(1, [{"id": 3}])
    writer.write(0, [{"id": 2}])
    assert not [key for key in keys(where) if "killed" in key]
    assert lies.waiting() == {sleeping.receipts[0].segments[0]["name"]}
    writer.sink.publish(sleeping)
    assert ids(where) == [2, 3]
    assert not lies.waiting()


def test_nothing_that_a_batch_may_need_is_cleared_away(at: At, monkeypatch: pytest.MonkeyPatch) -> None:
    where = at()
    lies = stored(where)
    writer = Writer(where, IDS)
    writer.write(0, [{"id": 0}])
    decided, _ = writer.stage(1, [{"id": 1}])
    undecided, _ = writer.stage(2, [{"id": 2}])
    lies.store.put("stray.parquet", b"nobody's")

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Notes, "staged", dies)
        patched.setattr("scribengin.connectors.delta.commits.TableCommits.commit", dies)
        with pytest.raises(KeyboardInterrupt):
            writer.sink.publish(decided)
    with monkeypatch.context() as patched:
        # what is recorded is known by that alone
        patched.setattr(StorePlace, "waiting", lambda _: {undecided.receipts[0].segments[0]["name"]})
        assert keep_table(lies, LARGE, 0.0, flush=True).files == 1
    assert keep_table(lies, LARGE, 0.0, flush=True).files == 0
    again = Writer(where, IDS)
    again.sink.recover(decided, lineage="one", before=2)
    again.sink.publish(undecided)
    assert ids(where) == [0, 1, 2]


def test_a_file_that_somebody_has_cleared_away_before_its_commit_stops_the_flow(at: At) -> None:
    for mode in ("append", "upsert"):
        where = at(f"/{mode}", mode=mode, key=["id"])
        lies = stored(where)
        writer = Writer(where, IDS)
        writer.write(0, [{"id": 0}])
        decided, _ = writer.stage(1, [{"id": 1}])
        table = lies.open()
        assert table is not None
        table.vacuum(dry_run=False, full=True)  # as anybody does, with the days that readers have
        assert decided.receipts[0].segments[0]["name"] in keys(where)
        lies.store.delete(decided.receipts[0].segments[0]["name"])
        with pytest.raises(StateError, match="which is missing") as told:
            writer.sink.publish(decided)
        assert "restore" in told.value.remedy
        assert ids(where) == [0]


def test_small_files_become_large_ones_and_what_was_given_up_goes(at: At) -> None:
    schema = parse_schema("id BIGINT, c STRING")
    where = at(partition_by=["c"])
    lies = stored(where)
    writer, decided = Writer(where, schema), []
    for number in range(4):
        each, _ = writer.stage(number, [{"id": number, "c": "a b"}, {"id": 100 + number, "c": None}])
        writer.sink.publish(each)
        decided.append(each)
    assert not keep_table(lies, LARGE, RETAIN_S).anything, "too few of them"
    done = keep_table(lies, LARGE, RETAIN_S, flush=True)
    assert (done.merged, done.merged_files, done.files) == (8, 2, 0)
    told = list(writer.sink.audit(lineage="one", decided=decided))
    assert [(each.number, each.rows, each.violations) for each in told] == [(number, 2, ()) for number in range(4)]
    done = keep_table(lies, LARGE, 0.0)
    assert (done.files, len([key for key in keys(where) if key.endswith(".parquet")])) == (8, 2)
    assert done.bytes > 0
    assert len(rows(where)) == 8
    assert all(not each.violations for each in writer.sink.audit(lineage="one", decided=decided))
    assert writer.sink.clear(owner="me", flow="flow") == 8


def test_what_dead_tasks_have_left_is_cleared_away(at: At, monkeypatch: pytest.MonkeyPatch) -> None:
    where = at(mode="upsert", key=["id"])
    lies = stored(where)
    store: S3Store = lies.store  # type: ignore[assignment]
    writer = Writer(where, IDS)
    writer.write(0, [{"id": 0}])
    decided, _ = writer.stage(1, [{"id": 1}])
    late = "_scribengin/rows/part-0000000000-00000-00001-late.parquet"
    store.put(late, b"by a task that did not hear that its batch is through")
    uploads = Uploads(store)
    uploads.begin(late.replace("late", "cut"))
    theirs = "part-00000-of-a-compaction.parquet"
    uploads.begin(theirs)
    assert keep_table(lies, LARGE, RETAIN_S).files == 0, "it may still be at work"
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 2 * HOUR_S)
    writer.sink.publish(decided)
    assert keep_table(lies, LARGE, RETAIN_S).files == 1
    assert keys(where, "_scribengin/rows") == []
    assert [key for key, _ in uploads.unfinished()] == [theirs]


def test_what_is_gone_from_a_table_is_found_by_an_audit(at: At) -> None:
    where = at()
    lies = stored(where)
    writer, decided = Writer(where, IDS), []
    for number in range(4):
        each, _ = writer.stage(number, [{"id": number * 10 + n} for n in range(5)])
        writer.sink.publish(each)
        decided.append(each)
    table = lies.open()
    assert table is not None
    table.delete("id >= 10 AND id < 15")
    second, third = (decided[number].receipts[0].segments[0]["name"] for number in (2, 3))
    data = lies.store.get(second)
    assert data is not None
    lies.store.delete(second, third)
    lies.store.put(second, data[:-9])
    told = {each.number: " ".join(each.violations) for each in writer.sink.audit(lineage="one", decided=decided)}
    assert told[0] == ""
    assert "(5 rows) was removed from the table by DELETE (version" in told[1]
    assert "bytes" in told[2]
    assert "is missing: 5 rows" in told[3]


def test_a_table_with_rows_of_others_is_refused_and_taken_where_that_is_said(at: At) -> None:
    where = at()
    lies = stored(where)
    write_deltalake(lies.uri, pa.table({"id": pa.array([7], pa.int64())}), storage_options=lies.options)
    with pytest.raises(Refused, match="holds rows that this lineage did not write") as told:
        make_sink(where).prepare(owner="me", lineage="one")
    assert "--append-new-lineage" in told.value.remedy
    writer = Writer(where, IDS, adopt=True)
    writer.write(0, [{"id": 1}])
    assert ids(where) == [1, 7]
    with pytest.raises(Refused, match="held rows of other writers when the flow started"):
        writer.sink.clear(owner="me", flow="flow")


@pytest.fixture(scope="module")
def read_by_all(server: ObjectServer, tmp_path_factory: pytest.TempPathFactory) -> ConnectorContext:
    """With partitions, a column that came later, and a file of a compaction."""
    given = options(server, "read/by/all")
    where = place(tmp_path_factory.mktemp("lake"), path=given.pop("url"), **given, partition_by=["c"], evolve="add")
    schema = parse_schema("id BIGINT, c STRING")
    wider = parse_schema("id BIGINT, c STRING, later INT")
    for number in range(4):
        rows = [{"id": 10 * number + n, "c": ["DE", "a b", None][n % 3]} | ({"later": n} if number == 3 else {}) for n in range(6)]
        Writer(where, wider if number == 3 else schema).write(number, rows)
        if number == 2:
            assert keep_table(stored(where), LARGE, 0.0, flush=True).merged == 9
    return where


def by_duckdb(where: ConnectorContext) -> Iterable[dict[str, Any]]:
    with duckdb.connect() as connection:
        return pa.table(connection.from_arrow(dataset(where)).arrow()).to_pylist()


def by_datafusion(where: ConnectorContext) -> Iterable[dict[str, Any]]:
    table = stored(where).open()
    assert table is not None
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    return pa.table(found).to_pylist()


@pytest.mark.parametrize("reader", [rows, by_duckdb, by_datafusion])
def test_readers_find_the_same_rows(read_by_all: ConnectorContext, reader: Callable[[ConnectorContext], Iterable[dict[str, Any]]]) -> None:
    found = sorted(reader(read_by_all), key=lambda row: row["id"])
    assert [(row["id"], row["c"], row["later"]) for row in found] == [
        (10 * number + n, ["DE", "a b", None][n % 3], n if number == 3 else None) for number in range(4) for n in range(6)
    ]


def test_the_command_keeps_a_table_of_a_store(
    server: ObjectServer, at: At, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(server.credentials))
    for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_SHARED_CREDENTIALS_FILE"]:
        monkeypatch.delenv(name)
    where = at()
    (tmp_path / "flow.yaml").write_text(
        "version: 1\nname: flow\nsources: {a: {type: files, path: data, format: text}}\n"
        f'sinks: {{kept: {{from: a, type: delta, path: "{where.options["path"]}", endpoint: "{server.uri}"}}}}\n'
    )
    writer = Writer(where, IDS)
    for number in range(3):
        writer.write(number, [{"id": number}])
    with pytest.raises(SystemExit) as left:
        main(["maintain", str(tmp_path / "flow.yaml"), "--flush"])
    assert left.value.code == 0
    assert f"{where.options['path']}: 3 segments merged to 1 files" in capsys.readouterr().out
