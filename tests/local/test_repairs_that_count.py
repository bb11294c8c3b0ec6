"""What a person has repaired is what is sent, or it is refused: letters as the state floor wrote them, in a flow that has not run."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.contract import BatchId, SourceStream
from scribengin.core import numbered_log
from scribengin.core.errors import Refused
from scribengin.core.time_text import now_text
from scribengin.local.dead_letter_repair import exported_letters, find_to_edit, keep_all, parse_exported_letters, select_for_purge
from scribengin.local.dead_letter_replay import replay
from scribengin.local.dead_letters import Which, count_letters
from scribengin.local.flow_run import unreplayed_notices
from scribengin.local.move_queries import _give_way
from scribengin.local.prepare import prepare
from scribengin.state.contract import DeadLetter, Decision, SourceRange
from scribengin.state.dead_letters import DeadWriter, repaired_keys
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import begin_moved, leave, open_lineage, read_lineage, rewind
from scribengin.state.replays import Pending, Replays, read_entering, waiting
from scribengin.state.source_log import SourceLog
from scribengin.state.topology import Journal, MovedLineage, write_moved

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.local.dead_letter_replay import ExportedLetter
    from scribengin.local.prepare import PreparedFlow
    from scribengin.state.folder import QueryFolder
    from scribengin.state.replays import Key

FLOW = """\
version: 1
name: twice
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT"}
steps:
  doubled: {from: rows, python: "steps:double", schema: "id BIGINT"}
sinks:
  kept: {from: doubled, type: files, path: out, format: json}
"""
LETTER = DeadLetter(
    "rows/a.jsonl:1#doubled", "kept", 0, "doubled", "exception", "no", "rows", "a.jsonl", line=1, payload=b'{"id": 1}', came='{"id":1}'
)


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedFlow:
    (tmp_path / "steps.py").write_text("def double(row):\n    return {'id': row['id'] * 2}\n")
    return flow(tmp_path, FLOW)


def flow(folder: Path, text: str) -> PreparedFlow:
    (folder / "flow.yaml").write_text(text)
    return prepare(folder / "flow.yaml", state=None)


def bury(prepared: PreparedFlow, query: str, letter: DeadLetter) -> QueryFolder:
    tier = prepared.tiers[0]
    folder = tier.folder.query(query)
    lineage = open_lineage(folder, owner=tier.folder.read_owner(), fingerprint="f", state_fingerprint="", sources=["rows"])
    writer = DeadWriter(folder.dead, "attempt")
    writer.write(replace(letter, query=query, form="bytes", alone=True))
    segment = writer.close()
    assert segment is not None
    Decisions(folder.decisions).decide(
        Decision(BatchId("twice", query, lineage.id, 0, 1), "hash", "f", (), (), (segment,), decided_at=now_text())
    )
    return folder


def exported(prepared: PreparedFlow, query: QueryFolder, **changed: str) -> dict[tuple[str, Key], ExportedLetter]:
    lines = [json.dumps(letter | changed).encode() for letter in exported_letters([query], prepared.path.parent, Which())]
    return parse_exported_letters(lines, "letters.jsonl")


def sent(query: QueryFolder) -> tuple[str, str, str]:
    """(where, record, row) of the letter that was asked for."""
    (stream,) = Replays(query.replays).read(0).streams("main/kept")
    (letter,) = read_entering(query, stream.place)
    return stream.place["replay"]["at"], letter.payload.decode(), letter.came


def test_a_row_that_was_repaired_is_not_sent_as_the_record_was(prepared: PreparedFlow) -> None:
    query = bury(prepared, "kept", LETTER)
    found = find_to_edit(prepared, Which(), record=False)
    assert (found[0].at, keep_all(found, b'{"id":7}')) == ("doubled", ["kept"])
    said = replay(prepared, Which(), from_start=True)
    assert (said.asked, said.refusals) == (0, 1)
    assert "input row of the step was repaired" in said.refused[0]["why"]
    assert repaired_keys(query) == {(0, 0)}
    assert replay(prepared, Which(), from_start=True, given=exported(prepared, query, came='{"id":8}')).refusals == 1
    assert replay(prepared, Which()).repaired == 1
    assert sent(query) == ("doubled", '{"id": 1}', '{"id":7}')


def test_a_file_of_a_letter_whose_record_was_repaired_gives_that_record_back(prepared: PreparedFlow) -> None:
    query = bury(prepared, "kept", LETTER)
    assert keep_all(find_to_edit(prepared, Which(), record=True), b'{"id": 7}') == ["kept"]
    said = replay(prepared, Which(), given=exported(prepared, query))
    assert (said.asked, said.repaired) == (1, 1), said.refused
    assert sent(query) == ("", '{"id": 7}', "")


@pytest.mark.parametrize(("from_start", "at"), [(True, ""), (False, "doubled")])
def test_of_both_repaired_that_counts_which_is_taken_where_it_enters(prepared: PreparedFlow, from_start: bool, at: str) -> None:
    query = bury(prepared, "kept", LETTER)
    said = replay(prepared, Which(), given=exported(prepared, query, payload='{"id": 9}', came='{"id":9}'), from_start=from_start)
    assert (said.asked, said.repaired) == (1, 1), said.refused
    assert sent(query)[0] == at
    assert sent(query)[2 if at else 1].replace(" ", "") == '{"id":9}'


def test_a_letter_that_queries_take_at_different_places_is_repaired_for_each(prepared: PreparedFlow) -> None:
    two = flow(prepared.path.parent, FLOW + "  digits: {from: doubled, type: files, path: digits, format: json}\n")
    kept, digits = bury(two, "kept", LETTER), bury(two, "digits", replace(LETTER, came=""))
    with pytest.raises(Refused, match="digits at rows"):
        find_to_edit(two, Which(prefix=LETTER.id), record=False)
    assert keep_all(find_to_edit(two, Which(prefix=LETTER.id, query="kept"), record=False), b'{"id":20}') == ["kept"]
    assert (repaired_keys(kept), repaired_keys(digits)) == ({(0, 0)}, set())
    assert set(keep_all(find_to_edit(two, Which(prefix=LETTER.id), record=True), b'{"id":20}')) == {"kept", "digits"}


def test_bytes_that_are_no_text_are_refused_where_a_column_is_set_and_come_back_from_a_masters_file(prepared: PreparedFlow) -> None:
    query = bury(prepared, "kept", replace(LETTER, came="", step="rows", payload=b'{"id": "\xff"}'))
    (found,) = find_to_edit(prepared, Which(), record=True)
    with pytest.raises(Refused, match="no column can be set"):
        found.with_columns({"id": "1"})
    with pytest.raises(Refused, match="is not valid UTF-8"):
        replace(found, letter=replace(found.letter, extra={"delimiter": ",", "header": ["id"]})).with_columns({"id": "1"})
    with pytest.raises(Refused, match="the row is not valid UTF-8"):
        replace(found, at="doubled").keep(b"\xff")
    lines = [json.dumps(letter | {"payload": None}).encode() for letter in exported_letters([query], prepared.path.parent, Which())]
    assert parse_exported_letters(lines, "letters.jsonl")["kept", (0, 0)].payload == b'{"id": "\xff"}'


@pytest.mark.parametrize(("back_to", "entering"), [(8, 1), (2, 0)])
def test_a_letter_of_a_pruned_batch_is_replayed_after_a_rewind_that_does_not_read_its_record_again(
    prepared: PreparedFlow, monkeypatch: pytest.MonkeyPatch, back_to: int, entering: int
) -> None:
    monkeypatch.setattr(numbered_log, "CHUNK", 2)
    tier = prepared.tiers[0]
    folder = tier.folder.query("kept")
    open_lineage(folder, owner=tier.folder.read_owner(), fingerprint="f", state_fingerprint="", sources=["rows"])
    lineage = rewind(folder, {"rows": 2})
    query = bury(prepared, "kept", LETTER)
    log, decisions = SourceLog(query.sources, "rows"), Decisions(query.decisions)
    for number in range(10):
        log.append(number, [SourceStream(f"{number}.jsonl", {})])
    for number in range(1, 8):
        batch = BatchId("twice", "kept", lineage.id, number, 1)
        ranges = (SourceRange("rows", number + 2, number + 3),)
        decisions.decide(Decision(batch, "hash", "f", ranges, (), (), decided_at=now_text()))
    decisions.fold()
    decisions.prune(datetime.now(UTC) + timedelta(days=1))
    assert decisions.pruned_mark() == 5
    assert replay(prepared, Which()).asked == 1
    rewind(query, {"rows": back_to})
    (stream,) = Replays(query.replays).read(0).streams("main/kept")
    assert len(read_entering(query, stream.place)) == entering


def test_what_waits_in_a_query_that_the_flow_has_no_more_is_told_kept_and_taken_when_it_is_back(prepared: PreparedFlow) -> None:
    query = bury(prepared, "kept", LETTER)
    assert replay(prepared, Which()).asked == 1
    assert [group["asked"] for group in count_letters([query], prepared.path.parent)] == [1]
    other = flow(prepared.path.parent, FLOW.replace("kept:", "renamed:"))
    assert unreplayed_notices(other.tiers[0]) == [
        '1 dead letter waits for replay in query "kept", which no sink uses any more; to list them: scribengin dead-letter list FLOW'
    ]
    said = replay(other, Which())
    assert (said.asked, said.before, said.refusals, said.requests) == (0, 0, 1, [])
    assert "waits for its query" in said.refused[0]["why"]
    (group,) = count_letters([query], prepared.path.parent, made={"renamed"})
    assert (group["asked"], group["replayed"], group["gone"]) == (1, 0, True)
    assert select_for_purge([query], Which(), replayed=False).unreplayed == 1
    back = flow(prepared.path.parent, FLOW)
    assert (replay(back, Which()).before, unreplayed_notices(back.tiers[0])) == (1, [])
    streams = Pending(query.path, "rows").take()
    assert [letter.id for letter in read_entering(query, streams[0].place, "rows")] == [LETTER.id]
    SourceLog(query.sources, "rows").append(0, streams)
    Decisions(query.decisions).decide(
        Decision(BatchId("twice", "kept", read_lineage(query).id, 1, 1), "hash", "f", (SourceRange("rows", 0, 1),), (), ())  # type: ignore[union-attr]
    )
    assert [(group["asked"], group["replayed"]) for group in count_letters([query], prepared.path.parent)] == [(0, 1)]


def test_a_letter_nobody_has_asked_for_of_a_query_that_is_gone_is_told_and_not_passed_over(prepared: PreparedFlow) -> None:
    bury(prepared, "kept", LETTER)
    other = flow(prepared.path.parent, FLOW.replace("kept:", "renamed:"))
    said = replay(other, Which(query="kept"))
    assert (said.asked, said.refusals) == (0, 1)
    assert "no sink" in said.refused[0]["why"]
    assert unreplayed_notices(other.tiers[0]) == []


def test_letters_of_a_query_that_has_moved_to_another_tier_and_of_a_flow_in_the_midst_of_a_move_are_not_asked_for(
    prepared: PreparedFlow,
) -> None:
    query = bury(prepared, "kept", LETTER)
    lineage = read_lineage(query)
    assert lineage is not None
    journal = Journal(prepared.root, prepared.name)
    journal.write({})
    with pytest.raises(Refused, match="in progress"):
        replay(prepared, Which())
    journal.remove()
    write_moved(query, MovedLineage(lineage.id, ("back.kept",)))
    said = replay(prepared, Which())
    assert (said.asked, said.refusals) == (0, 1)
    assert "another tier" in said.refused[0]["why"]
    assert Replays(query.replays).next_number() == 0


def test_a_move_that_begins_while_somebody_asks_is_told_to_who_asks(prepared: PreparedFlow, monkeypatch: pytest.MonkeyPatch) -> None:
    query = bury(prepared, "kept", LETTER)
    ask = Replays.ask

    def slow(self: Replays, *arguments: Any) -> Any:
        found = ask(self, *arguments)
        Journal(prepared.root, prepared.name).write({})
        return found

    monkeypatch.setattr(Replays, "ask", slow)
    with pytest.raises(Refused, match=r"in progress.* possibly without effect: request kept:0"):
        replay(prepared, Which())
    assert [request.number for request in waiting(query)] == [0]


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_move_that_begins_and_ends_while_somebody_asks_is_told_to_who_asks(
    prepared: PreparedFlow, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    query = bury(prepared, "kept", LETTER)
    lineage, ask = read_lineage(query), Replays.ask
    assert lineage is not None

    def slow(self: Replays, *arguments: Any) -> Any:
        write_moved(query, MovedLineage(lineage.id, ("back.kept",)))
        if comes_back:
            leave(query, "new")
            begin_moved(query, replace(lineage, id="new", parent=lineage.id, origin="moved"))
        return ask(self, *arguments)

    monkeypatch.setattr(Replays, "ask", slow)
    with pytest.raises(Refused, match=r'"kept" was moved or .* request kept:0'):
        replay(prepared, Which())
    monkeypatch.setattr(Replays, "ask", ask)
    if comes_back:
        assert Pending(query.path, "rows").take(), "the Query that is there now takes it"
        return
    said = replay(prepared, Which())
    assert (said.asked, said.refusals) == (0, 1)
    assert "another tier" in said.refused[0]["why"]
    assert unreplayed_notices(flow(prepared.path.parent, FLOW.replace("kept:", "renamed:")).tiers[0]) == []


def test_a_move_that_has_written_its_journal_gives_way_to_what_was_asked_meanwhile(prepared: PreparedFlow) -> None:
    bury(prepared, "kept", LETTER)
    journal, leaving = Journal(prepared.root, prepared.name), {"tier": "main", "query": "kept", "to": ["back.kept"]}
    journal.write({})
    _give_way(prepared, journal, {"leaving": [leaving]})
    assert journal.there
    journal.remove()
    assert replay(prepared, Which()).asked == 1
    journal.write({})
    _give_way(prepared, journal, {"leaving": [leaving | {"to": []}]})
    with pytest.raises(Refused, match="1 dead letter waits"):
        _give_way(prepared, journal, {"leaving": [leaving]})
    assert not journal.there


def test_a_letter_that_was_repaired_for_one_of_its_queries_says_so_and_how_to_edit_the_other(prepared: PreparedFlow) -> None:
    both = flow(prepared.path.parent, FLOW + "  more: {from: doubled, type: files, path: more, format: json}\n")
    for query in ("kept", "more"):
        bury(both, query, LETTER)
    keep_all(find_to_edit(both, Which(prefix="kept:0:0"), record=False), b'{"id":7}')
    with pytest.raises(Refused) as caught:
        find_to_edit(both, Which(prefix=LETTER.id), record=False)
    assert caught.value.message == (f"{LETTER.id} was repaired differently for its queries: kept (repaired), more (not repaired)")
    assert caught.value.remedy == (
        "edit it for each query with its key: scribengin dead-letter edit FLOW kept:0:0; scribengin dead-letter edit FLOW more:0:0"
    )
    for key in ("kept:0:0", "more:0:0"):
        keep_all(find_to_edit(both, Which(prefix=key), record=False), b'{"id":8}')
    assert len(find_to_edit(both, Which(prefix=LETTER.id), record=False)) == 2
