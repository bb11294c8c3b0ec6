"""Records that the cluster no longer has, under `on_data_loss: continue`: said in the source's log, once, and counted in the ledger."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.cli.main import main
from scribengin.connectors.contract import SourceStream
from scribengin.core.errors import SourceError
from tests.kafka.test_source import within

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


def make_anew(topics: Any, name: str) -> None:
    topics.delete(name)

    def made() -> bool:
        try:
            topics.make(name=name)
        except Exception:
            return False
        return True

    within(60, made)


def test_what_retention_took_stands_in_the_log_once(topics: Any, open_source: Any) -> None:
    name = topics.make()
    topics.write(name, range(10))
    first = open_source(name, max_rows=4).take(final=False)
    topics.forget(name, 0, 6)
    going_on = open_source(name, on_data_loss="continue", min_rows=100, max_delay=60.0)
    going_on.reader.restore([logged(first)])
    second = logged(going_on.take(final=False))
    # logged at once, though too few records wait for a Batch
    assert lost(second) == [(2, f"offsets 4 to 5 of {name}-0 are gone from the log")]
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
    assert "ends at offset 3, the flow has read it up to 500" in what
    again = open_source(name, on_data_loss="continue")
    again.reader.restore([further, second])
    topics.write(name, [3])
    assert again.ids(again.take()) == [3]


def test_a_topic_made_anew_is_told_once_for_each_time(topics: Any, open_source: Any) -> None:
    name = topics.make()
    topics.write(name, range(3))
    log = [logged(open_source(name).take())]
    make_anew(topics, name)
    for _ in range(2):
        going_on = open_source(name, on_data_loss="continue")
        going_on.reader.restore(log)
        log.append(logged(going_on.take()))
    # the new one was empty, and is known all the same: nothing is told twice
    assert lost(log[1]) == [
        (None, f"topic {name} was deleted and made again; what the flow had not read of it is lost (it had read {name}-0 up to 3)")
    ]
    assert lost(log[2]) == []
    make_anew(topics, name)
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
    with pytest.raises(SourceError, match="has 1 partitions, it had 5"):
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
    assert [what.partition(";")[0] for _, what in lost(second)] == [f"topic {other} is gone"]
    again = open_source(pattern="leaving-.*", topics=(), on_data_loss="continue")
    again.reader.restore([first, second])
    assert again.take() == []


def said(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command, which must do well, prints on stdout."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    out, err = capfd.readouterr()
    assert ended.value.code == 0, err
    return out


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

    assert result.balanced, result.violations
    assert sorted(row["id"] for row in folder.read("out/kept")) == [*range(10), *range(15, 25)]
    for run in (result, folder.results[-1]):
        for query in run.as_json()["queries"]:
            assert (query["rows"]["in"], query["rows"]["lost"], query["rows"]["lost_unknown"]) == (20, 5, 0)
            assert query["nodes"]["numbers"]["lost"] == 5
    assert {query.lost for query in views[-1].queries} == {5}
    told = f"numbers: offsets 10 to 14 of {topic}-0 are gone from the log"
    assert told in {notice for view in views for notice in view.notices}

    audited = json.loads(said(capfd, "audit", str(folder.path / "flow.yaml"), "--json"))
    for query in audited["result"]["queries"]:
        assert query["losses"] == [{"source": "numbers", "entry": 1, "rows": 5, "what": told.partition(": ")[2]}]
    shown = " ".join(said(capfd, "audit", str(folder.path / "flow.yaml")).split())
    assert "records of numbers that query kept went on without: up to 5." in shown
    assert told.partition(": ")[2] in shown
