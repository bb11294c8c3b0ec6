from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scribengin.connectors.contract import SourceStream
from scribengin.core import faults
from scribengin.core.errors import EnvironmentFault, Refused, StateError
from scribengin.spark.counting import add_losses
from scribengin.state.audit import audit_query, read_losses
from scribengin.state.contract import Counts, DeadLetter
from scribengin.state.dead_letters import DeadWriter, purge_dead, read_letters
from scribengin.state.decisions import Decisions
from scribengin.state.folder import QueryFolder, StateFolder
from scribengin.state.ledger import Ledger, balance, read_batches, read_held, read_totals, write_held
from scribengin.state.lineage import open_lineage, read_lineage
from scribengin.state.source_log import SourceLog
from scribengin.testing import campaign
from scribengin.testing.protocol import SOURCE, STEP, Driver, Job

FEEDERS = {STEP: [SOURCE]}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(tmp_path / "state", tmp_path / "out", batches=4, rows=40)
    Driver(job).run()
    return job


def violations(job: Job) -> tuple[str, ...]:
    lineage = read_lineage(job.query)
    assert lineage is not None
    return audit_query(job.query, Driver(job).sinks, lineage=lineage.id, feeders=FEEDERS).violations


def test_a_whole_lineage_balances(job: Job) -> None:
    lineage = read_lineage(job.query)
    assert lineage is not None
    report = audit_query(job.query, Driver(job).sinks, lineage=lineage.id, feeders=FEEDERS)
    assert report.balanced
    assert report.totals.batches == 4
    assert sum(sink.found for sink in report.sinks) + report.dead_found == 4 * 2 * 40
    assert [sink.decided for sink in report.sinks] == [sink.found for sink in report.sinks]


@pytest.mark.parametrize("point", ["recovery.before", "recovery.mid", "recovery.after"])
def test_a_disk_that_is_full_when_a_query_recovers_is_told_with_the_remedy(job: Job, point: str) -> None:
    faults.arm(f"{point}:enospc")
    try:
        with pytest.raises(EnvironmentFault, match="cannot be completed: No space left") as told:
            Driver(job).run()
    finally:
        faults.arm("")
    assert "free space" in told.value.remedy
    Driver(job).run()
    assert violations(job) == ()


def test_an_audit_names_an_output_file_that_is_gone(job: Job) -> None:
    file = next((job.out / "heads").glob("part-*"))
    file.unlink()
    (told,) = violations(job)
    assert told.startswith(f'sink "heads": {file} is missing:')


def test_an_audit_names_dead_letters_that_were_changed_or_lost(job: Job) -> None:
    first, second, *_ = sorted(job.query.dead.glob("*/*.jsonl"))
    first.unlink()
    second.write_bytes(second.read_bytes().replace(b"edge", b"Edge"))
    told = violations(job)
    assert any(str(first) in text and "are missing" in text for text in told)
    assert any(str(second) in text and "were changed" in text for text in told)


def test_an_audit_names_a_decision_that_is_missing_and_what_is_not_published(job: Job) -> None:
    (job.query.decisions / "0000000001.json").unlink()
    assert any("batch 1 has no decision record" in text for text in violations(job))


def test_a_running_flow_is_audited_up_to_what_must_be_published(job: Job) -> None:
    lineage = read_lineage(job.query)
    assert lineage is not None
    decisions = Decisions(job.query.decisions)
    newest = decisions.newest()
    assert newest is not None
    sinks = Driver(job).sinks
    assert audit_query(job.query, sinks, lineage=lineage.id, running=True).balanced, "the newest Batch is published already"
    decisions.decide(replace(newest, batch=replace(newest.batch, number=4), dead=()))
    assert audit_query(job.query, sinks, lineage=lineage.id, running=True).balanced
    assert any("batch 4 is decided, but not published" in text for text in audit_query(job.query, sinks, lineage=lineage.id).violations)


@pytest.mark.parametrize(
    ("point", "told"),
    [
        ("publish.before@2", "batch 1 is decided, but not published; the next run of the flow publishes it"),
        (
            "publish.record.after@3",
            "batch 1 is committed, but 2 of its 2 files are not renamed yet; the next run of the flow publishes",
        ),
    ],
)
def test_an_audit_after_a_kill_says_what_the_next_run_will_do(tmp_path: Path, point: str, told: str) -> None:
    job = Job(tmp_path / "state", tmp_path / "out", batches=4, rows=40)
    campaign.run(job, f"{point}:kill")
    said = violations(job)
    assert any(text.startswith('sink "heads": ' + told) for text in said)
    assert not any("missing" in text for text in said)
    Driver(job).run()
    assert violations(job) == ()


def test_what_a_state_holds_is_told_as_long_as_no_batch_has_come_since(job: Job) -> None:
    assert read_held(job.query) == {}
    write_held(job.query, 3, {"agg": 7})
    assert read_held(job.query) == {"agg": 7}
    Driver(replace(job, batches=5)).run()
    assert read_held(job.query) == {}


def test_a_ledger_reads_only_what_is_new(job: Job) -> None:
    ledger = Ledger(job.query)
    assert ledger.read() == read_totals(job.query)
    Driver(replace(job, batches=6)).run()
    assert ledger.read() == read_totals(job.query)
    assert ledger.read().batches == 6
    assert [each.batch.number for each in read_batches(job.query, since=4)] == [4, 5]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"a": Counts(rows_in=10, out=7, filtered=2, dead=1)}, []),
        ({"a": Counts(rows_in=10, made=5, out=15)}, []),
        ({"a": Counts(rows_in=10, out=7, filtered=2)}, ['"a": 10 in, but 7 out + 2 filtered + 0 dead: 1 row is missing']),
        ({"a": Counts(rows_in=10, made=2, out=14)}, ['"a": 10 in + 2 made, but 14 out + 0 filtered + 0 dead: 2 rows are too many']),
    ],
)
def test_a_stateless_node_gives_what_it_took(counts: dict[str, Counts], said: list[str]) -> None:
    assert balance(counts) == said


def test_a_stateful_node_must_have_met_all_that_its_feeders_gave() -> None:
    counts = {"a": Counts(rows_in=10, out=10), "agg": Counts(rows_in=7, late=2, dead=1, out=3, held=4)}
    assert balance(counts, stateful={"agg"}, feeders={"agg": ["a"]}) == []
    counts["agg"].late = 0
    assert balance(counts, stateful={"agg"}, feeders={"agg": ["a"]}) == [
        '"agg": "a" wrote 10 rows, but 7 in + 0 late + 1 dead arrived: 2 rows are missing'
    ]


def test_rows_lost_between_two_nodes_are_found_unless_a_branch_feeds_them() -> None:
    counts = {"a": Counts(rows_in=10, out=10), "b": Counts(rows_in=9, out=9)}
    assert balance(counts, feeders={"b": ["a"]}) == ['"b": "a" wrote 10 rows, but 9 in arrived: 1 row is missing']
    assert balance(counts, feeders={"b": ["a.big"]}) == []


def test_what_feeds_a_node_in_two_ways_must_arrive_twice() -> None:
    counts = {"a": Counts(10, 10), "once": Counts(20, 15)}
    assert balance(counts, stateful={"once"}, feeders={"once": ["a", "a"]}) == []
    counts["once"].rows_in = 19
    assert balance(counts, stateful={"once"}, feeders={"once": ["a", "a"]}) == [
        '"once": "a" wrote 20 rows, but 19 in + 0 late + 0 dead arrived: 1 row is missing'
    ]


def test_dead_letters_come_back_with_their_bytes(job: Job) -> None:
    letters = list(read_letters(job.query))
    assert list(read_letters(job.query, start=3, limit=2)) == letters[3:5]


def letter(batch: int, payload: bytes = b"x") -> DeadLetter:
    return DeadLetter("s/f:1#x", "q", batch, "x", "bad", "m", payload=payload)


@pytest.mark.parametrize("payload", [b"", b"plain", "ünï\u2028code\n".encode(), b"\xff\x00\xfe"])
def test_any_payload_survives(tmp_path: Path, payload: bytes, job: Job) -> None:
    writer = DeadWriter(job.query.dead, "mine")
    writer.write(letter(4, payload))
    writer.write(letter(4, payload))
    segment = writer.close()
    assert segment is not None
    newest = Decisions(job.query.decisions).newest()
    assert newest is not None
    Decisions(job.query.decisions).decide(replace(newest, batch=replace(newest.batch, number=4), dead=(segment,)))
    assert [each.payload for each in read_letters(job.query)][-2:] == [payload, payload]


def test_letters_of_attempts_that_nobody_decided_are_never_read_and_are_purged(job: Job) -> None:
    before = list(read_letters(job.query))
    for batch, attempt in ((2, "failed"), (4, "sleeping")):
        writer = DeadWriter(job.query.dead, attempt)
        writer.write(letter(batch))
        writer.close()
    assert list(read_letters(job.query)) == before
    (job.query.dead / "purged").unlink(missing_ok=True)
    assert purge_dead(job.query) == 1
    assert purge_dead(job.query) == 0
    assert list(job.query.dead.glob("*/failed.jsonl")) == []
    assert len(list(job.query.dead.glob("*/sleeping.jsonl"))) == 1
    assert list(read_letters(job.query)) == before


def test_a_writer_without_letters_makes_no_file_and_an_aborted_one_leaves_none(tmp_path: Path) -> None:
    assert DeadWriter(tmp_path / "dead", "a").close() is None
    DeadWriter(tmp_path / "dead", "a").abort()
    writer = DeadWriter(tmp_path / "dead", "b")
    writer.write(letter(0))
    writer.abort()
    assert list((tmp_path / "dead").rglob("*")) == []


def open_(query: QueryFolder, **changed: str) -> str:
    given = {"owner": "me", "fingerprint": "p1", "state_fingerprint": "s1"} | changed
    return open_lineage(query, sources=["s"], **given).id


def test_a_lineage_is_begun_once_and_takes_over_a_new_plan(tmp_path: Path) -> None:
    query = StateFolder(tmp_path, "f").query("q")
    assert read_lineage(query) is None
    id_ = open_(query)
    assert open_(query, fingerprint="p2") == id_
    found = read_lineage(query)
    assert found is not None
    assert found.fingerprint == "p2"
    assert [each.name for each in StateFolder(tmp_path, "f").queries()] == ["q"]


def test_a_changed_stateful_step_on_an_old_checkpoint_is_refused(tmp_path: Path) -> None:
    query = StateFolder(tmp_path, "f").query("q")
    open_(query)
    open_(query, state_fingerprint="s2")  # no checkpoint yet: nothing would be mixed
    query.checkpoint.mkdir()
    with pytest.raises(Refused, match="does not match it"):
        open_(query, state_fingerprint="s1")
    with pytest.raises(Refused, match="belongs to another installation"):
        open_(query, owner="you", state_fingerprint="s2")


def test_a_sink_of_another_type_is_refused_once_a_batch_was_decided_for_it(job: Job) -> None:
    found = read_lineage(job.query)
    assert found is not None
    given: Any = {"owner": found.owner, "fingerprint": "p", "state_fingerprint": found.state_fingerprint, "sources": [SOURCE]}
    open_lineage(job.query, **given, types={"out": "summary"})
    with pytest.raises(Refused, match='sink "out" was of type summary and is now of type files') as told:
        open_lineage(job.query, **given, types={"out": "files"})
    assert told.value.code == "sink-type-changed"
    assert open_lineage(job.query, **given, types={"out": "summary"}).types == {"out": "summary"}
    open_lineage(job.query, **given, types={"other": "files"})
    with pytest.raises(Refused, match="was of type summary"):  # also once it was away
        open_lineage(job.query, **given, types={"out": "files", "other": "files"})


def test_an_edited_lineage_is_told(tmp_path: Path) -> None:
    query = StateFolder(tmp_path, "f").query("q")
    open_(query)
    query.lineage.write_bytes(query.lineage.read_bytes().replace(b'"p1"', b'"p9"'))
    with pytest.raises(StateError, match="was changed"):
        read_lineage(query)


def test_utilities_balance_with_what_failed_a_requirement_behind_them() -> None:
    parts = {"f": Counts(10, 8, 2), "g": Counts(8, 7, dead=1)}
    assert balance({"u": Counts(10, 7, 2, 1, parts=parts)}) == []
    assert balance({"u": Counts(10, 4, 2, 4, parts=parts)}) == [], "three more died behind them"
    more = '"u": {} rows more, including dead letters of its utilities, -2'
    assert balance({"u": Counts(10, 5, 4, 1, parts=parts)}) == [more.format(-4)], "nothing is filtered behind them"
    assert balance({"u": Counts(10, 8, 2, 0, parts=parts)}) == [more.format(-2)], "of the one that died in g"


def test_a_step_that_was_none_of_utilities_in_some_batches_balances() -> None:
    counts = Counts(20, 12, 5, 3)
    counts.add_batch(Counts(10, 7, 2, 1, parts={"f": Counts(10, 8, 2), "g": Counts(8, 7, dead=1)}))
    counts.add_batch(Counts(5, 5))
    assert balance({"u": counts}) == []
    assert balance({"u": Counts.from_json(counts.as_json())}) == []
    counts.add_batch(Counts(4, 3, 1, parts={"f": Counts(4, 4)}))
    assert balance({"u": counts}) == ['"u": -3 rows more, including dead letters of its utilities, -2']


def test_what_spark_buries_behind_the_utilities_of_a_batch_balances_in_it() -> None:
    """Reports of one Batch: the stage of the utilities, and the one behind it that counts the rows of a `require`."""
    batch = Counts(10, 10, parts={"f": Counts(10, 10)})
    batch.add(Counts(out=-4))
    batch.add(Counts(dead=3))
    assert balance({"u": batch}) == [
        '"u": 10 in, but 6 out + 0 filtered + 3 dead: 1 row is missing',
        '"u": -1 rows more, including dead letters of its utilities, 0',
    ]
    batch.add(Counts(dead=1))
    assert balance({"u": batch}) == []


def test_what_was_lost_is_counted_beside_the_balance_and_is_named(job: Job) -> None:
    newest = Decisions(job.query.decisions).newest()
    assert newest is not None
    log = SourceLog(job.query.sources, SOURCE)
    end = newest.sources[0].end
    gone = SourceStream("numbers-0[5:90] lost", {}, rows=85, skipped=True, lost="offsets 5 to 89 are gone")
    anew = SourceStream("numbers lost", {}, skipped=True, lost="the topic was made again")
    log.append(end, [gone, anew, SourceStream("numbers-0[90:91]", {}, rows=1)])
    log.append(end + 1, [anew])
    assert [stream.label for stream in log.range(end, end + 2)] == ["numbers-0[90:91]"]
    counts = {SOURCE: Counts(1, 1)}
    add_losses(counts, {SOURCE: log.remarks(end, end + 1)})
    assert (counts[SOURCE].lost, counts[SOURCE].lost_unknown, balance(counts)) == (85, 1, [])
    assert Counts.from_json(counts[SOURCE].as_json()) == counts[SOURCE]
    losses = list(read_losses(job.query, {}, {SOURCE: end + 1}))
    assert [(loss.entry, loss.rows, loss.what) for loss in losses] == [
        (end, 85, "offsets 5 to 89 are gone"),
        (end, None, "the topic was made again"),
    ]
    assert list(read_losses(job.query, {SOURCE: end + 1}, {SOURCE: end + 1})) == []


def test_counts_that_were_written_before_losses_were_counted_read_as_none() -> None:
    old = {"in": 3, "out": 2, "filtered": 1, "dead": 0, "late": 0, "made": 0}
    assert Counts.from_json(old) == Counts(3, 2, 1)
    assert Counts(3, 2, 1).as_json() == old


def test_an_entry_that_is_folded_cannot_be_amended_in_silence(tmp_path: Path) -> None:
    log = SourceLog(tmp_path, "rows")
    for number in range(2100):
        log.append(number, [SourceStream(f"rows-{number}", {})])
    log.fold()
    with pytest.raises(StateError, match="is merged with older entries"):
        log.amend(0, [SourceStream("rows-0", {}, skipped=True)])
    log.amend(2099, [SourceStream("rows-2099", {}, skipped=True)])
    assert log.range(2099, 2100) == []
