"""What every channel of agents promises: functions of a place, for each kind of channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.abilities import locates_records
from scribengin.connectors.agents.channel import channel_of, report_committed
from scribengin.connectors.agents.contract import CommitReport
from scribengin.connectors.agents.options import SOURCE
from tests.connectors.agents.sending import READER, ids, numbered, take

if TYPE_CHECKING:
    from tests.connectors.agents.sending import AgentsPlace


def records_are_read_once_in_the_order_of_their_numbers(place: AgentsPlace) -> None:
    writer, source = place.writer(), place.source()
    reader = source.reader()
    writer.append([numbered(0, 3), numbered(0, 2, agent="web2")])
    first = take(reader)
    assert sorted(ids(source, first)) == [0, 0, 1, 1, 2]
    assert take(reader) == []
    writer.append([numbered(3, 5)])
    assert ids(source, take(reader)) == [3, 4]
    assert sorted(ids(source, first)) == [0, 0, 1, 1, 2]


def a_run_that_two_gateways_store_stands_once(place: AgentsPlace) -> None:
    source = place.source()
    reader = source.reader()
    place.writer("g1").append([numbered(0, 3)])
    place.writer("g2").append([numbered(0, 3)])
    assert ids(source, take(reader)) == [0, 1, 2]
    place.writer("g1").append([numbered(0, 3)])
    place.writer("g2").append([numbered(3, 4)])
    assert ids(source, take(reader)) == [3]


def a_run_that_overlaps_an_earlier_one_gives_only_its_new_records(place: AgentsPlace) -> None:
    source = place.source()
    reader = source.reader()
    place.writer("g1").append([numbered(0, 3)])
    assert ids(source, take(reader)) == [0, 1, 2]
    whole = numbered(0, 3)
    more = numbered(3, 5)
    both = type(whole)(whole.agent, whole.incarnation, 0, whole.frames + more.frames, 0, 5)
    place.writer("g2").append([both])
    streams = take(reader)
    assert ids(source, streams) == [3, 4]
    assert sum(stream.rows or 0 for stream in streams) == 2


def a_later_run_waits_until_the_missing_one_is_there(place: AgentsPlace) -> None:
    source = place.source()
    reader = source.reader()
    place.writer("g2").append([numbered(3, 5)])
    assert take(reader) == []
    assert reader.backlog().rows == 2
    place.writer("g1").append([numbered(0, 3)])
    assert ids(source, take(reader)) == [0, 1, 2, 3, 4]


def a_run_that_waits_is_found_again_after_a_restart(place: AgentsPlace) -> None:
    source = place.source()
    reader = source.reader()
    place.writer("g1").append([numbered(0, 1)])
    place.writer("g2").append([numbered(3, 5)])
    entry = take(reader)
    assert ids(source, entry) == [0]
    again = source.reader()
    again.restore([entry])
    assert take(again) == []
    place.writer("g1").append([numbered(1, 3)])
    assert ids(source, take(again)) == [1, 2, 3, 4]


def another_incarnation_starts_at_zero(place: AgentsPlace) -> None:
    source = place.source()
    reader = source.reader()
    place.writer().append([numbered(0, 3)])
    take(reader)
    place.writer().append([numbered(0, 2, incarnation="b")])
    assert ids(source, take(reader)) == [0, 1]


def a_reader_that_never_met_an_agent_starts_where_it_knows_its_records_committed(place: AgentsPlace) -> None:
    source = place.source()
    place.writer().append([numbered(50, 52, committed=50)])
    place.writer().append([numbered(50, 52, agent="web2", committed=40)])
    assert ids(source, take(source.reader())) == [50, 51]


def a_restarted_reader_goes_on_where_its_log_ends(place: AgentsPlace) -> None:
    source, entries = place.source(), []
    writer = place.writer()
    for first in range(0, 12, 3):
        writer.append([numbered(first, first + 3)])
        reader = source.reader()
        reader.restore(entries)
        entry = take(reader)
        assert ids(source, entry) == list(range(first, first + 3))
        entries.append(entry)


def a_batch_takes_what_its_limit_allows_of_every_agent_in_turn(place: AgentsPlace) -> None:
    source = place.source()
    reader = source.reader()
    for first in range(0, 40, 4):
        place.writer().append([numbered(first, first + 4, agent=agent) for agent in ("web1", "web2")])
    first = take(reader, most=1)
    assert ids(source, first) == [0, 1, 2, 3]
    found = []
    while streams := take(reader, most=400):
        labels = {agent for stream in streams for agent, _ in stream.place["agents"]}
        assert labels == {"web1", "web2"} or len(found) > 60
        found += ids(source, streams)
    assert sorted(found) == sorted([*range(4, 40), *range(40)])


def a_writer_knows_what_others_have_stored_and_what_is_committed(place: AgentsPlace) -> None:
    first, second = place.writer("g1"), place.writer("g2")
    first.append([numbered(0, 3)])
    second.append([numbered(0, 2, agent="web2")])
    for writer in (first, second):
        assert writer.stored() == {("web1", "a"): 3, ("web2", "a"): 2}
        assert writer.committed() == {}
        assert writer.waiting_bytes() > 0
    channel = channel_of(SOURCE.filled(place.options), place.folder, "access")
    report_committed(channel, "access", CommitReport(READER, {"web1": {"a": 2}}))
    assert first.committed() == {("web1", "a"): 2}
    report_committed(channel, "access", CommitReport("another.main", {"web1": {"a": 0}}))
    report_committed(channel, "access", CommitReport(READER, {"web1": {"a": 3}, "web2": {"a": 2}}))
    for writer in (first, second):
        writer.stored()
        assert writer.committed() == {("web1", "a"): 3, ("web2", "a"): 2}
        assert writer.waiting_bytes() == 0


def a_record_is_located_by_its_number_and_by_its_place_in_a_stream(place: AgentsPlace) -> None:
    source = place.source()
    reader = source.reader()
    place.writer("g1").append([numbered(0, 3), numbered(0, 4, agent="web2")])
    place.writer("g2").append([numbered(3, 5)])
    assert locates_records(source)
    (stream,) = take(reader)
    rows = ids(source, [stream])
    for agent, number in (("web1", 0), ("web1", 4), ("web1~a", 2), ("web2", 3)):
        ordinal = source.find_record(stream, agent, number)
        assert ordinal is not None
        assert rows[ordinal] == number
        found = source.locate_record(stream, ordinal)
        assert found is not None
        assert (found["agent"], found["number"], found["line"], found["file"]) == (agent[:4], number, number + 1, "/log")
        assert found["gateway"] == ("g2" if number > 3 else "g1")
    assert [source.find_record(stream, *each) for each in (("web1", 5), ("web1~b", 0), ("web3", 0))] == [None] * 3
    assert source.locate_record(stream, 9) is None


PROMISES = (
    a_record_is_located_by_its_number_and_by_its_place_in_a_stream,
    records_are_read_once_in_the_order_of_their_numbers,
    a_run_that_two_gateways_store_stands_once,
    a_run_that_overlaps_an_earlier_one_gives_only_its_new_records,
    a_later_run_waits_until_the_missing_one_is_there,
    a_run_that_waits_is_found_again_after_a_restart,
    another_incarnation_starts_at_zero,
    a_reader_that_never_met_an_agent_starts_where_it_knows_its_records_committed,
    a_restarted_reader_goes_on_where_its_log_ends,
    a_batch_takes_what_its_limit_allows_of_every_agent_in_turn,
    a_writer_knows_what_others_have_stored_and_what_is_committed,
)
