"""Committed segments that are hidden, and the roller that makes large files of them."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from file_sinks import LINEAGE, batch, decide, ids, internal, make, rows, stage, visible

from scribengin.connectors.contract import Decided
from scribengin.connectors.files.compaction_state import newest_turn
from scribengin.connectors.files.maintenance import MaintenanceRun, keep_folder, roll_folder
from scribengin.connectors.files.retention import RetentionSettings
from scribengin.connectors.files.sink_folders import LineageFolder
from scribengin.core import faults, numbered_log
from scribengin.core.errors import EnvironmentFault, FencedError, StateError
from scribengin.core.faults import ROLL_POINTS
from scribengin.core.process import within
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.local.background_compaction import BackgroundCompaction
from scribengin.testing.checker import _read_file, visible_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.connectors.files.sink import FilesSink

ROLL = {"size": 10**6, "every": 300.0}


def may() -> None:
    """The right is held."""


def rolling(folder: Path, **options: Any) -> FilesSink:
    return make(folder, **({"roll": ROLL} | options))


def publish(sink: FilesSink, numbers: range) -> list[Decided]:
    decided = [decide(sink, number, rows(2 * number, 2 * number + 1)) for number in numbers]
    for each in decided:
        sink.publish(each)
    return decided


def wrong(sink: FilesSink, decided: list[Decided]) -> list[str]:
    found = list(sink.audit(lineage=LINEAGE, decided=decided))
    rows_ = sum(each.rows for each in found)
    expected = sum(receipt.rows for each in decided for receipt in each.receipts)
    return [said for each in found for said in each.violations] + ([] if rows_ == expected else [f"{rows_} rows of {expected}"])


def hidden(folder: Path) -> int:
    return len(internal(folder, "hidden"))


def later(seconds: float) -> Callable[[], float]:
    return lambda: time.time() + seconds


def test_what_is_committed_stays_hidden_until_it_is_merged_to_one_file_in_order(tmp_path: Path) -> None:
    sink = rolling(tmp_path)
    decided = publish(sink, range(5))
    assert (visible(tmp_path), hidden(tmp_path), wrong(sink, decided)) == ([], 5, [])
    done = roll_folder(tmp_path / "out", may)
    assert done == MaintenanceRun()
    assert done.due_s == pytest.approx(300, abs=60)
    assert roll_folder(tmp_path / "out", may, now_s=later(301)) == MaintenanceRun(merged=5, merged_files=1, merged_bytes=sum_bytes(decided))
    (name,) = visible(tmp_path)
    assert name.startswith("part-0000000000-00000-000")
    assert name.endswith("-0000000004.jsonl")
    assert ids(tmp_path) == list(range(10))
    assert (hidden(tmp_path), internal(tmp_path, "merged"), wrong(sink, decided)) == (0, [], [])
    decided += publish(sink, range(5, 7))
    assert roll_folder(tmp_path / "out", may, flush=True).merged == 2
    assert ids(tmp_path) == list(range(14))
    assert wrong(sink, decided) == []


def sum_bytes(decided: list[Decided]) -> int:
    return sum(receipt.bytes for each in decided for receipt in each.receipts)


def test_a_clock_that_was_put_back_makes_nothing_wait_for_long(tmp_path: Path) -> None:
    sink = rolling(tmp_path)
    decided = publish(sink, range(2))
    done = roll_folder(tmp_path / "out", may, now_s=later(-10))
    assert (done.merged, done.due_s) == (0, pytest.approx(310, abs=60)), "clocks of two hosts differ a little"
    assert roll_folder(tmp_path / "out", may, now_s=later(-86400 * 365)).merged == 2
    assert wrong(sink, decided) == []


def test_so_much_is_merged_as_makes_the_size_and_the_rest_waits(tmp_path: Path) -> None:
    sink = rolling(tmp_path, roll={"size": 150, "every": 300.0})
    decided = publish(sink, range(7))
    size = decided[0].receipts[0].bytes
    assert 75 < size < 150, "two batches make one file"
    assert roll_folder(tmp_path / "out", may).merged_files == 3
    assert (len(visible(tmp_path)), hidden(tmp_path)) == (3, 1)
    assert ids(tmp_path) == list(range(12))
    assert wrong(sink, decided) == []


def test_a_segment_that_is_large_is_published_as_it_is_and_nothing_is_merged_past_it(tmp_path: Path) -> None:
    sink = rolling(tmp_path, roll={"size": 1000, "every": 300.0})
    decided = publish(sink, range(2))
    decided.append(decide(sink, 2, rows(*range(4, 104))))
    sink.publish(decided[-1])
    assert len(ids(tmp_path)) == 100
    decided += [decide(sink, 3, rows(104))]
    sink.publish(decided[-1])
    roll_folder(tmp_path / "out", may)
    assert hidden(tmp_path) == 1, "what stands before it can grow no more"
    assert ids(tmp_path) == list(range(104))
    roll_folder(tmp_path / "out", may, flush=True)
    assert ids(tmp_path) == list(range(105))
    assert wrong(sink, decided) == []


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("format", ["json", "csv", "text", "parquet"])
def test_each_format_is_merged_so_that_other_readers_take_it(tmp_path: Path, format: str, compression: str) -> None:
    sink = rolling(tmp_path, format=format, compression=compression)
    form = parse_schema("line STRING") if format == "text" else parse_schema('id BIGINT, `a "name",\nin lines` STRING')
    decided, expected = [], []
    for number in range(4):
        values = [
            {"line": f"{number}-{n}"} if format == "text" else dict(zip(form.names, (n, f"{number}\n{n}"), strict=True)) for n in range(3)
        ]
        expected += values
        stream = sink.stream(batch(number), 0, "a", form)
        stream.write(pa.RecordBatch.from_pylist(values, schema=arrow_schema(form)))
        decided.append(Decided(batch(number), f"h{number}", (stream.close(),)))
        sink.publish(decided[-1])
    roll_folder(tmp_path / "out", may, flush=True)
    (name,) = visible(tmp_path)
    assert list(read(tmp_path / "out" / name, format)) == expected
    assert wrong(sink, decided) == []


def read(path: Path, format: str) -> Iterator[dict[str, Any]]:
    for row in _read_file(path, format) if format != "text" else ():
        yield {**row, "id": int(row["id"])} if "id" in row else row
    if format == "text":
        with pa.input_stream(str(path), compression="detect") as lines:
            yield from ({"line": line} for line in bytes(lines.read()).decode().split("\n")[:-1])


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_segments_of_other_columns_begin_a_file_of_their_own(tmp_path: Path, format: str) -> None:
    sink = rolling(tmp_path, format=format)
    decided = publish(sink, range(2))
    other = parse_schema("id BIGINT, town STRING")
    for number in (2, 3):
        stream = sink.stream(batch(number), 0, "a", other)
        stream.write(pa.RecordBatch.from_pylist([{"id": number, "town": "x"}], schema=arrow_schema(other)))
        decided.append(Decided(batch(number), f"h{number}", (stream.close(),)))
        sink.publish(decided[-1])
    assert roll_folder(tmp_path / "out", may, flush=True).merged_files == 2
    assert wrong(sink, decided) == []


CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"compression": "gzip"}),
    ({"compression": "zstd"}, {"compression": "gzip"}),
    ({"evolve": "any"}, {"format": "parquet", "evolve": "any"}),
    ({"format": "csv"}, {"format": "csv", "header": False}),
    ({"format": "csv"}, {"format": "csv", "delimiter": ";"}),
    ({"format": "csv", "header": False}, {"format": "csv", "header": False, "null": "NA"}),
    ({"format": "csv", "evolve": "any"}, {"format": "json", "evolve": "any"}),
]


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("pair", CHANGES)
def test_what_was_hidden_before_an_option_changed_is_merged_by_itself(tmp_path: Path, pair: tuple[Any, Any], back: bool) -> None:
    first, second = reversed(pair) if back else pair
    decided = publish(rolling(tmp_path, **first), range(2))
    sink = rolling(tmp_path, **second)
    decided += publish(sink, range(2, 4))
    assert roll_folder(tmp_path / "out", may, flush=True).merged_files == 2
    assert wrong(sink, decided) == [], "each file is read as what it is"
    alone: dict[str, list[bytes]] = {}
    for name, options, numbers in (("a", first, range(2)), ("b", second, range(2, 4))):
        publish(rolling(tmp_path / name, **options), numbers)
        roll_folder(tmp_path / name / "out", may, flush=True)
        alone[name] = [(tmp_path / name / "out" / each).read_bytes() for each in visible(tmp_path / name)]
    assert [(tmp_path / "out" / name).read_bytes() for name in visible(tmp_path)] == alone["a"] + alone["b"]


def test_headerless_csv_of_other_columns_is_merged_by_itself(tmp_path: Path) -> None:
    sink = rolling(tmp_path, format="csv", header=False)
    publish(sink, range(2))
    stream = sink.stream(batch(2), 0, "a", parse_schema("town STRING, id BIGINT"))
    stream.write(pa.RecordBatch.from_pylist([{"town": "x", "id": 7}], schema=arrow_schema(parse_schema("town STRING, id BIGINT"))))
    sink.publish(Decided(batch(2), "h2", (stream.close(),)))
    assert roll_folder(tmp_path / "out", may, flush=True).merged_files == 2


def test_row_groups_of_many_segments_become_few(tmp_path: Path) -> None:
    sink = rolling(tmp_path, format="parquet")
    publish(sink, range(30))
    roll_folder(tmp_path / "out", may, flush=True)
    (name,) = visible(tmp_path)
    assert pq.read_metadata(tmp_path / "out" / name).num_row_groups == 1


def test_each_partition_is_merged_by_itself_and_in_its_order(tmp_path: Path) -> None:
    sink = rolling(tmp_path, partition_by=("country",))
    decided = []
    for number in range(4):
        decided.append(decide(sink, number, rows(2 * number, country="DE"), rows(2 * number + 1, country="FR")))
        sink.publish(decided[-1])
    assert roll_folder(tmp_path / "out", may, flush=True).merged_files == 2
    assert [name.partition("/")[0] for name in visible(tmp_path)] == ["country=DE", "country=FR"]
    assert ids(tmp_path) == [0, 2, 4, 6, 1, 3, 5, 7]
    assert wrong(sink, decided) == []


def test_a_folder_that_is_merged_already_is_not_merged_again_while_another_waits(tmp_path: Path) -> None:
    sink = rolling(tmp_path, partition_by=("country",), roll={"size": 300, "every": 300.0})
    decided = []
    for number in range(5):
        decided.append(decide(sink, number, rows(*range(10 * number, 10 * number + 4), country="DE"), rows(10 * number + 9, country="FR")))
        sink.publish(decided[-1])
        roll_folder(tmp_path / "out", may)
    assert {name.partition("/")[0] for name in visible(tmp_path)} == {"country=DE"}
    assert wrong(sink, decided) == []
    roll_folder(tmp_path / "out", may, flush=True)
    assert sorted(ids(tmp_path)) == sorted(10 * number + n for number in range(5) for n in (0, 1, 2, 3, 9))
    assert wrong(sink, decided) == []


def test_one_segment_alone_is_no_copy(tmp_path: Path) -> None:
    sink = rolling(tmp_path)
    publish(sink, range(1))
    (segment,) = internal(tmp_path, "hidden")
    inode = segment.stat().st_ino
    roll_folder(tmp_path / "out", may, flush=True)
    assert (tmp_path / "out" / visible(tmp_path)[0]).stat().st_ino == inode


def test_a_sink_that_rolls_no_more_leaves_nothing_hidden(tmp_path: Path) -> None:
    decided = publish(rolling(tmp_path), range(3))
    sink = make(tmp_path)
    decided += publish(sink, range(3, 5))
    roll_folder(tmp_path / "out", may)
    assert sorted(ids(tmp_path)) == list(range(10))
    assert RetentionSettings.read(LineageFolder(tmp_path / "out/_scribengin" / LINEAGE)) == RetentionSettings("kept")
    assert wrong(sink, decided) == []


def test_a_segment_that_was_changed_or_is_gone_is_told_and_not_merged(tmp_path: Path) -> None:
    sink = rolling(tmp_path)
    decided = publish(sink, range(2))
    first = sorted(internal(tmp_path, "hidden"))[0]
    data = first.read_bytes()
    first.write_bytes(data.replace(b"1", b"7"))
    with pytest.raises(StateError, match="was changed after it was written"):
        roll_folder(tmp_path / "out", may, flush=True)
    assert wrong(sink, decided) != []
    first.unlink()
    with pytest.raises(StateError, match="2 rows of batch 0 that are committed and not merged yet"):
        roll_folder(tmp_path / "out", may, flush=True)
    assert (visible(tmp_path), internal(tmp_path, "merged")) == ([], [])
    first.write_bytes(data)
    roll_folder(tmp_path / "out", may, flush=True)
    assert wrong(sink, decided) == []


def test_a_merged_file_that_is_gone_or_changed_is_found_by_the_audit(tmp_path: Path) -> None:
    sink = rolling(tmp_path)
    decided = publish(sink, range(3))
    roll_folder(tmp_path / "out", may, flush=True)
    merged = tmp_path / "out" / visible(tmp_path)[0]
    data = merged.read_bytes()
    merged.write_bytes(data[:-1])
    assert any(f"{len(data) - 1} bytes; expected {len(data)}" in said for said in wrong(sink, decided))
    merged.unlink()
    assert any("is missing: 6 rows" in said for said in wrong(sink, decided))


def test_many_turns_and_commits_are_folded_and_nothing_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_log, "CHUNK", 5)
    sink = rolling(tmp_path)
    decided = []
    for number in range(40):
        decided += publish(sink, range(number, number + 1))
        if number % 2:
            keep_folder(tmp_path / "out", may, flush=number < 30)
    assert len([path for path in internal(tmp_path, "merges") if path.suffix == ".json"]) <= 10
    assert len([path for path in internal(tmp_path, "batches") if path.suffix == ".json"]) <= 10
    assert hidden(tmp_path) == 10
    assert wrong(sink, decided) == []
    keep_folder(tmp_path / "out", may, flush=True)
    assert ids(tmp_path) == list(range(80))
    assert wrong(sink, decided) == []


def test_reset_takes_hidden_and_merged_files_away(tmp_path: Path) -> None:
    sink = rolling(tmp_path)
    publish(sink, range(2))
    roll_folder(tmp_path / "out", may, flush=True)
    publish(sink, range(2, 4))
    assert sink.clear(owner="me", flow="f", dry_run=True) == 1
    sink.clear(owner="me", flow="f")
    assert list((tmp_path / "out").iterdir()) == []


# --- killed, stopped, without room, two at once ---


def test_what_there_was_room_for_is_merged_and_makes_room(tmp_path: Path) -> None:
    sink = rolling(tmp_path, partition_by=("country",))
    decided = []
    for number in range(2):
        decided.append(decide(sink, number, *(rows(10 * number + n, country=f"C{n}") for n in range(5))))
        sink.publish(decided[-1])
    faults.arm("roll.draft.writing@3:enospc")
    try:
        assert roll_folder(tmp_path / "out", may, flush=True).merged_files == 5
    finally:
        faults.arm("")
    assert wrong(sink, decided) == []


def test_a_folder_that_is_claimed_when_the_roller_runs_already_is_rolled_too(tmp_path: Path) -> None:
    keeper = BackgroundCompaction([tmp_path / "out"], print)
    assert keeper._turn(tmp_path / "out") >= 5
    publish(rolling(tmp_path, roll={"size": 150, "every": 300.0}), range(2))
    keeper._turn(tmp_path / "out")
    assert ids(tmp_path) == list(range(4))


def test_a_folder_that_cannot_be_kept_is_tried_ever_more_seldom(tmp_path: Path) -> None:
    publish(rolling(tmp_path), range(2))
    said: list[str] = []
    owner = tmp_path / "out/_scribengin/owner.json"
    claim = owner.read_bytes()
    owner.write_bytes(b"torn")
    keeper = BackgroundCompaction([tmp_path / "out"], said.append)
    assert [keeper._turn(tmp_path / "out") for _ in range(8)] == [5, 10, 20, 40, 80, 160, 300, 300]
    assert len(said) == 1
    owner.write_bytes(claim)
    keeper._turn(tmp_path / "out")
    owner.write_bytes(b"torn")
    assert keeper._turn(tmp_path / "out") == 5


def in_child(act: Callable[[], object]) -> int:
    """Run it in a forked process; the process's id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return pid


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Looker:
    """A foreign reader in a loop: each row once at most, and none that it has seen goes."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._over = folder, threading.Event()
        self.wrong: list[object] = []
        self.looks = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        seen: set[int] = set()
        while not self._over.is_set():
            try:
                found = [row["id"] for path in visible_files(self._folder / "out") for row in read(path, "json")]
            except FileNotFoundError as error:  # nothing that was seen may go
                self.wrong.append(error)
                continue
            self.looks += 1
            if len(set(found)) < len(found) or not seen <= set(found) or found != sorted(found):
                self.wrong.append(found)
            seen |= set(found)

    def __enter__(self) -> Looker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.parametrize("point", [point for point in ROLL_POINTS if point not in ("roll.marked", "roll.reopened")])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_roller_killed_at_any_point_loses_and_doubles_nothing(tmp_path: Path, point: str, nth: int) -> None:
    sink = rolling(tmp_path, roll={"size": 150, "every": 300.0})
    decided = publish(sink, range(9))
    with Looker(tmp_path) as looker:

        def die() -> None:
            faults.arm(f"{point}@{nth}:die")
            roll_folder(tmp_path / "out", may)
            decided_later = publish(sink, range(9, 13))
            assert decided_later
            roll_folder(tmp_path / "out", may)

        assert ended(in_child(die)) == -signal.SIGKILL
        said = wrong(sink, decided)
        assert [
            each
            for each in said
            if "not renamed yet" not in each and "published, but there is no decision" not in each and "rows of" not in each
        ] == []
        sink = rolling(tmp_path, roll={"size": 150, "every": 300.0})
        newest = sink._of(LINEAGE).commits.newest()
        decided += [decide(sink, number, rows(2 * number, 2 * number + 1), attempt="b") for number in range(max(newest, 8) + 1, 14)]
        for each in decided[9:]:
            sink.publish(each)
        keep_folder(tmp_path / "out", may, flush=True)
        keep_folder(tmp_path / "out", may, flush=True)
    assert looker.wrong == []
    assert looker.looks > 0
    assert ids(tmp_path) == list(range(28))
    assert (hidden(tmp_path), internal(tmp_path, "merged")) == (0, [])


@pytest.mark.parametrize("point", ["roll.drafts.written", "roll.record.before", "roll.record.after", "roll.renamed"])
def test_a_roller_that_was_stopped_is_overtaken_and_changes_nothing_when_it_wakes(tmp_path: Path, point: str) -> None:
    sink = rolling(tmp_path)
    decided = publish(sink, range(4))
    gate = tmp_path / "gate"

    def sleep() -> None:
        faults.arm(f"{point}:wait={gate}")
        roll_folder(tmp_path / "out", may, flush=True)

    with Looker(tmp_path) as looker:
        sleeper = in_child(sleep)
        while not Path(f"{gate}.waiting").exists():
            time.sleep(0.01)
        os.kill(sleeper, signal.SIGSTOP)
        decided += publish(sink, range(4, 6))
        roll_folder(tmp_path / "out", may, flush=True)
        decided += publish(sink, range(6, 8))
        roll_folder(tmp_path / "out", may, flush=True)
        before = {name: (tmp_path / "out" / name).read_bytes() for name in visible(tmp_path)}
        (tmp_path / "out/_scribengin" / LINEAGE / "settled").unlink()  # a hint; nothing may rest on it
        gate.touch()
        os.kill(sleeper, signal.SIGCONT)
        assert ended(sleeper) == 0
    assert looker.wrong == []
    assert {name: (tmp_path / "out" / name).read_bytes() for name in visible(tmp_path)} == before
    assert ids(tmp_path) == list(range(16))
    keep_folder(tmp_path / "out", may)
    assert internal(tmp_path, "merged") == []
    assert wrong(sink, decided) == []


def test_a_draft_that_a_sleeper_may_still_record_is_no_leftover(tmp_path: Path) -> None:
    sink = rolling(tmp_path)
    decided = publish(sink, range(4))
    gate = tmp_path / "gate"

    def sleep() -> None:
        faults.arm(f"roll.record.before:wait={gate}")
        roll_folder(tmp_path / "out", may, flush=True)

    sleeper = in_child(sleep)
    while not Path(f"{gate}.waiting").exists():
        time.sleep(0.01)
    keep_folder(tmp_path / "out", may)
    gate.touch()
    assert ended(sleeper) == 0
    assert (ids(tmp_path), wrong(sink, decided)) == (list(range(8)), [])


def test_a_reader_that_takes_a_merged_file_away_while_a_roller_sleeps_is_no_fault(tmp_path: Path) -> None:
    sink = rolling(tmp_path)
    publish(sink, range(3))
    gate = tmp_path / "gate"

    def sleep() -> None:
        faults.arm(f"roll.record.after:wait={gate}")
        roll_folder(tmp_path / "out", may, flush=True)

    sleeper = in_child(sleep)
    while not Path(f"{gate}.waiting").exists():
        time.sleep(0.01)
    roll_folder(tmp_path / "out", may, flush=True)
    (tmp_path / "out" / visible(tmp_path)[0]).unlink()
    gate.touch()
    assert ended(sleeper) == 0
    assert visible(tmp_path) == []


def test_a_disk_that_is_full_is_told_and_costs_nothing_once_there_is_room(tmp_path: Path) -> None:
    sink = rolling(tmp_path)
    decided = publish(sink, range(200))

    def crowded() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            roll_folder(tmp_path / "out", may, flush=True)
        except EnvironmentFault as error:
            told = error.message
        assert "200 segments cannot be merged" in told
        assert "they stay hidden, nothing is lost, and the merge is retried" in told

    assert ended(in_child(crowded)) == 0
    assert (visible(tmp_path), hidden(tmp_path), internal(tmp_path, "merged"), wrong(sink, decided)) == ([], 200, [], [])
    for point in ("roll.draft.writing", "roll.record.before"):
        faults.arm(f"{point}:enospc")
        try:
            with pytest.raises((EnvironmentFault, OSError), match="No space"):
                roll_folder(tmp_path / "out", may, flush=True)
        finally:
            faults.arm("")
        assert (visible(tmp_path), hidden(tmp_path), internal(tmp_path, "merged")) == ([], 200, [])
    roll_folder(tmp_path / "out", may, flush=True)
    assert ids(tmp_path) == list(range(400))
    assert wrong(sink, decided) == []


def test_two_rollers_a_writer_and_a_reader_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    sink, over = rolling(tmp_path, roll={"size": 300, "every": 3600}), threading.Event()
    failed: list[object] = []

    def again(what: Callable[[], object]) -> None:
        while not over.is_set():
            try:
                what()
            except Exception as error:
                failed.append(error)

    rollers = [threading.Thread(target=again, args=(lambda: keep_folder(tmp_path / "out", may),)) for _ in range(2)]
    decided: list[Decided] = []
    with Looker(tmp_path) as looker:
        for roller in rollers:
            roller.start()
        for number in range(100):
            decided += publish(sink, range(number, number + 1))
            if number % 50 == 0:
                failed += wrong(rolling(tmp_path), [*decided])
        assert within(300, lambda: visible(tmp_path) != []), "they have merged beside the writer"
        over.set()
        for roller in rollers:
            roller.join()
        keep_folder(tmp_path / "out", may, flush=True)
    assert failed == []
    assert looker.wrong == []
    assert ids(tmp_path) == list(range(200))
    assert len(visible(tmp_path)) < 80, "files are merged by their size alone, however busy the machine is"
    assert (hidden(tmp_path), internal(tmp_path, "merged"), wrong(sink, decided)) == (0, [], [])


def test_a_roller_that_lost_its_right_does_nothing_more(tmp_path: Path) -> None:
    sink = rolling(tmp_path)
    decided = publish(sink, range(4))
    for steps in range(6):
        left = steps

        def check() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise FencedError("the right is over")

        try:
            roll_folder(tmp_path / "out", check, flush=True)
        except FencedError:
            continue
    roll_folder(tmp_path / "out", may, flush=True)
    assert ids(tmp_path) == list(range(8))
    assert (internal(tmp_path, "merged"), wrong(sink, decided)) == ([], [])


def test_publishing_again_what_is_merged_already_changes_nothing(tmp_path: Path) -> None:
    sink = rolling(tmp_path)
    decided = publish(sink, range(3))
    roll_folder(tmp_path / "out", may, flush=True)
    (tmp_path / "out/_scribengin" / LINEAGE / "published").unlink()
    rolling(tmp_path).recover(decided[-1], lineage=LINEAGE, before=3)
    assert (ids(tmp_path), hidden(tmp_path), wrong(sink, decided)) == (list(range(6)), 0, [])


def test_what_is_committed_and_not_yet_in_its_place_is_left_alone(tmp_path: Path) -> None:
    sink = rolling(tmp_path)
    decided = publish(sink, range(2))
    decided.append(Decided(batch(2), "h2", (stage(sink, batch(2), rows(4)), stage(sink, batch(2), rows(5), unit=1))))
    faults.arm("publish.renamed:enospc")
    try:
        with pytest.raises(OSError, match="No space"):
            sink.publish(decided[-1])
    finally:
        faults.arm("")
    roll_folder(tmp_path / "out", may, flush=True)
    assert ids(tmp_path) == list(range(4))
    rolling(tmp_path).recover(decided[-1], lineage=LINEAGE, before=3)
    roll_folder(tmp_path / "out", may, flush=True)
    assert (ids(tmp_path), wrong(sink, decided)) == (list(range(6)), [])


def test_a_task_that_has_much_stages_several_segments_and_all_of_them_are_committed_or_none(tmp_path: Path) -> None:
    sink = make(tmp_path, segment=100)
    receipt = stage(sink, batch(0), *(rows(n, n + 1) for n in range(0, 20, 2)))
    assert len(receipt.segments) == 10 // 2 or len(receipt.segments) > 3
    assert visible(tmp_path) == []
    decided = Decided(batch(0), "h0", (receipt,))
    sink.publish(decided)
    assert ids(tmp_path) == list(range(20))
    assert wrong(sink, [decided]) == []


def test_other_readers_see_no_hidden_file(tmp_path: Path) -> None:
    publish(rolling(tmp_path, format="parquet"), range(2))
    assert ds.dataset(tmp_path / "out", format="parquet").files == []
    assert newest_turn(LineageFolder(tmp_path / "out/_scribengin" / LINEAGE)) == (-1, None)
