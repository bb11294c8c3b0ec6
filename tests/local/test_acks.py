"""What is acknowledged is released, and nothing else: files and channels of flows that really ran."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scribengin.cli.commands.offsets import set_ as set_offset
from scribengin.connectors.channel.folder import FolderChannelSink
from scribengin.connectors.files.globs import covers
from scribengin.connectors.files.pieces import FilePiece
from scribengin.connectors.files.release import release_file
from scribengin.core.errors import Unreachable
from scribengin.core.storage import replace
from scribengin.local.acks import Releases
from scribengin.local.audit import audit_flow
from scribengin.local.prepare import prepare
from scribengin.local.status import read_standing
from scribengin.state.channel_acks import QueryKey
from scribengin.state.decisions import Decisions
from scribengin.state.lease import take_lease

FLOW = """\
version: 1
name: relay
defaults: {{trace: {trace}}}
sources:
  rows: {{type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP", max_files: 1, {when_done}}}
steps:
  some: {{from: rows, filter: id % 10 != 9}}
  odd: {{from: some, filter: id % 2 = 1}}
sinks:
  kept: {{from: odd, type: files, path: out, format: json}}
tiers:
  edge: {{steps: [some]}}
  core: {{steps: [odd]}}
  store: {{steps: [kept]}}
edges:
  some -> odd: {{retention: 10m}}
"""
EDGE, CORE = QueryKey("edge", "some_to_core"), QueryKey("core", "odd_to_store")


def relay(folder: Any, *, when_done: str = "", trace: float = 0, files: int = 3) -> Any:
    folder.flow(FLOW.format(when_done=when_done, trace=trace))
    for number in range(files):
        folder.data(f"data/{number}.jsonl", [{"id": number * 10 + id_} for id_ in range(10)])
    return folder


def prepared_of(folder: Any) -> Any:
    return prepare(folder.path / "flow.yaml", state=None)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


class Clock:
    """Seconds since 1970, by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def test_files_are_archived_once_the_last_tier_has_committed_them(folder: Any) -> None:
    relay(folder, when_done="when_done: archive, archive: done")
    assert folder.run(tier="edge").state == "finished"
    assert names(folder.path / "data") == ["0.jsonl", "1.jsonl", "2.jsonl"], "only the first tier has them"
    assert folder.run(tier="core").state == "finished"
    assert len(names(folder.path / "data")) == 3
    assert folder.run(tier="store").state == "finished"
    assert len(names(folder.path / "data")) == 3, "the edge's files are the edge's to release"
    assert folder.run(tier="edge").state == "finished"
    assert names(folder.path / "data") == []
    assert names(folder.path / "done") == ["0.jsonl", "1.jsonl", "2.jsonl"]
    folder.data("data/3.jsonl", [{"id": 31}])
    assert folder.run().state == "finished"
    assert names(folder.path / "data") == []
    assert sorted(row["id"] for row in folder.read("out")) == [*(i for n in range(3) for i in (1, 3, 5, 7) for i in [n * 10 + i]), 31]
    assert audit_flow(prepared_of(folder)).balanced


def test_a_kill_between_the_move_and_its_record_loses_and_doubles_nothing(folder: Any) -> None:
    """The file lies in the archive, nobody has noted it: the next look finds it gone, and goes on."""
    relay(folder)
    assert folder.run().state == "finished"
    relay(folder, when_done="when_done: archive, archive: done", files=0)
    releases = Releases(prepared_of(folder))

    class KilledError(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scribengin.local.acks.replace", killed)
        with pytest.raises(KilledError):
            releases.release_acknowledged()
    assert names(folder.path / "done") == ["0.jsonl", "1.jsonl", "2.jsonl"]
    before = (folder.path / "done" / "0.jsonl").stat()
    # another file of that name comes, which nobody has read
    folder.data("data/0.jsonl", [{"id": 101}])
    for _ in range(2):
        said: list[str] = []
        releases = Releases(prepared_of(folder), say=said.append)
        releases.release_acknowledged()
        assert names(folder.path / "data") == ["0.jsonl"]
    assert (folder.path / "done" / "0.jsonl").stat().st_mtime_ns == before.st_mtime_ns
    assert "0.jsonl is kept: it is not the file that was read" in "".join(said) or not said


def test_an_acknowledgement_ten_minutes_late_sends_nothing_twice(folder: Any) -> None:
    """No clock decides what is sent: the first tier waits as long as it takes, and releases then."""
    relay(folder, when_done="when_done: delete")
    assert folder.run(tier="edge").state == "finished"
    clock = Clock()
    releases = Releases(prepared_of(folder), clock=clock)
    decided = Decisions(prepared_of(folder).tiers[0].folder.query("some_to_core").decisions).totals().batches
    for _ in range(10):
        assert releases.release_acknowledged().queries[EDGE].acknowledged == -1
        clock.now += 60
    assert folder.run(tier="edge").state == "finished"
    assert Decisions(prepared_of(folder).tiers[0].folder.query("some_to_core").decisions).totals().batches == decided
    assert len(names(folder.path / "data")) == 3
    assert folder.run(tier="core").state == "finished"
    assert folder.run(tier="store").state == "finished"
    assert releases.release_acknowledged().queries[EDGE].acknowledged == decided - 1
    assert names(folder.path / "data") == []
    assert sorted(row["id"] for row in folder.read("out")) == [n * 10 + i for n in range(3) for i in (1, 3, 5, 7)]


def test_a_channels_files_go_when_their_retention_has_passed_and_the_audit_counts_their_rows(folder: Any) -> None:
    relay(folder)
    assert folder.run(tier="edge").state == "finished"
    packs = folder.path / ".scribengin" / "relay" / "channels" / "some_to_core" / "packs"
    there = len(list(packs.glob("part-*")))
    assert there == 3
    clock = Clock()
    releases = Releases(prepared_of(folder), clock=clock)
    releases.release_acknowledged()
    clock.now += 3600
    releases.release_acknowledged()
    assert len(list(packs.glob("part-*"))) == there, "nobody has read them"
    assert folder.run(tier="core").state == "finished"
    assert folder.run(tier="store").state == "finished"
    releases.release_acknowledged()
    clock.now += 599
    releases.release_acknowledged()
    assert len(list(packs.glob("part-*"))) == there
    # a process that takes over knows since when
    releases = Releases(prepared_of(folder), clock=clock)
    clock.now += 2
    releases.release_acknowledged()
    assert list(packs.glob("part-*")) == []
    audit = audit_flow(prepared_of(folder))
    assert audit.balanced, [report.violations for report in audit.reports]
    assert {sink.sink: sink.found for report in audit.reports for sink in report.sinks}["some_to_core"] == 27
    folder.data("data/9.jsonl", [{"id": 91}])
    assert folder.run().state == "finished"
    assert audit_flow(prepared_of(folder)).balanced
    # a file that vanishes by another's hand is still missing
    for part in packs.glob("part-*"):
        part.unlink()
    assert not audit_flow(prepared_of(folder)).balanced


def test_files_that_a_rewind_of_the_feeder_has_left_go_when_nobody_can_need_them_any_more(folder: Any) -> None:
    relay(folder)
    packs = folder.path / ".scribengin" / "relay" / "channels" / "some_to_core" / "packs"
    assert folder.run(tier="edge").state == "finished"
    assert CliRunner().invoke(set_offset, [str(folder.path / "flow.yaml"), "rows", "1", "--yes"]).exit_code == 0
    left = {path.name for path in packs.glob("part-*")}
    standing = read_standing(prepared_of(folder))
    (edge,) = [each for each in standing["edges"] if each["channel"] == "some_to_core"]
    assert (edge["waiting"]["rows"], edge["waiting"]["batches"]) == (27, 3), "what the old lineage has put in waits for the reader"
    clock = Clock()
    releases = Releases(prepared_of(folder), clock=clock)
    releases.release_acknowledged()
    clock.now += 3600
    releases.release_acknowledged()
    assert folder.run(tier="edge").state == "finished"
    releases.release_acknowledged()
    clock.now += 3600
    releases.release_acknowledged()
    assert {path.name for path in packs.glob("part-*")} > left, "nobody has read them"
    assert folder.run(tier="core").state == "finished"
    releases.release_acknowledged()
    clock.now += 3600
    releases.release_acknowledged()
    assert {path.name for path in packs.glob("part-*")} > left, "the end of the chain has not committed them"
    assert folder.run(tier="store").state == "finished"
    releases.release_acknowledged()
    clock.now += 599
    releases.release_acknowledged()
    assert {path.name for path in packs.glob("part-*")} > left
    clock.now += 2
    Releases(prepared_of(folder), clock=clock).release_acknowledged()
    assert list(packs.glob("part-*")) == []
    audit = audit_flow(prepared_of(folder))
    assert audit.balanced, [report.violations for report in audit.reports]
    assert len(folder.read("out")) == 12 + 8


def test_a_feeder_goes_back_only_when_what_waits_for_a_channel_that_was_away_is_handed_over(folder: Any) -> None:
    """A new lineage would never look for what the old one has kept: rows before the position would be lost."""
    relay(folder)
    flow = folder.path / "flow.yaml"
    flow.write_text(flow.read_text().replace("retention: 10m", "durability: store_on_failure"))
    back = [str(flow), "rows", "2", "--yes"]

    def away(*_: Any, **__: Any) -> None:
        raise Unreachable("the folder is not mounted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FolderChannelSink, "publish", away)
        assert folder.run(tier="edge").state == "finished"
        refused = CliRunner().invoke(set_offset, back)
        assert refused.exit_code != 0
        assert "cannot go back yet" in refused.output
        assert "27 rows" in refused.output
        (edge,) = [each for each in read_standing(prepared_of(folder))["edges"] if each["channel"] == "some_to_core"]
        assert (edge["waiting"]["rows"], edge["stored_rows"], edge["read"]["rows"]) == (27, 27, 0)
    assert CliRunner().invoke(set_offset, back).exit_code == 0
    assert folder.run().state == "finished"
    assert sorted(row["id"] for row in folder.read("out")) == sorted([n * 10 + i for n in (0, 1, 2, 2) for i in (1, 3, 5, 7)])
    assert audit_flow(prepared_of(folder)).balanced


def test_every_query_that_reads_a_file_must_have_it(folder: Any) -> None:
    """Two sinks read the source, each in a Query of its own; one of them is behind."""
    text = """\
version: 1
name: two
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT", when_done: delete}
sinks:
  kept: {from: rows, type: files, path: out, format: json}
  late: {from: rows, type: files, path: late, format: json}
tiers:
  fast: {steps: [kept]}
  slow: {steps: [late]}
"""
    folder.flow(text).data("data/a.jsonl", [{"id": 1}])
    assert folder.run(tier="fast").state == "finished"
    assert names(folder.path / "data") == ["a.jsonl"]
    assert folder.run(tier="slow").state == "finished"
    assert names(folder.path / "data") == []
    assert [row["id"] for row in folder.read("late")] == [1]


def test_a_kill_between_the_records_of_two_queries_leaves_no_file_that_is_waited_for(folder: Any) -> None:
    folder.flow(FLOW.format(when_done="", trace=0).partition("tiers:")[0] + "  more: {from: some, type: files, path: more, format: json}\n")
    folder.data("data/a.jsonl", [{"id": 1}])
    assert folder.run().state == "finished"
    flow = folder.path / "flow.yaml"
    flow.write_text(flow.read_text().replace("max_files: 1", "max_files: 1, when_done: delete"))
    state = prepared_of(folder).tiers[0].folder

    def places() -> list[Any]:
        records = (state.query(name).ledger / "released.json" for name in ("kept", "more"))
        return [json.loads(record.read_text())["body"]["files"] if record.exists() else None for record in records]

    written = []

    def killed(path: Path, data: bytes) -> None:
        written.append(path)
        if len(written) == 2:
            raise KeyboardInterrupt
        replace(path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scribengin.local.acks.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            Releases(prepared_of(folder)).release_acknowledged()
    assert names(folder.path / "data") == []
    assert None in places()
    Releases(prepared_of(folder)).release_acknowledged()
    assert places() == [{"rows": 1}, {"rows": 1}]


def piece_of(path: Path) -> FilePiece:
    status = path.stat()
    return FilePiece(path.name, status.st_size, status.st_mtime_ns, status.st_ino, 0, status.st_size, status.st_size)


def test_a_file_is_released_only_as_it_was_recorded(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("one\n")
    piece = piece_of(file)
    file.write_text("two\n")
    os.utime(file, ns=(piece.mtime_ns + 1, piece.mtime_ns + 1))
    assert "is kept" in release_file(tmp_path, piece, None)
    assert file.exists()
    os.utime(file, ns=(piece.mtime_ns, piece.mtime_ns))
    assert not release_file(tmp_path, piece, None)
    assert not file.exists()
    assert not release_file(tmp_path, piece, None), "it is gone already"


def test_a_file_that_its_sink_deletes_while_it_is_archived_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("x")
    piece = piece_of(path)

    def taken_before(self: Path, target: Path) -> None:
        self.unlink()
        raise FileNotFoundError(target)

    monkeypatch.setattr(type(path), "rename", taken_before)
    assert release_file(tmp_path, piece, tmp_path / "archive") == ""
    path.write_text("x")
    monkeypatch.setattr(type(path), "rename", lambda *_: (_ for _ in ()).throw(FileNotFoundError("archive")))
    with pytest.raises(FileNotFoundError):
        release_file(tmp_path, piece_of(path), tmp_path / "archive")


def test_an_archive_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "a.jsonl").write_text("old\n")
    for text in ("new\n", "new\n", "newer\n"):  # the second is a copy whose copier was killed before it deleted
        file = tmp_path / "a.jsonl"
        file.write_text(text)
        assert not release_file(tmp_path, piece_of(file), tmp_path / "done")
        assert not file.exists()
    assert {path.name: path.read_text() for path in (tmp_path / "done").iterdir()} == {
        "a.jsonl": "old\n",
        "a.jsonl.1": "new\n",
        "a.jsonl.2": "newer\n",
    }


@pytest.mark.parametrize(
    ("path", "file", "reads"),
    [
        ("/d", "/d/a", True),
        ("/d", "/d/sub/a", False),
        ("/d/a", "/d/a", True),
        ("/d/*.jsonl", "/d/a.jsonl", True),
        ("/d/*.jsonl", "/d/a.csv", False),
        ("/d/**/*.jsonl", "/d/x/y/a.jsonl", True),
        ("/d/**", "/d/x/a.jsonl", True),
        ("/d/**", "/d/_x/a.jsonl", False),
        ("/d", "/e/a", False),
    ],
)
def test_which_files_a_path_covers(path: str, file: str, reads: bool) -> None:
    assert covers(Path(path), Path(file)) == reads


STATEFUL = """\
version: 1
name: hours
sources:
  rows: {{type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP", max_files: 1, watermark: ts 1m, when_done: delete}}
steps:
  some: {{from: rows, filter: id >= 0}}
  by_hour: {{from: some, aggregate: {{by: [], window: {{time: ts, size: 1h}}, columns: {{n: count(*)}}}}}}
sinks:
  counts: {{from: by_hour, type: files, path: out, format: json}}
tiers:
  edge: {{steps: [some]}}
  core: {{steps: [by_hour, counts], acknowledge: {acknowledge}}}
"""


@pytest.mark.parametrize(("acknowledge", "left"), [("checkpoint", []), ("state", ["2.jsonl"])])
def test_a_stateful_tier_acknowledges_what_its_checkpoint_holds_or_what_has_left_its_state(
    folder: Any, acknowledge: str, left: list[str]
) -> None:
    folder.flow(STATEFUL.format(acknowledge=acknowledge))
    for number, hour in enumerate((10, 11, 13)):
        folder.data(f"data/{number}.jsonl", [{"id": id_, "ts": f"2026-01-01T{hour}:{id_:02d}:00Z"} for id_ in range(10)])
        assert folder.run().state == "finished"
    standing = Releases(prepared_of(folder)).release_acknowledged()
    core = standing.queries[QueryKey("core", "counts")]
    times = [decision.times for decision in Decisions(prepared_of(folder).tiers[1].folder.query("counts").decisions).since()]
    assert all(each["watermark_us"] >= 0 for each in times)
    assert core.acknowledged == core.decided if acknowledge == "checkpoint" else core.acknowledged < core.decided, times
    # one tier may end before the other's last Batch
    assert folder.run(tier="edge").state == "finished"
    assert names(folder.path / "data") == left
    assert [row["n"] for row in folder.read("out")] == [10, 10]


FORK = """\
version: 1
name: forked
sources:
  rows: {{type: files, path: data, format: json, schema: "id BIGINT", when_done: delete}}
steps:
  some: {{from: rows, filter: id >= 0}}
sinks:
  kept: {{from: some, type: files, path: out, format: json}}
  spare: {{from: some, type: files, path: spare, format: json}}
tiers:
  edge: {{steps: [some]}}
  near: {{steps: [kept]}}
  far: {{steps: [spare]}}
edges:
  some -> spare: {{durability: {durability}}}
"""


@pytest.mark.parametrize(("durability", "left"), [("best_effort", []), ("end_to_end", ["a.jsonl"])])
def test_a_branch_that_never_runs_holds_the_source_only_where_it_must(folder: Any, durability: str, left: list[str]) -> None:
    folder.flow(FORK.format(durability=durability)).data("data/a.jsonl", [{"id": 1}, {"id": 2}])
    assert folder.run(tier="edge").state == "finished"
    assert names(folder.path / "data") == ["a.jsonl"]
    assert folder.run(tier="near").state == "finished"
    assert folder.run(tier="edge").state == "finished"
    assert names(folder.path / "data") == left
    prepared = prepared_of(folder)
    with take_lease(prepared.tiers[0].folder):
        found = read_standing(prepared)
    assert [(tier["tier"], tier["holder"] is not None) for tier in found["tiers"]] == [("edge", True), ("near", False), ("far", False)]
    states = {query["query"]: query["state"] for tier in found["tiers"] for query in tier["queries"]}
    assert states == {"some_to_near": "running", "some_to_far": "running", "kept": "stopped", "spare": "never ran"}
    edges = {edge["to"]: edge for edge in found["edges"]}
    assert edges["near"]["committed"] == {"rows": 2, "batch": 0}
    assert edges["far"]["waiting"]["rows"] == 2
    assert edges["far"]["waiting"]["oldest_s"] >= 0
    assert [source["released"] for source in found["sources"]] == [1, 0 if left else 1]


def test_who_could_not_be_told_is_asked_again_later_and_not_at_every_look(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    relay(folder)
    assert folder.run().state == "finished"
    prepared, clock, asked, said = prepared_of(folder), Clock(), list[str](), list[str]()
    for path in (folder.path / ".scribengin/relay").rglob("released.json"):
        path.unlink()

    def teller(_tier: Any, id_: str) -> Any:
        asked.append(id_)
        if len(asked) == 1:
            raise Unreachable("the brokers do not answer")
        return False

    monkeypatch.setattr("scribengin.local.acks._reports_position", lambda _node: True)  # as a topic does
    monkeypatch.setattr("scribengin.local.acks._reporting_reader", teller)
    core = dataclasses.replace(prepared, tiers=tuple(tier for tier in prepared.tiers if tier.plan.tier == "core"))
    releases = Releases(core, say=said.append, clock=clock)
    releases.release_acknowledged()
    releases.release_acknowledged()
    assert (len(asked), len(said)) == (1, 1)
    clock.now += 40
    releases.release_acknowledged()
    assert asked == [asked[0]] * 2
    clock.now += 40
    releases.release_acknowledged()
    assert len(asked) == 2, "it was told"
