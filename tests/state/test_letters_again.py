"""Letters that are purged, kept within a size, and asked to be replayed: what stays, what is counted, who gets a number."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from scribengin.connectors.contract import BatchId, BatchLimits, ConnectorContext, SourceStream
from scribengin.core import faults, numbered_log
from scribengin.core.errors import EnvironmentFault, Refused
from scribengin.core.time_text import now_text
from scribengin.core.types import parse_schema
from scribengin.formats.blocks import ArrowBlock, DamageBlock, LineBlock
from scribengin.formats.contract import Bad, RecordPlace
from scribengin.formats.origins import Origins
from scribengin.formats.packs import PackBlock
from scribengin.formats.table_blocks import TableBlock
from scribengin.local import dead_letter_repair
from scribengin.local.dead_letter_repair import select_for_purge, undo_purge
from scribengin.local.dead_letters import Which
from scribengin.local.positions import preview_move_back
from scribengin.spark.program import SourceRef
from scribengin.spark.source_input import Feed
from scribengin.state import dead_letters
from scribengin.state.audit import audit_query
from scribengin.state.contract import DeadLetter, Decision, SourceRange
from scribengin.state.dead_letter_input import form_of, row_block, row_decoder
from scribengin.state.dead_letters import (
    Repair,
    dated_letters,
    expire_letters,
    letters_from,
    purge_dead,
    purge_places,
    read_expired,
    read_letters,
    read_places,
    read_purged,
    read_repair,
    repaired_keys,
    write_repair,
)
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from scribengin.state.lineage import Lineage, begin_moved, leave, open_lineage, read_lineage, rewind
from scribengin.state.replays import Entering, Pending, Replays, missing_lines, of_query, read_entering, settle, waiting
from scribengin.state.source_log import SourceLog, is_replay
from scribengin.state.trash import KEPT, PURGE, Trash
from scribengin.testing.protocol import SINKS, SOURCE, STEP, Driver, Job, files_sink


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(tmp_path / "state", tmp_path / "out", batches=6, rows=20)
    Driver(job).run()
    return job


def violations(job):
    sinks = {node: files_sink(job, node) for node in SINKS}
    report = audit_query(job.query, sinks, lineage=read_lineage(job.query).id, feeders={STEP: [SOURCE]})
    return report.violations, report.dead_purged


def purge(job, keys):
    segments = {letters.batch: letters.segments for letters in Decisions(job.query.decisions).letters()}
    for batch in {batch for batch, _ in keys}:
        purge_places(job.query, batch, segments[batch], {place for number, place in keys if number == batch})


@pytest.mark.parametrize("point", ["", "purge.before", "purge.after"])
def test_what_is_purged_is_counted_and_the_others_keep_their_places_wherever_it_was_cut_short(job, point):
    before = [(batch, place, letter.id) for batch, place, letter in letters_from(job.query)]
    doomed = [(batch, place) for batch, place, _ in before][::2]
    if point:
        faults.arm(f"{point}:enospc")
        with pytest.raises((OSError, EnvironmentFault)):
            purge(job, doomed)
        faults.arm("")
        assert violations(job)[0] == ()
    purge(job, doomed)
    assert [(batch, place, letter.id) for batch, place, letter in letters_from(job.query)] == before[1::2]
    assert violations(job) == ((), len(doomed))
    purge_dead(job.query)
    purge(job, doomed)
    assert violations(job) == ((), len(doomed))
    rest = [(batch, place) for batch, place, _ in before][1::2]
    purge(job, rest)
    assert list(read_letters(job.query)) == []
    assert violations(job) == ((), len(before))
    Driver(replace(job, batches=8)).run()
    assert violations(job)[0] == ()
    expire_letters(job.query, datetime.now(UTC) + timedelta(days=1))
    assert violations(job) == ((), 0)


def test_what_was_purged_before_it_expired_is_counted_once_where_a_kill_leaves_the_record_of_the_purge(job, monkeypatch):
    keys = [(batch, place) for batch, place, _ in letters_from(job.query)]
    purge(job, keys[:1])

    def killed(_folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(dead_letters, "remove_tree", killed)
        with pytest.raises(KeyboardInterrupt):
            expire_letters(job.query, datetime.now(UTC) + timedelta(days=1))
    assert read_purged(job.query, keys[0][0]) is not None
    assert violations(job) == ((), 0)
    assert read_expired(job.query).letters == len(keys)


class TestUndo:
    """`dead-letter purge` and its undo, over six Batches with dead letters."""

    @pytest.fixture
    def trash(self, job):
        return Trash(job.state, "f", PURGE)

    @staticmethod
    def lines(job):
        segments = {letters.batch: letters.segments for letters in Decisions(job.query.decisions).letters()}
        return {batch: read_places(job.query, batch, named) for batch, named in segments.items()}

    @pytest.mark.parametrize(
        ("point", "back"),
        [
            ("", ""),
            ("purge.kept", "purge.before"),
            ("purge.before", "purge.after"),
            ("purge.after", "purge.undone"),
            ("purge.before@2", "purge.before@2"),
            ("purge.after@2", "purge.undone@2"),
        ],
    )
    def test_purged_letters_come_back_byte_for_byte_wherever_it_was_cut_short(self, job, trash, point, back):
        before = self.lines(job)
        (key, *_), count = [(batch, place) for batch, place, _ in letters_from(job.query)], sum(map(len, before.values()))
        write_repair(job.query, key, Repair(b"mended"))
        cut_short(point, lambda: dead_letter_repair.purge(select_for_purge([job.query], Which(), replayed=False), trash))
        found, gone = violations(job)
        assert (found, gone + sum(map(len, self.lines(job).values()))) == ((), count)
        if point:
            dead_letter_repair.purge(select_for_purge([job.query], Which(), replayed=False), trash)
        assert (violations(job), list(letters_from(job.query)), repaired_keys(job.query)) == (((), count), [], set())
        assert len(trash.all()) == 1
        purge_dead(job.query)
        cut_short(back, lambda: undo_purge(trash))
        assert violations(job)[0] == ()
        if back:
            undo_purge(trash)
        assert (self.lines(job), violations(job)) == (before, ((), 0))
        assert read_repair(job.query, key) == Repair(b"mended")
        with pytest.raises(Refused, match="has no purge"):
            undo_purge(trash)
        purge_dead(job.query)
        Driver(replace(job, batches=8)).run()
        assert violations(job) == ((), 0)

    def test_letters_of_a_purge_that_was_cut_short_come_back_without_it_being_completed(self, job, trash):
        before = self.lines(job)
        cut_short("purge.after@2", lambda: dead_letter_repair.purge(select_for_purge([job.query], Which(), replayed=False), trash))
        assert violations(job)[1] > 0
        said = undo_purge(trash)
        assert (self.lines(job), violations(job)) == (before, ((), 0))
        assert said.as_json()["restored"] == sum(map(len, before.values()))

    def test_what_has_outlived_retain_stays_away_and_is_counted(self, job, trash):
        count = sum(map(len, self.lines(job).values()))
        batch, place, _ = next(letters_from(job.query))
        write_repair(job.query, (batch, place), Repair(b"mended"))
        dead_letter_repair.purge(select_for_purge([job.query], Which(), replayed=False), trash)
        expire_letters(job.query, datetime.now(UTC) + timedelta(days=1))
        assert undo_purge(trash).as_json() | {"id": ""} == {"id": "", "restored": 0, "expired": count, "queries": {}}
        assert violations(job) == ((), 0)
        assert repaired_keys(job.query) == set()

    def test_letters_come_back_to_the_lineage_that_a_rewind_has_left(self, job, trash):
        before = self.lines(job)
        dead_letter_repair.purge(select_for_purge([job.query], Which(), replayed=False), trash)
        old = read_lineage(job.query).id
        rewind(job.query, {SOURCE: 0})
        undo_purge(trash)
        past = replace(job.query, path=job.query.past(old).path)
        assert {batch: len(lines) for batch, lines in before.items()} == {
            letters.batch: len(read_places(past, letters.batch, letters.segments)) for letters in Decisions(past.decisions).letters()
        }

    def test_letters_of_a_state_that_was_reset_wait_in_the_trash(self, job, trash):
        dead_letter_repair.purge(select_for_purge([job.query], Which(), replayed=False), trash)
        job.query.path.rename(job.state / "away")
        with pytest.raises(Refused, match="started over since") as refused:
            undo_purge(trash)
        assert "reset FLOW --undo" in refused.value.remedy
        (job.state / "away").rename(job.query.path)
        undo_purge(trash)
        assert violations(job) == ((), 0)

    def test_after_a_week_the_copies_are_deleted_too(self, job, trash):
        dead_letter_repair.purge(select_for_purge([job.query], Which(), replayed=False), trash)
        folder = trash.folder_of(trash.find())
        assert list(folder.rglob("*.jsonl"))
        now = datetime.now(UTC)
        Trash(job.state, "f").drop_expired(now + KEPT - timedelta(minutes=1))
        assert len(trash.all()) == 1
        Trash(job.state, "f").drop_expired(now + KEPT + timedelta(minutes=1))
        assert not folder.exists()
        assert trash.all() == []


def cut_short(point, work):
    """Do it until that point; whole without one."""
    faults.arm(f"{point}:enospc" if point else "")
    try:
        if not point:
            return work()
        with pytest.raises((OSError, EnvironmentFault)):
            work()
    finally:
        faults.arm("")
    return None


def test_letters_beyond_a_size_go_oldest_batch_first(job):
    sizes = {letters.batch: sum(segment.bytes for segment in letters.segments) for letters in Decisions(job.query.decisions).letters()}
    newest = max(sizes)
    assert expire_letters(job.query, None, sum(sizes.values())) == 0
    assert expire_letters(job.query, None, sizes[newest] + 1) > 0
    assert {batch for batch, _, _ in letters_from(job.query)} == {newest}
    assert violations(job)[0] == ()


LETTER = DeadLetter("s/f:1#s", "q", 0, "s", "bad", "m", "s", "f", line=1, payload=b'{"id": 1}', form="bytes", record="s/f+0")


@pytest.fixture
def query(tmp_path):
    folder = StateFolder(tmp_path / "state", "f")
    query = folder.query("q")
    open_lineage(query, owner="o", fingerprint="f", state_fingerprint="", sources=["s"])
    return query


def ask(query, number, *places, source="s", entry=0):
    letters = [((0, place), Entering(replace(LETTER, row=place), "", entry)) for place in places]
    return Replays(query.replays).ask(number, source, read_lineage(query).id, letters)


def decide(query, number, **ends):
    """A Batch that has read the logs up to there."""
    batch = BatchId("f", "q", read_lineage(query).id, number, 1)
    ranges = tuple(SourceRange(source, 0, end) for source, end in ends.items())
    Decisions(query.decisions).decide(Decision(batch, "hash", "f", ranges, (), (), decided_at=now_text()))


def test_of_two_who_ask_under_one_number_one_has_it_and_the_other_leaves_nothing(query):
    assert ask(query, 0, 1, 2) is not None
    assert ask(query, 0, 2, 3) is None
    assert set(Replays(query.replays).asked(read_lineage(query).id)) == {(0, 1), (0, 2)}
    assert len(list((query.replays / "0000000000").iterdir())) == 1


class Files:
    """A source's feed over a folder of files."""

    def __init__(self, query, data):
        data.mkdir(exist_ok=True)
        options = {"path": str(data), "format": "json", "settle": 0.0}
        self._ref = SourceRef("s", "files", ConnectorContext("s", data.parent, options, parse_schema("id BIGINT"), data.parent), 0)
        self._query = query

    def feed(self):
        return Feed(self._ref, self._query.sources, BatchLimits())


def test_a_request_is_one_entry_of_its_sources_log_whoever_writes_it_and_however_often_they_start(query, tmp_path, monkeypatch):
    open_lineage(query, owner="o", fingerprint="f", state_fingerprint="", sources=["s", "other"])
    files = Files(query, tmp_path / "data")
    first, slow = files.feed(), files.feed()
    (tmp_path / "data" / "a.jsonl").write_text('{"id": 1}\n')
    ask(query, 0, 1, source="other")
    ask(query, 1, 1, 2)
    assert [first.next(0), first.next(1), first.next(2)] == [1, 2, 2]
    assert slow.next(2) == 2
    (tmp_path / "data" / "b.jsonl").write_text('{"id": 2}\n')
    append = slow._log.append

    def late(number, streams):
        """The other one comes first, with a request that was not there yet when this one looked."""
        if number == 2:
            ask(query, 2, 3)
            assert first.next(2) == 3
        return append(number, streams)

    monkeypatch.setattr(slow._log, "append", late)
    assert [slow.next(number) for number in (2, 3, 4)] == [3, 4, 4]
    log = SourceLog(query.sources, "s")
    kinds = [[stream.label if is_replay(stream) else "file" for stream in entry] for entry in log.whole()]
    assert kinds == [["replay 1"], ["file"], ["replay 2"], ["file"]]
    assert [len(entry) for entry in log.entries()] == [0, 1, 0, 1]
    assert files.feed().next(4) == 4


def test_a_lineage_that_reads_the_record_again_leaves_its_replay_out(query):
    request = ask(query, 0, 1, 2, entry=4)
    (stream,) = request.streams("main/q")
    assert [letter.row for letter in read_entering(query, stream.place)] == [1, 2]
    rewind(query, {"s": 5})
    assert len(read_entering(query, stream.place)) == 2
    rewind(query, {"s": 4})
    assert read_entering(query, stream.place) == []


def test_who_goes_back_twice_has_the_record_of_the_first_time(query):
    (stream,) = ask(query, 0, 1, entry=5).streams("main/q")
    rewind(query, {"s": 3})
    rewind(query, {"s": 10})
    assert read_entering(query, stream.place) == []


def test_a_letter_without_a_source_is_left_out_where_its_carrier_is_read_again(query):
    letters = [((0, 1), Entering(replace(LETTER, source="", came="{}"), "last", 4))]
    request = Replays(query.replays).ask(0, "s", read_lineage(query).id, letters)
    (stream,) = request.streams("main/q")
    rewind(query, {"s": 5})
    assert len(read_entering(query, stream.place)) == 1
    rewind(query, {"s": 4})
    assert read_entering(query, stream.place) == []


def test_letters_of_requests_that_came_through_go_after_a_time(query):
    done, waits = ask(query, 0, 1), ask(query, 1, 2)
    replays = Replays(query.replays)
    replays.note_done([SourceStream("x", {}), *done.streams("main/q"), *waits.streams("edge/q")])
    assert replays.done() == {0}, "the other one is another Query's, of before a move"
    replays.drop_lines(datetime.now(UTC) - timedelta(days=1))
    assert read_entering(query, done.streams("main/q")[0].place)
    stream = done.streams("main/q")[0]
    assert missing_lines(query, [stream], {"s": 9}) == []
    replays.drop_lines(datetime.now(UTC) + timedelta(days=1))
    assert not (query.replays / "0000000000").exists()
    assert missing_lines(query, [stream], {"s": 9}) == ["replay 0"], "the record itself is not read again"
    assert missing_lines(query, [stream], {"s": 0}) == []
    assert read_entering(query, waits.streams("main/q")[0].place)
    assert set(replays.asked(read_lineage(query).id)) == {(0, 1), (0, 2)}
    assert Pending(query.path, "s").take() == replays.read(1).streams("main/q"), "what is done is done, whatever a log says that a cut left"


def test_numbers_that_are_not_finite_come_back_from_json_with_all_that_stands_beside_them():
    decoder = row_decoder(parse_schema("d DOUBLE, f FLOAT, m DECIMAL(30,10), s STRING"))
    row = b'{"d": "Infinity", "f": "NaN", "m": 12345678901234567890.0123456789, "s": "NaN"}'
    found = decoder.rows(row_block(LETTER, row))
    (read,) = found.rows
    assert (str(read["d"]), str(read["f"]), str(read["m"]), read["s"]) == ("inf", "nan", "12345678901234567890.0123456789", "NaN")
    assert decoder.rows(row_block(LETTER, b'{"d": "many"}')).bad


def test_a_record_from_another_tier_is_a_row_and_text_is_what_its_source_reads():
    batch = pa.RecordBatch.from_pydict({"id": [1]})
    pack = PackBlock(RecordPlace("f"), None, None, batch, Origins.of("s/f+", np.array([0])))
    assert [form_of(block) for block in (pack, ArrowBlock("f", batch), LineBlock("f", b"1\n"), DamageBlock("f", "truncated", "m", 0))] == [
        "row",
        "row",
        "bytes",
        "bytes",
    ]
    assert form_of(TableBlock("f", batch)) == "row", "of Parquet and of tables, where no value of it is unfit"
    assert form_of(replace(pack, bad=Bad(0, "corrupt", "no pack"))) == ""


def test_of_batches_that_are_not_wanted_no_letter_is_read(job):
    with_letters = {letters.batch for letters, _, _ in dated_letters(job.query)}  # a coin says which record dies
    one = max(with_letters)
    assert {letters.batch for letters, _, _ in dated_letters(job.query, wanted=lambda letters: letters.batch == one)} == {one}


def test_what_was_asked_of_a_source_that_is_gone_is_taken_once_by_the_querys_first(query):
    plan = {"owner": "o", "fingerprint": "f", "state_fingerprint": ""}
    log = {source: SourceLog(query.sources, source) for source in ("s", "t", "u")}

    def take(source):
        """The requests that a run's feed takes, into the log."""
        pending, numbers = Pending(query.path, source), []
        for entry, streams in enumerate(log[source].whole()):
            pending.note(entry, streams)
        while streams := pending.take():
            log[source].append(log[source].length(), streams)
            numbers.append(streams[0].place["replay"]["request"])
        return numbers

    ask(query, 0, 1, source="s")
    ask(query, 1, 2, source="t")
    ask(query, 2, 3, source="s")
    open_lineage(query, **plan, sources=["t", "s"])
    assert take("t") == [1]
    assert Pending(query.path, "s").take()[0].place["replay"]["request"] == 0, "it is there still"
    log["s"].append(0, Pending(query.path, "s").take())
    decide(query, 0, s=1)
    open_lineage(query, **plan, sources=["t", "u"])
    assert (take("u"), take("t"), take("t")) == ([], [2], [])
    open_lineage(query, **plan, sources=["s", "t"])
    assert (take("s"), take("t")) == ([], [])


def test_what_stood_in_the_log_of_a_source_that_went_before_a_batch_read_it_is_taken_by_another_and_read_once(query):
    plan = {"owner": "o", "fingerprint": "f", "state_fingerprint": ""}
    logs = {source: SourceLog(query.sources, source) for source in ("s", "t")}

    def runs(*sources):
        """Which entries of which source's log hold letters, once a run that was killed behind its logging has begun."""
        open_lineage(query, **plan, sources=sources)
        for source in sources:
            pending = Pending(query.path, source)
            for entry, streams in enumerate(logs[source].whole()):
                pending.note(entry, streams)
            while streams := pending.take():
                logs[source].append(logs[source].length(), streams)
        logged = [(source, stream) for source in sources for streams in logs[source].whole() for stream in streams]
        return [source for source, stream in logged if read_entering(query, stream.place, source)]

    ask(query, 0, 1, source="s")
    assert runs("s") == ["s"]
    assert [request.number for request in waiting(query)] == [0]
    assert runs("t") == ["t"]
    assert runs("t", "s") == ["t"]
    assert runs("s") == ["s"]
    assert [log.length() for log in logs.values()] == [1, 1]
    decide(query, 0, s=1)
    assert waiting(query) == []
    assert runs("t") == []
    assert waiting(query) == []


class Runs:
    """Starts of a Query, each after a kill of the one before, which had come no further than its logs."""

    def __init__(self, query):
        self._query = query
        self.logs = {source: SourceLog(query.sources, source) for source in ("s", "t")}

    def begin(self, *sources, killed=False):
        """Of a plan with these sources; `killed` before it logs what it takes."""
        open_lineage(self._query, owner="o", fingerprint="f", state_fingerprint="", sources=sources)
        for source in sources:
            pending = Pending(self._query.path, source)
            for entry, streams in enumerate(self.logs[source].whole()):
                pending.note(entry, streams)
            while (streams := pending.take()) and not killed:
                self.logs[source].append(self.logs[source].length(), streams)

    def waits(self):
        return [request.number for request in waiting(self._query)]


@pytest.mark.parametrize("first", ["taken", "pruned"])
def test_what_waits_goes_on_waiting_when_all_batches_that_knew_its_first_source_are_pruned(query, monkeypatch, first):
    monkeypatch.setattr(numbered_log, "CHUNK", 2)
    runs = Runs(query)
    runs.logs["s"].append(0, [SourceStream("a", {})])
    decide(query, 0, s=1)
    ask(query, 0, 1, source="s")
    runs.begin("s")
    if first == "taken":
        runs.begin("t")
    for number in range(1, 8):
        decide(query, number, t=0)
    Decisions(query.decisions).fold()
    assert Decisions(query.decisions).prune(datetime.now(UTC) + timedelta(days=1)) > 0
    assert Decisions(query.decisions).pruned().ends["s"] == 1
    assert runs.waits() == [0]
    runs.begin("t")
    assert (runs.waits(), runs.logs["t"].length()) == ([0], 1)
    settle(query)
    assert Replays(query.replays).done() == set()
    decide(query, 8, t=1)
    assert runs.waits() == []


def test_what_was_read_as_nothing_while_it_was_anothers_is_taken_when_it_is_given_back(query):
    runs = Runs(query)
    ask(query, 0, 1, source="s")
    runs.begin("s")
    runs.begin("t")
    runs.begin("t", "s")
    decide(query, 0, t=0, s=1)
    assert runs.waits() == [0]
    runs.begin("s", killed=True)
    assert runs.waits() == [0]
    runs.begin("s")
    runs.begin("s")
    assert (runs.waits(), runs.logs["s"].length()) == ([0], 2)
    decide(query, 1, s=2)
    assert runs.waits() == []
    runs.begin("t")
    assert (runs.waits(), runs.logs["t"].length()) == ([], 1)


def test_a_changed_cut_leaves_requests_where_they_are_and_numbers_go_on(query):
    request = ask(query, 0, 1)
    waits = ask(query, 1, 2)
    Replays(query.replays).give(waits, "s", 9)
    log = SourceLog(query.sources, "s")
    log.append(0, request.streams("f/q"))
    leave(query, "new")
    SourceLog(query.sources, "s").append(0, request.streams(of_query(query.path)))
    begin_moved(query, Lineage("new", "o", "q", "f", "", ("s",), "", starts={"s": 1}, origin="moved"))
    assert Replays(query.replays).next_number() == 2
    pending = Pending(query.path, "s")
    pending.note(0, log.range(0, 1))
    assert pending.take()[0].place["replay"]["request"] == 1
    assert Replays(query.replays).owner(waits) == ("s", 1), "the log that is there now is shorter"


def test_going_back_behind_a_replay_whose_letters_are_gone_is_refused(query):
    done = ask(query, 0, 1, entry=0)
    log = SourceLog(query.sources, "s")
    log.append(0, [SourceStream("a", {})])
    log.append(1, done.streams("main/q"))
    batch = BatchId("f", "q", read_lineage(query).id, 0, 1)
    Decisions(query.decisions).decide(Decision(batch, "hash", "f", (SourceRange("s", 0, 2),), (), ()))
    replays = Replays(query.replays)
    preview_move_back(query, "s", 1)
    replays.note_done(done.streams("main/q"))
    replays.drop_lines(datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(Refused, match="letters of replay 0 no longer exist"):
        preview_move_back(query, "s", 1)
    preview_move_back(query, "s", 0)


def test_what_came_through_and_was_not_noted_is_noted_before_its_log_is_left_and_not_taken_again(query):
    SourceLog(query.sources, "s").append(0, [SourceStream("a", {})])
    ask(query, 0, 1)
    log = SourceLog(query.sources, "s")
    log.append(1, Pending(query.path, "s").take())
    ask(query, 1, 2)
    decide(query, 0, s=1)
    assert [request.number for request in waiting(query)] == [0, 1]
    decide(query, 1, s=2)
    assert [request.number for request in waiting(query)] == [1]
    settle(query)
    assert Replays(query.replays).done() == {0}
    leave(query, "new")
    SourceLog(query.sources, "s").append(0, [SourceStream("of another Query", {})])
    begin_moved(query, Lineage("new", "o", "q", "f", "", ("s",), "", starts={"s": 1}, origin="moved"))
    assert Pending(query.path, "s").take()[0].place["replay"]["request"] == 1


def test_repairs_go_with_the_letters_that_have_outlived_them(job):
    keys = [(letters.batch, place) for letters, place, _ in dated_letters(job.query)]
    for key in keys:
        write_repair(job.query, key, Repair(came="{}"))
    expire_letters(job.query, datetime.now(UTC) + timedelta(days=1))
    assert (len(keys) > 1, repaired_keys(job.query)) == (True, set())
