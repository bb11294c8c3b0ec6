"""What `run` would refuse `plan` says, in the same words, and neither needs Spark for it; a wrong path is never a mistake of Scribengin."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from scribengin.cli.commands import plan, validate
from scribengin.cli.flow_argument import as_called
from scribengin.cli.main import main
from scribengin.connectors.catalog import check_sink_place, open_source
from scribengin.connectors.contract import BatchId, BatchLimits, Claimant, ConnectorContext, Decided, SourceStream
from scribengin.connectors.files.sink import FilesSink
from scribengin.core.errors import EnvironmentFault, Exit, Refused, ScribenginError, SinkError, SourceError
from scribengin.core.remedies import flow_command
from scribengin.core.storage import folder_fault, make_folder, shown_path
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.local import run
from scribengin.local.contract import RunSettings
from scribengin.local.preflight import empty_lookups, placing_errors, repeated_keys, with_trash_remedy
from scribengin.local.prepare import first_file_faults, is_begun, open_sinks, open_sources, prepare, sink_place, source_place
from scribengin.local.reset import Reset
from scribengin.state.contract import Decision
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import open_lineage, read_lineage
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import FlowFolder

    from scribengin.local.contract import RunView

FLOW = """\
version: 1
name: small
sources:
  events: {{type: files, path: {source}, format: json, schema: "id BIGINT, k STRING, ts TIMESTAMP", watermark: ts 1m}}
steps:
  hourly: {{from: events, aggregate: {{window: {{time: ts, size: 1h}}, by: {by}, columns: {{n: count(*)}}}}}}
sinks:
  kept: {{from: hourly, type: files, path: {sink}, format: json}}
"""


def write(folder: Path, source: str = "data", sink: str = "out", by: str = "[k]") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "a.jsonl").write_text('{"id": 1, "k": "a", "ts": "2026-01-01T00:00:00Z"}\n')
    (folder / "a_file").touch()
    path = folder / "flow.yaml"
    path.write_text(FLOW.format(source=source, sink=sink, by=by))
    return path


def begin(path: Path, *, publish: bool = False, adopt: bool = False) -> None:
    """What a run leaves that dies in its first Batch: a lineage, a checkpoint, a claimed sink; with `publish` one that dies behind it."""
    (tier,) = prepare(path, state=None).tiers
    (query,) = tier.plan.queries
    folder, owner = tier.folder.query(query.name), tier.folder.read_owner()
    lineage = open_lineage(
        folder,
        owner=owner,
        fingerprint=query.fingerprint,
        state_fingerprint=query.state_fingerprint,
        sources=query.sources,
        parts=query.parts,
        types={"kept": tier.plan.flow.sinks["kept"].type},
    )
    make_folder(folder.checkpoint)
    sink = open_sinks(tier.plan.flow, tier.plan, tier.folder)["kept"]
    sink.prepare(owner=owner, lineage=lineage.id, adopt=adopt)
    if publish:
        sink.publish(one_row(sink, BatchId("small", query.name, lineage.id, 0, 1)))


def decide(path: Path) -> None:
    """What a run leaves that dies when it has decided and published its first Batch, and not yet noted that it has."""
    begin(path)
    (tier,) = prepare(path, state=None).tiers
    folder = tier.folder.query("kept")
    lineage = read_lineage(folder)
    assert lineage is not None
    sink = open_sinks(tier.plan.flow, tier.plan, tier.folder)["kept"]
    sink.prepare(owner=lineage.owner, lineage=lineage.id)
    decided = one_row(sink, BatchId("small", "kept", lineage.id, 0, 1))
    Decisions(folder.decisions).decide(Decision(decided.batch, "h0", "f", (), decided.receipts, (), {}, "2026-01-01T00:00:00Z"))
    sink.publish(decided)


def one_row(sink: Any, batch: BatchId) -> Decided:
    """A Batch that has staged a row."""
    schema = parse_schema("k STRING, n BIGINT")
    stream = sink.stream(batch, 0, "a", schema)
    stream.write(pa.RecordBatch.from_pylist([{"k": "a", "n": 1}], schema=arrow_schema(schema)))
    return Decided(batch, "h0", (stream.close(),))


def files_below(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def planned(path: Path) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and problems of `plan`, which must leave all as it was."""
    before = files_below(path.parent)
    assert plan.command.callback is not None
    answer = plan.command.callback(flow=str(path), deep=False, mermaid=False, state=None)
    assert files_below(path.parent) == before
    given = answer.as_object("plan")
    assert given["ok"] == (answer.exit == Exit.DONE)
    assert given["result"]["tiers"]
    return int(answer.exit), given["problems"]


def validated(path: Path, state: Path | None = None) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and problems of `validate --env`, which looks at places alone."""
    before = files_below(path.parent)
    assert validate.command.callback is not None
    answer = validate.command.callback(files=(str(path),), environment=True, state=state)
    assert files_below(path.parent) == before
    return int(answer.exit), answer.as_object("validate")["problems"]


def refused(path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> ScribenginError:
    """How `run` refuses it, before it would start Spark."""

    def started(*_args: object, **_more: object) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(run, "begin", started)
    with pytest.raises(ScribenginError) as caught:
        run.run_flow(path, RunSettings(once=True, **settings), lambda _view: None)
    return caught.value


def state_gone(folder: Path) -> Path:
    path = write(folder)
    begin(path)
    shutil.rmtree(folder / ".scribengin")
    return path


def state_copied(folder: Path) -> Path:
    original = folder.parent / "original"
    begin(write(original))
    shutil.copytree(original, folder)
    return folder / "flow.yaml"


def step_changed(folder: Path) -> Path:
    begin(write(folder))
    return write(folder, by="[k, id]")


def others_files(folder: Path) -> Path:
    path = write(folder)
    (folder / "out").mkdir()
    (folder / "out" / "part-0-0-x.jsonl").touch()
    return path


def changed(text: str) -> Callable[[Path], Path]:
    """A flow that has written JSON to its folder, and whose sink has these options since."""

    def make(folder: Path) -> Path:
        path = write(folder)
        begin(path, publish=True)
        path.write_text(path.read_text().replace("path: out, format: json", f"path: out, {text}"))
        return path

    return make


def nested(other: str, sink: str) -> Callable[[Path], Path]:
    """A flow whose sink writes to `sink`, and another one that has written to `other`."""

    def make(folder: Path) -> Path:
        begin(write(folder, sink=other), publish=True)
        shutil.rmtree(folder / ".scribengin")
        path = write(folder, sink=sink)
        path.write_text(path.read_text().replace("name: small", "name: large"))
        return path

    return make


CASES: list[tuple[str, Callable[[Path], Path], str, tuple[int, int]]] = [
    ("source-missing", lambda folder: write(folder, source="dta"), "source", (4, 31)),
    ("source-file-missing", lambda folder: write(folder, source="data/b.jsonl"), "source", (4, 31)),
    ("source-below-a-file", lambda folder: write(folder, source="a_file/x/y"), "source", (4, 31)),
    ("sink-is-a-file", lambda folder: write(folder, sink="a_file"), "sink-folder", (8, 43)),
    ("sink-below-a-file", lambda folder: write(folder, sink="a_file/out"), "sink-folder", (8, 43)),
    ("sink-under-proc", lambda folder: write(folder, sink="/proc/nope/out"), "sink-folder", (8, 43)),
    ("sink-name-too-long", lambda folder: write(folder, sink="x" * 300), "sink-folder", (8, 43)),
    ("sink-holds-others-files", others_files, "output-foreign", (8, 3)),
    ("sink-has-another-format", changed("format: parquet"), "output-form", (8, 3)),
    ("sink-has-other-folders", changed("format: json, partition_by: [k]"), "output-form", (8, 3)),
    ("sink-in-anothers-folder", nested("out", "out/k=a"), "output-foreign", (8, 3)),
    ("sink-far-in-anothers-folder", nested("out", "out/x/y"), "output-foreign", (8, 3)),
    ("sink-around-anothers-folder", nested("out/k=a", "out"), "output-foreign", (8, 3)),
    ("state-gone", state_gone, "output-foreign", (8, 3)),
    ("state-copied", state_copied, "state-copied", (0, 0)),
    ("step-changed", step_changed, "state-changed", (8, 3)),
]


@pytest.mark.parametrize(("make", "code", "place"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_plan_says_what_run_refuses_in_the_same_words_and_neither_starts_spark(
    make: Callable[[Path], Path], code: str, place: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "flow")
    status, problems = planned(path)
    assert status == 2
    (problem,) = problems
    assert (problem["code"], (problem["line"], problem["column"])) == (code, place)
    assert problem["file"] == str(path)
    assert problem["remedy"]
    error = refused(path, monkeypatch)
    remedy = prepare(path, state=None).named(error.remedy)
    assert (error.code, error.message, remedy, int(error.exit)) == (code, problem["message"], problem["remedy"], status)
    looked = validated(path)
    assert looked == ((2, [problem]) if code not in ("state-copied", "state-changed") else (0, []))
    assert error.place is not None
    assert (error.place.file, error.place.line, error.place.column) == (str(path), *place)


@pytest.mark.parametrize(("make", "told"), [(state_gone, 1), (write, 0)])
def test_status_of_a_flow_whose_outputs_are_there_and_whose_state_is_gone_says_so(
    make: Callable[[Path], Path], told: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path / "flow")
    with pytest.raises(SystemExit) as ended:
        main(["status", str(path), "--json"])
    problems = json.loads(capfd.readouterr().out)["problems"]
    refused_by_run = [problem for problem in planned(path)[1] if problem["code"] == "output-foreign"]
    assert (ended.value.code, len(problems), len(refused_by_run)) == (0, told, told)
    for problem, by_run in zip(problems, refused_by_run, strict=True):
        says = f'query "kept" has no state in {path.parent / ".scribengin"}; {by_run["message"]}'
        assert problem == {**by_run, "severity": "warning", "message": says}


def test_whose_a_place_is_validate_judges_by_the_state_that_it_is_given(tmp_path: Path) -> None:
    path = write(tmp_path / "flow")
    begin(path)
    (path.parent / ".scribengin").rename(path.parent / "elsewhere")
    status, (problem,) = validated(path)
    assert (status, problem["code"]) == (2, "output-foreign")
    assert validated(path, path.parent / "elsewhere") == (0, [])


def test_the_folder_of_another_flow_is_told_by_its_name_and_no_reset_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `reset --outputs` would refuse it, which moves nothing of another flow away."""
    path = write(tmp_path / "flow")
    begin(path, publish=True)
    other = path.with_name("other.yaml")
    other.write_text(path.read_text().replace("name: small", "name: large"))
    wrong = f'sink "kept": {path.parent / "out"} holds commits of the flow "small"'
    what_to_do = (
        "give the sink another folder, or delete the existing one if it is not needed; "
        'if this is the same flow under a new name, rename it back to "small"'
    )
    (of_plan,), (of_validate,) = planned(other)[1], validated(other)[1]
    error = refused(other, monkeypatch)
    for message, remedy in (
        (of_plan["message"], of_plan["remedy"]),
        (of_validate["message"], of_validate["remedy"]),
        (error.message, error.remedy),
    ):
        assert (message, remedy) == (wrong, what_to_do)
    with pytest.raises(Refused) as caught:
        reset_of(other).lost()
    assert (caught.value.message, caught.value.remedy) == (wrong, what_to_do)


def test_a_sink_in_the_folder_of_another_is_told_whose_it_is(tmp_path: Path) -> None:
    path = nested("out", "out/k=a")(tmp_path / "flow")
    out = path.parent / "out"
    for there in (False, True):  # a folder with rows of the other's is no other case
        if there:
            (out / "k=a").mkdir()
            (out / "k=a" / "part-0-0-x.jsonl").touch()
        (problem,) = planned(path)[1]
        assert problem["message"] == f'sink "kept": {out / "k=a"} lies in {out}, which is the folder of sink "kept" of flow "small"'
        assert problem["remedy"] == "give the sink another folder, beside that one"


def test_a_sink_in_another_form_says_what_was_found_and_what_is_to_come(tmp_path: Path) -> None:
    path = changed("format: parquet, partition_by: [k]")(tmp_path / "flow")
    (problem,) = planned(path)[1]
    (part,) = (path.parent / "out").glob("part-*")
    assert problem["code"] == "output-form"
    assert problem["message"] == (
        f'sink "kept": {path.parent / "out"} holds files of another format, such as {part.name}: '
        "found format json, expected parquet; found no folders, expected folders by k"
    )
    assert problem["remedy"] == (
        'write `format: json` and no `partition_by`; or give sink "kept" another id and another place: it reads everything again, and '
        "the existing output is kept; or write `evolve: any` on the sink if its readers can take both"
    )


@pytest.mark.parametrize(
    "text", ["format: json, compression: gzip", "format: parquet, evolve: any", "format: json, roll: {size: 1MiB, every: 1m}"]
)
def test_a_sink_goes_on_in_another_form_where_that_is_said(text: str, tmp_path: Path) -> None:
    """Nor does another compression keep a reader from taking all."""
    assert planned(changed(text)(tmp_path / "flow")) == (0, [])


def reset_of(path: Path) -> Reset:
    """Of the state and the outputs."""
    prepared = prepare(path, state=None)
    return Reset.of(prepared.plan.flow, [(tier.plan.flow, tier.folder) for tier in prepared.tiers], outputs=True)


def state_lost(folder: Path) -> Path:
    """Outputs of a flow whose state is gone."""
    path = write(folder)
    begin(path, publish=True)
    shutil.rmtree(folder / ".scribengin")
    return path


@pytest.mark.parametrize("gone", [".scribengin", ".scribengin/small"])
def test_where_the_state_is_gone_its_return_is_the_first_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str) -> None:
    path = write(tmp_path / "flow")
    begin(path, publish=True)
    shutil.rmtree(path.parent / gone)
    plane = "check whether a control plane runs this flow, and if so stop it there: scribengin list; or "
    first = "put the state folder back if it was moved or deleted, or name it with --state; or "
    first = plane * (gone == ".scribengin") + first
    assert refused(path, monkeypatch).remedy.startswith(first)
    assert planned(path)[1][0]["remedy"].startswith(first)


def test_where_a_new_folder_stands_in_the_states_place_it_is_to_be_removed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mv` onto it would put the state into it."""
    path = write(tmp_path / "flow")
    begin(path, publish=True)
    root, away = path.parent / ".scribengin", path.parent / "away"
    root.rename(away)
    root.mkdir()
    prepare(path, state=None).tiers[0].folder.read_owner()
    said = f"remove {root}, which holds no state, and put the state folder back if it was moved or deleted, or name it with --state"
    assert said in refused(path, monkeypatch).remedy
    assert said in planned(path)[1][0]["remedy"]
    with pytest.raises(Refused) as caught:
        reset_of(path).lost()
    assert said in caught.value.remedy
    shutil.rmtree(root)
    away.rename(root)
    assert planned(path) == (0, [])


def test_a_reset_that_only_lists_or_is_refused_makes_no_folder_of_state(tmp_path: Path) -> None:
    path = write(tmp_path / "flow")
    reset_of(path).lost()
    with pytest.raises(Refused, match="has no reset"):
        reset_of(path).undo()
    assert not (path.parent / ".scribengin").exists()
    begin(path, publish=True)
    (path.parent / ".scribengin").rename(path.parent / "away")
    with pytest.raises(Refused, match="another installation"):
        reset_of(path).lost()
    assert not (path.parent / ".scribengin").exists()


def test_a_renamed_sink_is_called_as_before_and_nothing_is_said_of_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "flow")
    begin(path, publish=True)
    before = path.read_text()
    path.write_text(before.replace("kept:", "events_kept:"))
    error = refused(path, monkeypatch)
    assert error.message.endswith('holds commits of the sink "kept"')
    assert error.remedy.startswith('rename the sink back to "kept"; or give the sink another folder')
    assert "state folder" not in error.remedy
    path.write_text(before)
    assert planned(path) == (0, [])


def test_a_decided_batch_whose_files_are_gone_is_refused_before_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "flow")
    decide(path)
    assert planned(path) == (0, [])
    (path.parent / "out").rename(path.parent / "away")
    status, (problem,) = planned(path)
    assert (status, problem["code"], problem["line"]) == (2, "state", 8)
    assert problem["message"] == f'sink "kept": {path.parent / "out"} holds no Batch of this flow, which has decided Batch 0'
    assert problem["remedy"].endswith(f"; else restore the file from a backup, or start over: scribengin reset {path} --outputs")
    error = refused(path, monkeypatch)
    assert (error.code, error.message) == (problem["code"], problem["message"])
    assert validated(path)[1] == [problem]
    (path.parent / "away").rename(path.parent / "out")
    assert planned(path) == (0, [])
    (part,) = (path.parent / "out").glob("part-*")
    part.unlink()
    (mark,) = (path.parent / "out").rglob("published")
    mark.unlink()  # as a crash leaves it, for the mark is not durable
    ((_, (problem,)), error) = planned(path), refused(path, monkeypatch)
    assert problem["message"] == error.message
    assert problem["message"].startswith(f"batch 0 names {part}, which is missing")
    assert problem["remedy"] == f"restore the file from a backup, or start over: scribengin reset {path} --outputs"


@pytest.mark.parametrize("changed", ["", "json", "added"])
def test_a_renamed_source_would_be_read_twice_and_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    path = write(tmp_path / "flow")
    text = re.sub(r"steps:\n.*\n", "", path.read_text()).replace("from: hourly", "from: events")
    path.write_text(text)
    decide(path)
    assert planned(path) == (0, [])
    text = text.replace("events", "clicks")
    if changed == "json":  # another source, of which nobody can say what it has
        path.write_text(text.replace("path: data, format: json", "path: data, format: json, on_change: ignore"))
        assert planned(path) == (0, [])
        return
    if changed == "added":
        (events,) = re.findall(r"  clicks: .*\n", text)
        text = text.replace(events, events + events.replace("clicks", "others").replace("path: data", "path: more"))
        text = text.replace("from: clicks", "from: [clicks, others]")
        (path.parent / "more").mkdir()
    path.write_text(text)
    status, (problem,) = planned(path)
    assert (status, problem["code"], problem["line"]) == (2, "source-renamed", 4)
    assert problem["message"] == 'query "kept": the source "clicks" is "events" under another id and would be read again from its start'
    assert problem["remedy"].startswith('rename the source back to "events"; or give sink "kept" another id and another place')
    assert refused(path, monkeypatch).message == problem["message"]


def test_a_file_that_changed_is_found_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "flow")
    (tier,) = prepare(path, state=None).tiers
    begin(path, publish=True)
    reader = open_source("files", source_place(tier.plan.flow, "events")).reader()
    SourceLog(tier.folder.query("kept").sources, "events").append(0, reader.split(BatchLimits(), final=True))
    assert planned(path) == (0, [])
    with (path.parent / "data/a.jsonl").open("a") as file:
        file.write("{}\n")
    status, (problem,) = planned(path)
    assert (status, problem["code"], problem["line"]) == (2, "source", 4)
    error = refused(path, monkeypatch)
    assert (error.message, error.exit) == (problem["message"], 2)


@pytest.mark.parametrize("sink", ["type: files, path: out, format: json", "type: delta, path: out"])
def test_a_sink_of_another_path_goes_on_where_its_folder_was_moved_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str
) -> None:
    path = write(tmp_path / "flow")
    path.write_text(path.read_text().replace("type: files, path: out, format: json", sink))
    decide(path)
    path.write_text(path.read_text().replace("path: out", "path: other"))
    _, (problem,) = planned(path)
    assert problem["message"] == f'sink "kept": {path.parent / "other"} holds no Batch of this flow, which has decided Batch 0'
    assert (
        f'restore its old value, or move the earlier folder to {path.parent / "other"}, or give sink "kept" another id' in problem["remedy"]
    )
    assert refused(path, monkeypatch).message == problem["message"]
    assert not (path.parent / "other").exists()
    (path.parent / "out").rename(path.parent / "other")
    assert planned(path) == (0, [])


def test_what_a_run_will_write_beside_is_told_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = state_lost(tmp_path / "flow")
    (lineage,) = [each.name for each in (path.parent / "out" / "_scribengin").iterdir() if each.is_dir()]
    told: list[str] = []
    monkeypatch.setattr(run, "begin", lambda *_args: (_ for _ in ()).throw(InterruptedError))
    with pytest.raises(InterruptedError):
        run.run_flow(path, RunSettings(append_new_lineage=True), lambda view: told.extend(view.notices))
    assert told == [
        f'sink "kept": out holds 1 row in 1 file of lineage {lineage}, which this state does not know; it is kept, and the rows '
        "that this run reads again are duplicated"
    ]


def test_a_reset_takes_what_was_added_to_along_says_so_and_brings_it_back(tmp_path: Path) -> None:
    path = state_lost(tmp_path / "flow")
    (lineage,) = [each.name for each in (path.parent / "out" / "_scribengin").iterdir() if each.is_dir()]
    begin(path, publish=True, adopt=True)
    before = files_below(path.parent / "out")
    (output,) = reset_of(path).lost()[1]
    assert str(output) == f"sink kept: 2 files in out, among them 1 row in 1 file of lineage {lineage}, which this state does not know"
    reset_of(path).run([output.as_json()])
    assert list((path.parent / "out").glob("*.jsonl")) == []
    assert planned(path) == (0, [])
    reset_of(path).undo()
    assert files_below(path.parent / "out").keys() == before.keys()


def test_a_place_is_judged_also_while_a_way_back_is_cut_short(tmp_path: Path) -> None:
    path = write(tmp_path / "flow")
    begin(path, publish=True)
    (tier,) = prepare(path, state=None).tiers
    tier.folder.query("kept").rewind.touch()
    who = Claimant(tier.folder.read_owner(), "")
    with pytest.raises(Refused, match="holds commits of another lineage") as caught, with_trash_remedy(tier.folder.root, "small"):
        check_sink_place("files", sink_place(tier.plan.flow, "kept"), who)
    assert caught.value.remedy.startswith("start over: ")


def test_a_run_in_a_remedy_keeps_what_says_how_long_and_of_what_it_runs() -> None:
    remedy = flow_command("run", "--append-new-lineage")
    assert as_called(remedy, {"flows": ["f.yaml"], "once": True, "tier": "b", "state": None}) == (
        "scribengin run f.yaml --once --tier b --append-new-lineage"
    )


def test_plan_says_all_at_once(tmp_path: Path) -> None:
    status, problems = planned(write(tmp_path / "flow", source="dta", sink="a_file"))
    assert status == 2
    assert [problem["code"] for problem in problems] == ["source", "sink-folder"]


def test_plan_says_that_the_first_file_has_other_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "flow")
    (path.parent / "data" / "a.jsonl").write_text('{"number": 1}\n')
    status, (problem,) = planned(path)
    assert (status, problem["code"], problem["line"]) == (2, "source-columns", 4)
    begin(path)
    (tier,) = prepare(path, state=None).tiers
    SourceLog(tier.folder.query("kept").sources, "events").append(0, [SourceStream("a.jsonl", {"root": "data", "pieces": []})])
    assert planned(path) == (0, [])


def test_plan_says_that_a_file_changed_after_it_was_read(tmp_path: Path) -> None:
    path = write(tmp_path / "flow")
    begin(path)
    (tier,) = prepare(path, state=None).tiers
    streams = open_sources(tier.plan.flow)["events"].reader().split(BatchLimits(), final=True)
    SourceLog(tier.folder.query("kept").sources, "events").append(0, streams)
    assert planned(path) == (0, [])
    file = path.parent / "data" / "a.jsonl"
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1_000))
    status, (problem,) = planned(path)
    assert (status, problem["code"], problem["line"]) == (2, "source", 4)
    assert "a.jsonl changed after it was assigned" in problem["message"]
    assert "touch -d " in problem["remedy"]


def test_plan_warns_of_a_growing_file_that_was_written_again(tmp_path: Path) -> None:
    path = write(tmp_path / "flow")
    path.write_text(path.read_text().replace("format: json, schema", "growing: true, format: json, schema"))
    file = path.parent / "data" / "a.jsonl"
    file.unlink()
    file = file.with_name("a.jsonl.gz")
    file.write_bytes(gzip.compress(b'{"id": 1}\n'))
    begin(path)
    (tier,) = prepare(path, state=None).tiers
    streams = open_sources(tier.plan.flow)["events"].reader().split(BatchLimits(), final=True)
    SourceLog(tier.folder.query("kept").sources, "events").append(0, streams)
    assert planned(path) == (0, [])
    file.write_bytes(gzip.compress(b'{"id": 1}\n{"id": 2}\n'))
    status, (problem,) = planned(path)
    assert (status, problem["code"], problem["severity"], problem["line"]) == (0, "source-again", "warning", 4)
    assert "a.jsonl.gz was rewritten, not appended to" in problem["message"]


def test_plan_opens_what_it_does_not_connect_to(tmp_path: Path) -> None:
    path = write(tmp_path / "flow")
    cassandra = "type: cassandra, server: [c1], keyspace: 'a b', table: t"
    path.write_text(path.read_text().replace("type: files, path: out, format: json", cassandra))
    status, (problem,) = planned(path)
    assert (status, problem["line"]) == (2, 8)
    assert '`keyspace` is "a b"' in problem["message"]


@pytest.mark.parametrize("begun", [False, True])
def test_plan_of_what_can_run_exits_with_0(tmp_path: Path, *, begun: bool) -> None:
    path = write(tmp_path / "flow")
    if begun:
        begin(path)
    assert planned(path) == (0, [])


def test_a_new_lineage_that_may_be_added_is_not_refused_before_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = state_gone(tmp_path / "flow")
    monkeypatch.setattr(run, "begin", lambda *_args: (_ for _ in ()).throw(InterruptedError))
    with pytest.raises(InterruptedError):
        run.run_flow(path, RunSettings(append_new_lineage=True), lambda _view: None)


def test_plan_in_a_process_of_its_own_prints_the_problem_and_exits_with_2(tmp_path: Path) -> None:
    path = write(tmp_path / "flow", sink="a_file")
    done = subprocess.run([sys.executable, "-m", "scribengin.cli", "plan", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f'{path}:8:43: error: sink "kept": cannot write to {path.parent / "a_file"}' in done.stderr
    assert "query kept" in done.stdout


@pytest.mark.parametrize("sink", ["a_file", "a_file/out", "/proc/nope/out", "x" * 300])
def test_a_sink_that_cannot_have_its_folder_says_so_when_it_is_claimed(sink: str, tmp_path: Path) -> None:
    path = write(tmp_path / "flow", sink=sink)
    place = ConnectorContext("kept", path.parent, {"path": sink, "format": "json"})
    with pytest.raises((EnvironmentFault, SinkError)) as caught:
        FilesSink(place).prepare(owner="o", lineage="l")
    assert caught.value.remedy


@pytest.mark.parametrize("state", ["a_file", "a_file/state", "/proc/nope/state"])
def test_a_state_folder_that_cannot_be_is_a_fault_with_a_remedy(state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "flow")
    error = refused(path, monkeypatch, state=path.parent / state)
    assert isinstance(error, EnvironmentFault)
    assert error.remedy


def test_what_the_system_says_of_a_nodes_path_is_an_error_of_the_node(tmp_path: Path) -> None:
    (tier,) = prepare(write(tmp_path / "flow"), state=None).tiers
    for node, kind, code in (("events", SourceError, "source-folder"), ("kept", SinkError, "sink-folder")):
        with pytest.raises(kind) as caught, placing_errors(tier, node):
            os.listdir(tmp_path / "nowhere")  # noqa: PTH208 (any call that the system refuses)
        assert caught.value.code == code
        assert f'"{node}"' in caught.value.message
        assert "nowhere" in caught.value.message
        assert caught.value.place is not None
        assert caught.value.place.line


def test_a_folder_that_is_not_there_yet_has_no_fault_and_is_not_made(tmp_path: Path) -> None:
    assert folder_fault(tmp_path / "a" / "b") is None
    assert not (tmp_path / "a").exists()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    fault = folder_fault(tmp_path / "link")
    assert fault is not None
    assert "broken link" in fault[0]


def test_a_path_is_shown_without_its_way_back_where_that_means_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "deep")
    assert shown_path(tmp_path / "a" / ".." / "gone") == tmp_path / "gone"
    for kept in (tmp_path / "link" / ".." / "gone", tmp_path / "nowhere" / ".." / "gone", tmp_path / "a"):
        assert shown_path(kept) == kept
    monkeypatch.chdir(tmp_path)
    assert shown_path(Path("a/../gone")) == Path("gone")
    status, (problem,) = planned(write(tmp_path / "flow", source="../a/../gone"))
    assert (status, problem["message"].endswith(f"{tmp_path / 'gone'} does not exist")) == (2, True)


LOOKUP = """\
version: 1
name: looked
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, code STRING"}
  names: {type: files, path: names, format: csv, static: true, schema: "code STRING, name STRING"}
steps:
  named: {from: [rows, names], join: {key: [code], how: left}}
sinks:
  kept: {from: named, type: files, path: out, format: json}
"""


def test_a_lookup_table_without_a_record_is_a_warning_of_plan_and_run(folder: FlowFolder) -> None:
    folder.flow(LOOKUP).data("data/a.jsonl", [{"id": 1, "code": "x"}])
    (folder.path / "names").mkdir()
    (told,) = empty_lookups(prepare(folder.path / "flow.yaml", state=None))
    assert (told.code, told.severity, told.place.line) == ("lookup-empty", "warning", 5)
    assert str(folder.path / "names") in told.message
    result = folder.run()
    assert [problem.code for problem in result.problems] == ["lookup-empty"]
    folder.data("names/names.csv", ["code,name", "x,ex"])
    assert empty_lookups(prepare(folder.path / "flow.yaml", state=None)) == []


def test_a_key_in_several_rows_of_a_lookup_table_is_a_warning_of_plan_validate_and_run(folder: FlowFolder) -> None:
    folder.flow(LOOKUP).data("data/a.jsonl", [{"id": 1, "code": "x"}, {"id": 2, "code": "y"}])
    folder.data("names/names.csv", ["code,name", "x,ex", "y,why", "z,a", ",none", ",nothing"]).data(
        "names/more.csv", ["code,name", "x,eks"]
    )
    path = folder.path / "flow.yaml"
    (told,) = repeated_keys(prepare(path, state=None))
    assert (told.code, told.severity, told.place.line) == ("lookup-repeated", "warning", 7)
    assert told.message == (
        'lookup table "names": 1 key (column code) is in more than one row, such as "x" in 2 rows: step "named" makes 2 rows of each '
        'record of "rows" with that key'
    )
    assert planned(path)[1][0]["code"] == "lookup-repeated"
    assert validate.command.callback is not None
    answer = validate.command.callback(files=(str(path),), environment=True, state=None)
    assert [problem.code for problem in answer.problems] == ["lookup-repeated"]
    views: list[RunView] = []
    result = folder.run(watch=views.append)
    assert result.problems == (told,)
    before = next(view for view in views if view.notices)
    assert (before.phase, before.notices) == ("starting spark", (f"{told.message}; {told.remedy}",))
    assert [row["id"] for row in folder.read("out")] == [1, 1, 2]
    folder.flow(
        path.read_text().replace("steps:", "steps:\n  once: {from: names, dedupe: {key: [code]}}").replace("[rows, names]", "[rows, once]")
    )
    assert planned(path) == (0, [])


@pytest.mark.parametrize(
    ("flow", "table"),
    [
        pytest.param(LOOKUP.replace("how: left", "how: semi"), ["x,ex", "x,eks"], id="semi"),
        pytest.param(
            LOOKUP.replace("key: [code]", "key: [code, name]").replace(' STRING"}\n  names', ' STRING, name STRING"}\n  names'),
            ["x,ex", "x,eks"],
            id="two columns",
        ),
        pytest.param(LOOKUP, ["x,ex", "y,why"], id="once each"),
        pytest.param(LOOKUP, ["x,ex", "x,eks", "y," + "y" * 2**24], id="a large table"),
    ],
)
def test_a_lookup_that_makes_no_second_row_and_a_large_table_are_no_warning(flow: str, table: list[str], tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(flow)
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "names.csv").write_text("\n".join(["code,name", *table]))
    assert repeated_keys(prepare(path, state=None)) == []


def test_a_lookup_table_without_the_key_of_its_join_stops_each_start_before_spark(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(LOOKUP)
    (tmp_path / "data").mkdir()
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "names.csv").write_text("kind,name\nx,ex\n")

    def told() -> list[str]:
        return [f"{error.code}: {error.message}" for error in first_file_faults(prepare(path, state=None))]

    (first,) = told()
    assert first.startswith("source-columns: ")
    assert 'names.csv has no column "code", which is the join key of step "named": it has "kind", "name"' in first
    query = prepare(path, state=None).tiers[0].folder.query("kept")
    query.rewind.parent.mkdir(parents=True)
    query.rewind.write_text("{}")  # as after a start
    assert is_begun(prepare(path, state=None).tiers[0], "names")
    assert told() == [first]
    (tmp_path / "names" / "names.csv").write_text("code,name\nx,ex\n")
    assert told() == []


def test_a_misspelt_name_in_the_header_of_a_first_file_stops_before_spark(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(LOOKUP)
    (tmp_path / "data").mkdir()
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "names.csv").write_text("code,naem\nx,ex\n")
    (error,) = first_file_faults(prepare(tmp_path / "flow.yaml", state=None))
    assert error.code == "source-columns"
    assert 'no column "name", but one with a similar name' in error.message
    assert error.remedy.startswith('write columns: {name: "naem"}')


def test_a_misspelt_name_in_columns_is_told_where_the_flow_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(LOOKUP.replace("static: true,", "static: true, columns: {name: nam},"))
    (tmp_path / "data").mkdir()
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "names.csv").write_text("code,naem\nx,ex\n")
    (error,) = first_file_faults(prepare(path, state=None))
    assert error.remedy.startswith("write columns: {name: naem}")
    assert error.place is not None
    assert (error.place.line, error.place.column) == (5, path.read_text().split("\n")[4].index("{name: nam}") + 1)


def test_a_pattern_that_means_none_of_the_files_that_are_there_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "flow", source='"data/*.json.gz"')
    for file in (path.parent / "data").iterdir():
        file.unlink()
    status, problems = planned(path)
    assert (status, [problem["code"] for problem in problems]) == (0, [])  # nothing is there yet
    (path.parent / "data" / "a.jsonl.gz").touch()
    status, (problem,) = planned(path)
    assert (status, problem["code"], problem["severity"], problem["line"]) == (0, "pattern-unmatched", "warning", 4)
    assert problem["message"].endswith("data has 1 other file, such as a.jsonl.gz")
    path.write_text(path.read_text().replace("*.json.gz", "*.jsonl.gz"))
    assert planned(path) == (0, [])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        pytest.param(b"code,name\n", True, id="header"),
        pytest.param(b"code,name\r\n\r\n", True, id="header and an empty line"),
        pytest.param(b"code,name\nx,ex", False, id="a record without a line end"),
        pytest.param(gzip.compress(b"a\nb"), False, id="compressed"),
    ],
)
def test_a_lookup_table_of_a_header_alone_has_no_record(data: bytes, told: bool, tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(LOOKUP)
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "names.csv").write_bytes(data)
    assert bool(empty_lookups(prepare(path, state=None))) is told


def test_a_file_that_is_missing_is_not_to_be_a_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "flow", source="contries.csv")
    _, (problem,) = planned(path)
    assert problem["remedy"].startswith("create the file, or correct `path`")
    (path.parent / "countries.csv").touch()
    _, (problem,) = planned(path)
    assert problem["remedy"].startswith('did you mean "countries.csv"? else create the file')


def test_a_first_run_that_is_refused_leaves_no_folder_of_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "flow", source="dta")
    refused(path, monkeypatch)
    assert not (path.parent / ".scribengin").exists()
