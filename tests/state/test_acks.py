"""Acknowledgements: only what the end of the chain has committed, whatever order things are met in, and never for another lineage."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from flow_states import INPUT, Chain, Stage, acknowledged, at, file_entry

from scribengin.connectors.contract import BatchId, Receipt, SourceStream
from scribengin.core.numbered_log import NumberedLog
from scribengin.core.records import seal
from scribengin.state.channel_acks import Acks, ChannelBacklog, ChannelLink, QueryKey, QueryReading, QueryTopology
from scribengin.state.channel_checks import ChannelIntake, ChannelPiece
from scribengin.state.contract import Decision, SourceRange
from scribengin.state.decisions import Decisions, decision_as_json
from scribengin.state.folder import QueryFolder
from scribengin.state.lineage import rewind
from tests.looking import calls_in

if TYPE_CHECKING:
    from pathlib import Path

START_CALLS, LOOK_CALLS = 600_000, 60_000
"""some 300,000 and 26,000; a walk through all Batches takes as many as there are, several times"""
KINDS = pytest.mark.parametrize("kind", ["folder", "kafka"])


@KINDS
def test_an_acknowledgement_begins_at_the_last_durable_hop(tmp_path: Path, kind: str) -> None:
    """A → B → C, which hands over to D by best effort: D holds nobody, B and C do."""
    chain = Chain(tmp_path, kind=kind, loose=("c_d",))
    acks = Acks(chain.topology())
    assert acknowledged(acks.read()) == {"a": -1, "b": -1, "c": -1, "d": -1}
    for number in range(3):
        chain["a"].batch({INPUT: file_entry(f"{number}.jsonl")})
    standing = acks.read()
    assert acknowledged(standing)["a"] == -1
    (link,) = [each for (channel, _), each in standing.links.items() if channel == "a_b"]
    assert (link.taken, link.waiting_rows, link.waiting_batches, link.waiting_bytes) == (-1, 30, 3, 300)
    assert link.oldest_at.startswith("2026-01-01T00:00:00")
    chain.pass_on("b", 0, 1)
    standing = acks.read()
    assert acknowledged(standing)["a"] == -1, "B has it, but C has not"
    (link,) = [each for (channel, _), each in standing.links.items() if channel == "a_b"]
    assert (link.taken, link.committed, link.waiting_rows, link.open_rows) == (1, -1, 10, 30)
    chain.pass_on("c", 0)
    standing = acks.read()
    assert acknowledged(standing) == {"a": 1, "b": 0, "c": 0, "d": -1}
    assert standing.queries[QueryKey("a", "a")].released == {INPUT: 2}
    chain.pass_on("b", 2)
    assert acknowledged(acks.read())["a"] == 1
    chain.pass_on("c", 1)
    assert acknowledged(acks.read())["a"] == 2


def test_a_batch_that_is_decided_and_not_published_is_not_acknowledged(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "ab")
    chain["a"].batch({INPUT: file_entry("x")})
    chain["b"].batch({"a": chain["a"].output(0)}, committed=False)
    acks = Acks(chain.topology())
    assert acknowledged(acks.read()) == {"a": -1, "b": -1}
    chain["b"].commit(0)
    assert acknowledged(acks.read()) == {"a": 0, "b": 0}


def fork(root: Path, *, loose: bool) -> tuple[dict[str, Stage], QueryTopology]:
    """`a` feeds `b`, and by a channel of its own `c`."""
    stages = {
        "a": Stage(QueryFolder(root / "a" / "a"), ("a_b",)),
        "a2": Stage(QueryFolder(root / "a" / "a2"), ("a_c",)),
        "b": Stage(QueryFolder(root / "b" / "b"), (), ("a",)),
        "c": Stage(QueryFolder(root / "c" / "c"), (), ("a",)),
    }
    a, a2, b, c = QueryKey("a", "a"), QueryKey("a", "a2"), QueryKey("b", "b"), QueryKey("c", "c")
    links = (ChannelLink("a_b", a, (QueryReading(b, "a"),), "folder"), ChannelLink("a_c", a2, (QueryReading(c, "a"),), "folder", not loose))
    return stages, QueryTopology({key: stages[key.query].folder for key in (a, a2, b, c)}, links)


def test_a_dead_branch_of_a_fork_holds_its_source_only_where_it_must(tmp_path: Path) -> None:
    for loose, expected in ((True, 1), (False, -1)):
        stages, topology = fork(tmp_path / str(loose), loose=loose)
        for number in range(2):
            for branch in ("a", "a2"):
                stages[branch].batch({INPUT: file_entry(f"{number}")})
        stages["b"].batch({"a": stages["a"].output(0, 1)})
        standing = Acks(topology).read()
        assert acknowledged(standing) == {"a": 1, "a2": expected, "b": 0, "c": -1}
        waiting = {channel: each.waiting_rows for (channel, _), each in standing.links.items()}
        assert waiting == {"a_b": 0, "a_c": 20}, "what a dead branch has not taken is shown all the same"


def test_two_queries_that_read_one_channel_must_both_have_it(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "ab")
    other = Stage(QueryFolder(tmp_path / "b" / "b2"), (), ("a",))
    topology = chain.topology()
    reading = QueryReading(QueryKey("b", "b2"), "a")
    link = ChannelLink("a_b", QueryKey("a", "a"), (*topology.links[0].readers, reading), "folder")
    acks = Acks(QueryTopology({**topology.queries, reading.query: other.folder}, (link,)))
    chain["a"].batch({INPUT: file_entry("x")})
    chain.pass_on("b", 0)
    assert acknowledged(acks.read())["a"] == -1
    other.batch({"a": chain["a"].output(0)})
    assert acknowledged(acks.read())["a"] == 0


@KINDS
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed > 4)) for seed in range(12)])
def test_it_does_not_matter_when_somebody_looks_or_takes_over(tmp_path: Path, kind: str, seed: int) -> None:
    """Against the plain definition, computed anew: every look of a long-lived one, and of those that go on from what it kept."""
    chance = random.Random(seed)
    chain = Chain(tmp_path, "abc", kind=kind)
    acks = Acks(chain.topology())
    through = {"a": 0, "b": 0, "c": 0}
    """how many Batches of each are decided"""
    took: dict[str, list[int]] = {"b": [], "c": []}
    """how many Batches of the one before each Batch has behind it"""
    for _ in range(60):
        letter = chance.choice("aabbcc")
        before = {"b": "a", "c": "b"}.get(letter)
        if before is None:
            chain["a"].batch({INPUT: file_entry(str(through["a"]))})
        else:
            done = took[letter][-1] if took[letter] else 0
            reached = min(through[before], done + chance.randint(1, 3))
            if reached == done:
                continue
            chain.pass_on(letter, *range(done, reached))
            took[letter].append(reached)
        through[letter] += 1
        if chance.random() < 0.6:
            of_b = took["c"][-1] - 1 if took["c"] else -1
            of_a = took["b"][of_b] - 1 if of_b >= 0 else -1
            expected = {"a": of_a, "b": of_b, "c": through["c"] - 1}
            assert acknowledged(acks.read()) == expected
            if chance.random() < 0.5:
                for key in acks.topology.queries:
                    acks.keep(key)
            if chance.random() < 0.3:
                acks = Acks(chain.topology())
                assert acknowledged(acks.read()) == expected


def test_another_lineage_of_the_writer_drops_what_was_acknowledged(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "ab")
    for number in range(3):
        chain["a"].batch({INPUT: file_entry(str(number))})
    chain.pass_on("b", 0, 1, 2)
    acks = Acks(chain.topology())
    assert acknowledged(acks.read())["a"] == 2
    for key in acks.topology.queries:
        acks.keep(key)
    rewind(chain["a"].folder, {INPUT: 1})
    chain["a"].begin()
    for looking in (acks, Acks(chain.topology())):
        standing = looking.read()
        assert acknowledged(standing)["a"] == -1
        assert standing.queries[QueryKey("a", "a")].released == {INPUT: 1}, "it begins behind what the old lineage was through with"
    chain["a"].batch({INPUT: file_entry("1")})
    assert acknowledged(acks.read())["a"] == -1, "the old lineage's Batch 0 was taken, not this one's"
    chain.pass_on("b", 0)
    assert acknowledged(acks.read())["a"] == 0


def test_what_an_old_lineage_had_under_way_is_not_released_by_the_new_ones_start(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "ab")
    for number in range(4):
        chain["a"].batch({INPUT: file_entry(str(number))})
    chain.pass_on("b", 0)
    acks = Acks(chain.topology())
    acks.read()
    acks.keep(QueryKey("a", "a"))
    rewind(chain["a"].folder, {INPUT: 4})
    chain["a"].begin()
    a = QueryKey("a", "a")
    assert acks.read().queries[a].released == {INPUT: 1}, "three of its Batches are in the channel, and nobody has them"
    chain.pass_on("b", 1, 2, 3)
    chain["a"].batch({INPUT: file_entry("4")})
    chain.pass_on("b", 0)
    assert acks.read().queries[a].released == {INPUT: 5}


def test_a_channel_that_is_added_counts_from_where_its_writer_stands(tmp_path: Path) -> None:
    """The change drops nothing that was given, and nothing that the new reader can never take holds the writer."""
    chain = Chain(tmp_path, "ab")
    chain["a"].batch({INPUT: file_entry("0")})
    chain.pass_on("b", 0)
    acks = Acks(chain.topology())
    acks.read()
    acks.keep(QueryKey("a", "a"))
    late = Stage(QueryFolder(tmp_path / "b" / "late"), (), ("a",))
    topology = chain.topology()
    reading = QueryReading(QueryKey("b", "late"), "a")
    link = ChannelLink("a_b", QueryKey("a", "a"), (*topology.links[0].readers, reading), "folder")
    acks = Acks(QueryTopology({**topology.queries, reading.query: late.folder}, (link,)))
    assert acknowledged(acks.read())["a"] == 0
    chain["a"].batch({INPUT: file_entry("1")})
    chain.pass_on("b", 1)
    assert acknowledged(acks.read())["a"] == 0
    late.batch({"a": chain["a"].output(1)})
    assert acknowledged(acks.read())["a"] == 1


def test_with_acknowledge_state_a_batch_waits_until_its_rows_have_left(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "ab", by_state=("b",))
    acks = Acks(chain.topology())
    for number in range(4):
        chain["a"].batch({INPUT: file_entry(str(number))})
    b = chain["b"]
    b.batch({"a": chain["a"].output(0)}, times={"watermark_us": 0, "leaves_us": 600})
    b.batch({"a": chain["a"].output(1)}, times={"watermark_us": 500, "leaves_us": 1_200})
    assert acknowledged(acks.read()) == {"a": -1, "b": -1}, "the watermark has not come so far"
    b.batch({"a": chain["a"].output(2)}, times={"watermark_us": 600, "leaves_us": 0})
    assert acknowledged(acks.read()) == {"a": 0, "b": 0}
    b.batch({}, times={"watermark_us": 1_200, "leaves_us": 0})
    assert acknowledged(acks.read()) == {"a": 2, "b": 3}


@pytest.mark.parametrize("many", [pytest.param(10_000, marks=pytest.mark.long), 100_000])
def test_a_look_walks_through_what_waits_and_not_through_all_batches(tmp_path: Path, many: int) -> None:
    """Old Batches are folded as a run folds them; the dead reader's 2,000 wait. The bounds are the same, however many there were."""
    chain = Chain(tmp_path, "ab")
    a = chain["a"]
    a.begin()
    assert a.lineage is not None
    folded = NumberedLog(a.folder.decisions, "decision")
    for chunk in range(0, many - 2_000, 1_000):
        bodies = [(number, decision_as_json(_decision(a, number))) for number in range(chunk, chunk + 1_000)]
        path = folded._folded / f"{chunk:010d}.json.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(folded._packed("folded", bodies))
    (folded._folded / f"{many - 2_001:010d}.summary").write_bytes(seal("decision-summary", 1, {}))
    for number in range(many - 2_000, many):
        folded._path(number).write_bytes(seal("decision", 1, decision_as_json(_decision(a, number))))
    a.folder.ledger.mkdir(parents=True)
    newest = many - 2_001
    kept = {"lineage": a.lineage.id, "acknowledged": newest, "floor": newest, "released": {INPUT: newest + 1}, "links": {}}
    (a.folder.ledger / "acks.json").write_bytes(seal("acks", 1, kept))
    acks = Acks(chain.topology())
    assert calls_in(acks.read) < START_CALLS, "a start walks only through what waits"
    assert acknowledged(acks.read())["a"] == many - 2_001
    assert calls_in(acks.read) < LOOK_CALLS
    for number in range(many, many + 5):
        folded.put(number, decision_as_json(_decision(a, number)))
        assert calls_in(acks.read) < LOOK_CALLS
        (standing,) = acks.read().links.values()
        assert standing.waiting_rows == (number - newest) * 10
    rewind(a.folder, {INPUT: 5})
    acks.read()
    assert calls_in(acks.read) < LOOK_CALLS
    (standing,) = acks.read().links.values()
    assert standing.earlier.rows == (2_000 + 5) * 10


def _decision(stage: Stage, number: int) -> Decision:
    assert stage.lineage is not None
    segment = {"staged": "s", "name": stage._name(number), "rows": 10, "bytes": 100, "crc": 0}
    return Decision(
        BatchId("flow", "a", stage.lineage.id, number, 1),
        "h",
        "f",
        (SourceRange(INPUT, number, number + 1),),
        (Receipt("a_b", 0, 10, 100, (segment,)),),
    )


@pytest.mark.parametrize("seed", range(20))
def test_an_intake_does_not_care_in_which_order_files_are_taken_and_put(seed: int) -> None:
    """Files of several Batches come mixed, some before their Batch is known; each mark is enough to go on from."""
    chance = random.Random(seed)
    pieces = {number: [ChannelPiece(f"part-{number:010d}-{unit:05d}-000x.packs", 0, 1, 10) for unit in range(3)] for number in range(12)}
    names = [piece.key for each in pieces.values() for piece in each]
    names.sort(key=lambda name: int(name[5:15]) + chance.random() * 3)
    entries = [names[index : index + 2] for index in range(0, len(names), 2)]
    intake, put = ChannelIntake(), 0
    for reached in range(len(entries) + 1):
        while put < 12 and chance.random() < 0.5:
            intake.put(put, f"{put}", pieces[put])
            put += 1
        if reached:
            take(intake, entries[reached - 1])
        taken = {name for entry in entries[:reached] for name in entry}
        expected = next((number - 1 for number in range(put) if not taken >= {piece.key for piece in pieces[number]}), put - 1)
        assert intake.through == expected
        assert intake.rows == sum(piece.key not in taken for number in range(put) for piece in pieces[number])
        mark = intake.mark()
        again = ChannelIntake(**mark)
        for number in range(mark["batch"], put):
            again.put(number, f"{number}", pieces[number])
        for entry in entries[mark["entry"] : reached]:
            take(again, entry)
        assert (again.through, again.rows, again.entry) == (intake.through, intake.rows, intake.entry)


def take(intake: ChannelIntake, names: list[str]) -> None:
    intake.take([SourceStream("f", {"root": "packs", "pieces": [[name, 1, 1, 1, 0, 1, 1] for name in names]})])


def test_what_waits_behind_a_best_effort_edge_is_known_to_those_who_take_over(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "ab", loose=("a_b",))
    acks = Acks(chain.topology())
    for number in range(3):
        chain["a"].batch({INPUT: file_entry(str(number))})
        assert acknowledged(acks.read())["a"] == number
    for key in acks.topology.queries:
        acks.keep(key)
    for taken in range(-1, 3):
        if taken >= 0:
            chain.pass_on("b", taken)
        for looking in (acks, acks := Acks(chain.topology())):
            (standing,) = looking.read().links.values()
            assert (standing.taken, standing.waiting_rows) == (taken, 20 - 10 * taken)
            assert acknowledged(looking.read())["a"] == 2
        for key in acks.topology.queries:
            acks.keep(key)


@KINDS
def test_what_a_best_effort_edge_dropped_is_waited_for_by_nobody(tmp_path: Path, kind: str) -> None:
    chain = Chain(tmp_path, "ab", kind=kind, loose=("a_b",))
    link = replace(chain.topology().links[0], drops=True)
    acks = Acks(replace(chain.topology(), links=(link,)))
    a = chain["a"]
    for number in range(3):
        a.batch({INPUT: file_entry(str(number))})
    assert a.lineage is not None
    work = a.folder.work("a_b") / a.lineage.id
    NumberedLog(work / "outbox" / "dropped", "dropped").put(0, {"number": 1, "rows": 10, "bytes": 100, "why": "away"})
    (work / "published" / "0000000001.json").unlink(missing_ok=True)
    chain.pass_on("b", 0)
    (standing,) = acks.read().links.values()
    assert (standing.taken, standing.waiting_rows) == (1, 10), "the second was dropped, the third waits"
    chain.pass_on("b", 2)
    (standing,) = acks.read().links.values()
    assert (standing.taken, standing.committed, standing.waiting_rows) == (2, 2, 0)


def test_what_is_decided_for_an_edge_that_may_drop_it_is_in_the_channel_only_when_it_was_handed_over(tmp_path: Path) -> None:
    """A look between the decision and the drop must not believe for ever that the files are there."""
    chain = Chain(tmp_path, "ab", loose=("a_b",))
    acks = Acks(replace(chain.topology(), links=(replace(chain.topology().links[0], drops=True),)))
    a = chain["a"]
    a.batch({INPUT: file_entry("0")}, committed=False)
    assert a.lineage is not None
    (standing,) = acks.read().links.values()
    assert standing.waiting.rows == 10, "it is on its way"
    dropped = NumberedLog(a.folder.work("a_b") / a.lineage.id / "outbox" / "dropped", "dropped")
    dropped.put(0, {"number": 0, "rows": 10, "bytes": 100, "why": "full"})
    a.commit(0)
    (standing,) = acks.read().links.values()
    assert (standing.waiting.rows, standing.taken) == (0, 0)
    a.batch({INPUT: file_entry("1")})
    (standing,) = acks.read().links.values()
    assert standing.waiting.rows == 10


def test_what_is_decided_and_not_yet_in_a_topic_waits_too(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "ab", kind="kafka")
    acks = Acks(chain.topology())
    a = chain["a"]
    for number in range(2):
        a.batch({INPUT: file_entry(str(number))})
    assert a.lineage is not None
    (a.folder.work("a_b") / a.lineage.id / "published" / "0000000001.json").unlink()
    (standing,) = acks.read().links.values()
    assert (standing.waiting_rows, standing.waiting_bytes, standing.waiting_batches) == (20, 200, 2)
    chain.pass_on("b", 0)
    (standing,) = acks.read().links.values()
    assert (standing.waiting_rows, standing.oldest_at) == (10, at(1))
    a.publish("a_b", 1)
    chain.pass_on("b", 1)
    (standing,) = acks.read().links.values()
    assert standing.waiting == ChannelBacklog()


@KINDS
def test_what_an_earlier_lineage_has_left_in_a_channel_waits_until_the_reader_has_it(tmp_path: Path, kind: str) -> None:
    chain = Chain(tmp_path, "ab", kind=kind)
    for number in range(4):
        chain["a"].batch({INPUT: file_entry(str(number))})
    chain.pass_on("b", 0)
    acks = Acks(chain.topology())
    acks.read()
    acks.keep(QueryKey("a", "a"))
    earlier = chain["a"].output
    said = {number: earlier(number) for number in range(4)}
    rewind(chain["a"].folder, {INPUT: 4})
    for number in range(1, 4):
        for looking in (acks, acks := Acks(chain.topology())):
            (standing,) = looking.read().links.values()
            assert standing.waiting == ChannelBacklog((4 - number) * 10, (4 - number) * 100, 4 - number, at(number))
            assert standing.earlier_open == standing.earlier
        acks.keep(QueryKey("a", "a"))
        chain["b"].batch({"a": said[number]}, committed=number < 3)
    (standing,) = acks.read().links.values()
    assert standing.waiting == ChannelBacklog()
    assert standing.earlier_open is not None
    assert standing.earlier_open.batches == 1, "its reader's last Batch is not known to be through"
    chain["b"].commit(3)
    (standing,) = acks.read().links.values()
    assert standing.earlier_open == ChannelBacklog()


def test_files_of_which_nobody_knows_any_more_whether_they_were_read_are_never_thought_to_be_through(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "ab")
    chain["a"].begin()
    log = NumberedLog(chain["a"].folder.decisions, "decision")
    for number in range(2_000):
        log.put(number, decision_as_json(replace(_decision(chain["a"], number), decided_at=at(number))))
    said = [each for number in range(1_000, 2_000) for each in chain["a"].output(number)]
    decisions = Decisions(chain["a"].folder.decisions)
    decisions.fold()
    assert decisions.prune(datetime.max.replace(tzinfo=UTC)) == 1_000
    rewind(chain["a"].folder, {INPUT: 4})
    (standing,) = Acks(chain.topology()).read().links.values()
    assert standing.waiting.rows == 10_000, "the rows of those that are known"
    chain["b"].batch({"a": said})
    (standing,) = Acks(chain.topology()).read().links.values()
    assert standing.waiting.rows == 0
    assert standing.earlier_open is not None
    assert standing.earlier_open.batches
