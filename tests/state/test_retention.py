from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from scribengin.core import numbered_log
from scribengin.core.errors import StateError
from scribengin.state import dead_letters
from scribengin.state.audit import AuditReport, audit_query
from scribengin.state.dead_letters import DeadWriter, expire_letters, purge_dead, read_expired, read_letters
from scribengin.state.decisions import Decisions
from scribengin.state.ledger import read_totals
from scribengin.state.lineage import read_lineage
from scribengin.state.retention import DETAILS, Retention
from scribengin.testing.protocol import SINKS, SOURCE, STEP, Driver, Job, files_sink

CHUNK = 5
DAY = 86_400.0


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **time: float) -> None:
        self.now += timedelta(**time)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(numbered_log, "CHUNK", CHUNK)
    job = Job(tmp_path / "state", tmp_path / "out", batches=17, rows=10, fold_every=CHUNK)
    Driver(job).run()
    return job


def audit(job: Job) -> AuditReport:
    lineage = read_lineage(job.query)
    assert lineage is not None
    sinks = {node: files_sink(job, node) for node in SINKS}
    return audit_query(job.query, sinks, lineage=lineage.id, feeders={STEP: [SOURCE]})


def kept(job: Job) -> list[int]:
    return [decision.batch.number for decision in Decisions(job.query.decisions).since()]


def test_details_stay_thirty_days(job: Job) -> None:
    clock = Clock()
    retention = Retention(job.query, None, clock)
    clock.now += DETAILS - timedelta(hours=2)
    assert retention.apply().batches == 0
    clock.advance(hours=3)
    assert retention.apply().batches == 2 * CHUNK
    assert kept(job) == list(range(2 * CHUNK, 17)), "the newest chunks are never pruned"


def test_totals_letters_and_the_audit_outlive_the_details(job: Job) -> None:
    totals, letters, before = read_totals(job.query), list(read_letters(job.query)), audit(job)
    clock = Clock()
    clock.advance(days=31)
    Retention(job.query, None, clock).apply()
    assert read_totals(job.query) == totals
    assert list(read_letters(job.query)) == letters
    assert list(read_letters(job.query, start=2, limit=3)) == letters[2:5]
    assert audit(job) == before
    assert before.balanced


def test_a_flow_goes_on_and_is_pruned_further_after_its_details_are_gone(job: Job) -> None:
    clock = Clock()
    clock.advance(days=31)
    retention = Retention(job.query, None, clock)
    assert retention.apply().batches == 2 * CHUNK
    Driver(replace(job, batches=32)).run()
    clock.advance(days=31)
    assert retention.apply().batches == 3 * CHUNK
    assert kept(job)[0] == 5 * CHUNK
    report = audit(job)
    assert report.balanced
    assert report.totals.batches == 32
    assert len(list(job.query.decisions.glob("folded/*.pruned"))) == 1


def test_an_audit_finds_a_lost_output_of_a_pruned_batch(job: Job) -> None:
    clock = Clock()
    clock.advance(days=31)
    Retention(job.query, None, clock).apply()
    file = min((job.out / "heads").glob("part-*"))
    file.unlink()
    assert [text for text in audit(job).violations if str(file) in text]


def test_an_audit_finds_a_decision_that_is_missing_behind_the_pruned_ones(job: Job) -> None:
    clock = Clock()
    clock.advance(days=31)
    Retention(job.query, None, clock).apply()
    (job.query.decisions / "folded" / f"{2 * CHUNK:010d}.json.gz").unlink(missing_ok=True)
    (job.query.decisions / f"{2 * CHUNK:010d}.json").unlink(missing_ok=True)
    assert any(f"batch {2 * CHUNK} has no decision record" in text for text in audit(job).violations)


def test_a_pruned_batch_is_never_taken_for_an_undecided_one(job: Job) -> None:
    clock = Clock()
    clock.advance(days=31)
    Retention(job.query, None, clock).apply()
    with pytest.raises(StateError, match="pruned"):
        Decisions(job.query.decisions).read(3)


def test_letters_are_kept_as_long_as_retain_says(job: Job) -> None:
    total = len(list(read_letters(job.query)))
    clock = Clock()
    retention = Retention(job.query, 7 * DAY, clock)
    assert retention.apply().letters == 0
    clock.advance(days=8)
    assert retention.apply().letters == total
    assert list(read_letters(job.query)) == []
    assert not [folder for folder in job.query.dead.iterdir() if folder.is_dir()]
    report = audit(job)
    assert report.balanced
    assert (report.totals.dead, report.dead_found, report.dead_expired) == (total, 0, total)
    Driver(replace(job, batches=20)).run()
    report = audit(job)
    assert report.balanced
    assert report.totals.dead == report.dead_found + report.dead_expired > total


def test_letters_outlive_the_details_where_retain_is_longer(job: Job) -> None:
    letters = list(read_letters(job.query))
    clock = Clock()
    retention = Retention(job.query, 60 * DAY, clock)
    clock.advance(days=31)
    assert retention.apply().letters == 0
    assert list(read_letters(job.query)) == letters
    clock.advance(days=30)
    assert retention.apply().letters == len(letters)
    assert list(job.query.decisions.glob("folded/*.rest.gz")) == []
    assert audit(job).balanced


def test_only_the_letters_that_are_old_enough_go(job: Job) -> None:
    decided = [moment for batch in Decisions(job.query.decisions).letters() for moment in [(batch.batch, batch.decided_at)]]
    number, cut = decided[len(decided) // 2]
    expire_letters(job.query, datetime.fromisoformat(cut))
    assert read_expired(job.query).through == decided[len(decided) // 2 - 1][0]
    assert {letter.batch for letter in read_letters(job.query)} == {batch for batch, _ in decided if batch >= number}
    assert audit(job).balanced


def test_a_letter_is_missing_to_the_audit_when_retain_did_not_take_it(job: Job) -> None:
    next(job.query.dead.glob("*/*.jsonl")).unlink()
    assert any("are missing" in text for text in audit(job).violations)


def test_a_kill_between_mark_and_deletion_leaves_nothing_behind_and_nothing_wrong(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    clock.advance(days=31)

    def killed(_folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(dead_letters, "remove_tree", killed)
        with pytest.raises(KeyboardInterrupt):
            Retention(job.query, DAY, clock).apply()
    assert audit(job).balanced
    assert list(read_letters(job.query)) == []
    Retention(job.query, DAY, clock).apply()
    assert not [folder for folder in job.query.dead.iterdir() if folder.is_dir()]
    assert audit(job).balanced


def test_looks_are_an_hour_apart(job: Job) -> None:
    clock = Clock()
    retention = Retention(job.query, 60.0, clock)
    retention.apply()
    clock.advance(minutes=30)
    assert retention.apply().letters == 0
    clock.advance(minutes=31)
    assert retention.apply().letters > 0


def test_a_letter_of_an_undecided_batch_never_expires(job: Job) -> None:
    (letter,) = list(read_letters(job.query))[:1]
    writer = DeadWriter(job.query.dead, "sleeping")
    writer.write(replace(letter, batch=17))
    writer.close()
    clock = Clock()
    clock.advance(days=365)
    Retention(job.query, 1.0, clock).apply()
    assert (job.query.dead / "0000000017" / "sleeping.jsonl").exists()


def test_letters_that_nobody_decided_go_before_the_details_do(job: Job) -> None:
    (letter,) = list(read_letters(job.query))[:1]
    writer = DeadWriter(job.query.dead, "failed")
    writer.write(replace(letter, batch=2))
    writer.close()
    (job.query.dead / "purged").unlink(missing_ok=True)
    clock = Clock()
    clock.advance(days=31)
    assert Retention(job.query, None, clock).apply().batches > 0
    assert not (job.query.dead / "0000000002" / "failed.jsonl").exists()
    (job.query.dead / "purged").unlink()
    assert purge_dead(job.query) == 0


def test_a_thousand_goes_only_when_all_of_it_is_old(job: Job) -> None:
    decisions = Decisions(job.query.decisions)
    cut = decisions.read(CHUNK + 2)
    assert cut is not None
    assert decisions.prune(datetime.fromisoformat(cut.decided_at)) == CHUNK
    assert kept(job)[0] == CHUNK
