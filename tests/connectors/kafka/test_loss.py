"""Records that the cluster no longer has, under `on_data_loss: continue`: said in the source's log, once, and counted in the ledger."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from harness.kafka_protocol import read_topic
from scribengin.cli.main import main
from scribengin.connectors.contract import BatchLimits, SourceStream
from scribengin.core.errors import SourceError
from scribengin.local.prepare import open_sources, prepare
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: lossy
sources:
  numbers:
    type: kafka
    bootstrap: BOOTSTRAP
    topics: [TOPIC]
    format: json
    metadata: {at: timestamp, p: partition}
    schema: id BIGINT, at TIMESTAMP, p INT
    timeout: 30s
    on_data_loss: continue
    watermark: at 1s
steps:
  some: {from: numbers, filter: id >= 0}
  seen: {from: numbers, aggregate: {by: [p], window: {time: at, size: 1d}, emit: append, columns: {n: count(*)}}}
sinks:
  kept: {from: some, type: files, path: out/kept, format: json}
  windows: {from: seen, type: files, path: out/windows, format: json}
"""


def logged(streams: list[SourceStream]) -> list[SourceStream]:
    """As the next process reads them from the log."""
    return [SourceStream.from_json(json.loads(json.dumps(stream.as_json()))) for stream in streams]


def lost(streams: list[SourceStream]) -> list[tuple[int | None, str]]:
    return [(stream.rows, stream.lost) for stream in streams if stream.lost]


def test_what_retention_took_stands_in_the_log_once(topics: Any, open_source: Any) -> None:
    name = topics.make()
    topics.write(name, range(10))
    first = open_source(name, max_rows=4).take(final=False)
    topics.forget(name, 0, 6)
    going_on = open_source(name, on_data_loss="continue", min_rows=100, max_delay=60.0)
    going_on.reader.restore([logged(first)])
    second = logged(going_on.take(final=False))
    # logged at once, though too few records wait for a Batch
    assert lost(second) == [(2, f"offsets 4 to 5 of {name}-0 are not in the log any more")]
    assert going_on.ids(second) == [6, 7, 8, 9]
    assert len(going_on.reader.notices()) == 1
    assert going_on.take(final=False) == []

    again = open_source(name, on_data_loss="continue")
    again.reader.restore([logged(first), second])
    assert again.take() == []
    assert again.reader.notices() == []


def test_a_log_that_was_cut_is_lost_without_a_number_and_only_once(topics: Any, open_source: Any) -> None:
    name = topics.make()
    topics.write(name, range(3))
    first = open_source(name).take()
    further = [dataclasses.replace(stream, place={**stream.place, "end": 500}) for stream in first]
    going_on = open_source(name, on_data_loss="continue")
    going_on.reader.restore([further])
    second = logged(going_on.take())
    ((rows, what),) = lost(second)
    assert rows is None
    assert "ends at offset 3, but the flow has read it up to 500" in what
    again = open_source(name, on_data_loss="continue")
    again.reader.restore([further, second])
    topics.write(name, [3])
    assert again.ids(again.take()) == [3]


def test_a_topic_made_anew_is_told_once_for_each_time(topics: Any, open_source: Any) -> None:
    name = topics.make()
    topics.write(name, range(3))
    log = [logged(open_source(name).take())]
    topics.make_anew(name)
    for _ in range(2):
        going_on = open_source(name, on_data_loss="continue")
        going_on.reader.restore(log)
        log.append(logged(going_on.take()))
    # the new one was empty, and is known all the same: nothing is told twice
    assert lost(log[1]) == [
        (None, f"topic {name} was deleted and created again; its unread records are lost (the flow had read {name}-0 up to 3)")
    ]
    assert lost(log[2]) == []
    topics.make_anew(name)
    topics.write(name, [7])
    going_on = open_source(name, on_data_loss="continue")
    going_on.reader.restore(log)
    third = going_on.take()
    assert len(lost(third)) == 1
    assert going_on.ids(third) == [7]


def test_partitions_and_topics_that_are_gone_are_told_once(topics: Any, open_source: Any) -> None:
    name, other = topics.make(), topics.make(name="leaving-b")
    topics.make(name="leaving-a")
    topics.write(name, [0])
    topics.write(other, [1])
    wider = open_source(name).take()
    wider += [dataclasses.replace(wider[0], place={**wider[0].place, "partition": 4})]
    stopping = open_source(name)
    stopping.reader.restore([wider])
    with pytest.raises(SourceError, match="has 1 partitions; expected 5"):
        stopping.take()
    going_on = open_source(name, on_data_loss="continue")
    going_on.reader.restore([wider])
    narrow = logged(going_on.take())
    assert [rows for rows, _ in lost(narrow)] == [None]
    again = open_source(name, on_data_loss="continue")
    again.reader.restore([wider, narrow])
    assert again.take() == []

    first = open_source(pattern="leaving-.*", topics=()).take()
    topics.delete(other)
    gone = open_source(pattern="leaving-.*", topics=(), on_data_loss="continue")
    gone.reader.restore([first])
    second = logged(gone.take())
    assert [what.partition(";")[0] for _, what in lost(second)] == [f"topic {other} does not exist any more"]
    again = open_source(pattern="leaving-.*", topics=(), on_data_loss="continue")
    again.reader.restore([first, second])
    assert again.take() == []


def test_what_was_logged_and_is_gone_before_it_is_read_is_lost_too(topics: Any, open_source: Any) -> None:
    name, anew = topics.make(2), topics.make()
    topics.write(name, range(10), 0)
    topics.write(name, range(10, 20), 1)
    topics.write(anew, range(5))
    entry = logged(open_source(name, anew, split=5).take())
    careful, going_on = open_source(name, anew), open_source(name, anew, on_data_loss="continue")
    assert careful.reader.verify(entry) == entry
    topics.forget(name, 0, 7)
    topics.make_anew(anew)
    topics.write(anew, range(50, 60))
    with pytest.raises(SourceError, match="but were assigned to a Batch and not yet read") as caught:
        careful.reader.verify(entry)
    assert caught.value.code == "data-loss"
    checked = logged(going_on.reader.verify(entry))
    told = [(stream.label, stream.rows) for stream in checked]
    # the records of today's topic are not those that were logged
    assert sorted(told) == sorted([
        (f"{name}-0[0:5] lost", 5), (f"{name}-0[5:5]", 0), (f"{name}-0[5:7] lost", 2), (f"{name}-0[7:10]", 3),
        (f"{name}-1[0:5]", 5), (f"{name}-1[5:10]", 5), (f"{anew}-0[0:5] lost", 5), (f"{anew}-0[5:5]", 0),
    ])  # fmt: skip
    assert sorted(going_on.ids(checked)) == [7, 8, 9, *range(10, 20)]
    assert going_on.reader.verify(checked) == checked
    going_on.reader.restore([checked])
    assert going_on.ids(going_on.take()) == list(range(50, 60))

    cut = [stream for stream in open_source(name).take() if stream.place["partition"] == 1]
    cut = [dataclasses.replace(cut[0], place={**cut[0].place, "end": 300}, rows=300)]
    assert [(stream.label, stream.rows) for stream in going_on.reader.verify(cut)] == [
        (f"{name}-1[10:300] lost", 290),
        (f"{name}-1[0:10]", 10),
    ]


GOING = """
version: 1
name: going
sources:
  numbers:
    type: kafka
    bootstrap: BOOTSTRAP
    topics: [TOPIC]
    format: json
    schema: id BIGINT
    timeout: 30s
    max_rows: 10
    on_data_loss: continue
steps:
  waited: {from: numbers, python: "steps:waited"}
sinks:
  kept: {from: waited, type: files, path: out, format: json}
"""
WAITED = """
import time
from pathlib import Path


def waited(row):
    Path({reading!r}).touch()
    deadline = time.monotonic() + 60
    while not Path({gone!r}).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return True
"""


@pytest.mark.timeout(300)
def test_a_query_goes_on_where_records_vanish_between_the_log_and_the_reading(folder: FlowFolder, cluster: Any, topics: Any) -> None:
    topic, reading, gone = topics.make(), folder.path / "reading", folder.path / "gone"
    folder.flow(GOING.replace("BOOTSTRAP", f'"{cluster.bootstrap}"').replace("TOPIC", topic))
    folder.steps(WAITED.format(reading=str(reading), gone=str(gone)))
    topics.write(topic, range(30))
    notices: list[str] = []

    def watch(view: Any) -> None:
        notices.extend(view.notices)
        # all three entries are logged by now, and the first is read
        if reading.exists() and not gone.exists():
            topics.forget(topic, 0, 25)
            gone.touch()

    result = folder.run(watch=watch)
    assert (result.state, result.violations) == ("finished", ())
    assert [row["id"] for row in folder.read("out")] == [*range(10), *range(25, 30)]
    (query,) = result.queries
    assert (query.rows.rows_in, query.rows.lost, query.rows.lost_unknown) == (15, 15, 0)
    assert [notice.partition(" are not in the log any more")[0] for notice in notices if "are not in the log any more" in notice] == [
        "numbers: offsets 10 to 19 of " + f"{topic}-0",
        "numbers: offsets 20 to 24 of " + f"{topic}-0",
    ]


BY_UNITS = """
version: 1
name: units
sources:
  numbers:
    type: kafka
    bootstrap: BOOTSTRAP
    topics: [TOPIC]
    format: json
    schema: id BIGINT
    timeout: 30s
    on_data_loss: continue
steps:
  tried: {from: numbers, python: "steps:tried", on_error: fail}
sinks:
  out: {from: tried, type: kafka, bootstrap: BOOTSTRAP, topic: OUT, format: json}
"""
TRIED = """
import time
from pathlib import Path


def tried(row):
    deadline = time.monotonic() + 60
    while row["id"] >= 10 and not Path({seen!r}).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert row["id"] < 10 or Path({mended!r}).exists()
    return row
"""


@pytest.mark.timeout(300)
def test_a_batch_of_which_one_unit_is_committed_goes_on_without_what_another_has_lost(
    folder: FlowFolder, cluster: Any, topics: Any
) -> None:
    topic, out, seen, mended = topics.make(3), topics.make(), folder.path / "seen", folder.path / "mended"
    text = BY_UNITS.replace("BOOTSTRAP", f'"{cluster.bootstrap}"').replace("TOPIC", topic).replace("OUT", out)
    folder.flow(text).steps(TRIED.format(seen=str(seen), mended=str(mended)))
    for partition in range(3):
        topics.write(topic, range(10 * partition, 10 * partition + 10), partition)

    def ids() -> list[int]:
        return [found.row["id"] for found in read_topic(cluster.bootstrap, out, [])]

    def watch(view: Any) -> None:
        if view.queries and not seen.exists() and ids():
            seen.touch()

    assert folder.run(watch=watch).state == "failed"
    assert sorted(ids()) == [*range(10)]
    topics.forget(topic, 1, 6)
    topics.forget(topic, 2, 10)
    mended.touch()
    result = folder.run()
    assert (result.state, result.violations) == ("finished", ())
    assert sorted(ids()) == [*range(10), *range(16, 20)]
    (query,) = result.queries
    assert (query.rows.rows_in, query.rows.out, query.rows.lost, query.rows.lost_unknown) == (14, 14, 16, 0)


def said(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command, which must do well, prints on stdout."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    out, err = capfd.readouterr()
    assert ended.value.code == 0, err
    return out


def log_and_lose(folder: FlowFolder, topics: Any, topic: str) -> None:
    """As a run that was killed when it had logged what comes next, and a long pause: three of five records are gone."""
    prepared = prepare(folder.path / "flow.yaml", state=None).tiers[0]
    source = open_sources(prepared.plan.flow)["numbers"]
    for query in prepared.folder.queries():
        log = SourceLog(query.sources, "numbers")
        reader = source.reader()
        reader.restore(log.entries())
        log.append(log.length(), reader.split(BatchLimits(), final=True))
    topics.forget(topic, 1, 8)


@pytest.mark.timeout(300)
def test_the_ledger_counts_what_was_lost_of_queries_with_and_without_state(
    folder: FlowFolder, cluster: Any, topics: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = topics.make(2)
    folder.flow(FLOW.replace("BOOTSTRAP", f'"{cluster.bootstrap}"').replace("TOPIC", topic))
    topics.write(topic, range(10))
    folder.run()
    topics.write(topic, range(10, 20))
    topics.forget(topic, 0, 15)
    topics.write(topic, range(20, 25), 1)
    views: list[Any] = []
    result = folder.run(watch=views.append)
    folder.run()  # what was lost is not told again
    topics.write(topic, range(25, 30), 1)
    log_and_lose(folder, topics, topic)
    folder.run()

    assert result.balanced, result.violations
    assert sorted(row["id"] for row in folder.read("out/kept")) == [*range(10), *range(15, 25), 28, 29]
    for run, rows_in, lost_rows in ((result, 20, 5), (folder.results[2], 20, 5), (folder.results[3], 22, 8)):
        assert run.balanced, run.violations
        for query in run.as_json()["queries"]:
            assert (query["rows"]["in"], query["rows"]["lost"], query["rows"]["lost_unknown"]) == (rows_in, lost_rows, 0)
            assert query["nodes"]["numbers"]["lost"] == lost_rows
    assert {query.lost for query in views[-1].queries} == {5}
    told = f"numbers: offsets 10 to 14 of {topic}-0 are not in the log any more"
    assert told in {notice for view in views for notice in view.notices}

    audited = json.loads(said(capfd, "audit", str(folder.path / "flow.yaml"), "--json"))
    for query in audited["result"]["queries"]:
        first, second = query["losses"]
        assert first == {"source": "numbers", "entry": 1, "rows": 5, "what": told.partition(": ")[2]}
        assert (second["entry"], second["rows"]) == (2, 3)
    shown = " ".join(said(capfd, "audit", str(folder.path / "flow.yaml")).split())
    assert "records of numbers that query kept skipped: up to 8." in shown
    assert told.partition(": ")[2] in shown
