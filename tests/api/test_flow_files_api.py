"""Texts of flows in the registry, packed and planned by the master's planner: what is refused, with line and remedy, and what is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.api.flow_files import plan_file
from scribengin.control.flow_files import FlowFiles
from scribengin.core.errors import InputError, Refused
from scribengin.registry.contract import Create
from scribengin.registry.lease import Election
from scribengin.registry.record_io import put
from scribengin.registry.records import FlowFile
from scribengin.registry.tree import FILE
from tests.plugins.remedies import mentions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from conftest import Bench

TEXT = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
steps: {odd: {from: numbers, filter: id % 2 = 1}}
sinks: {kept: {from: odd, type: files, path: out, format: json}}
"""


def test_a_text_becomes_a_package_and_its_relative_paths_start_where_it_says_or_where_they_did(bench: Bench, tmp_path: Path) -> None:
    master = bench.master()
    with pytest.raises(Refused) as told:
        plan_file(master.plane, "numbers", FlowFile(text=TEXT))
    assert "path of numbers (data), path of kept (out)" in told.value.message
    assert told.value.code == "flow-file-base"
    with pytest.raises(Refused, match='has "base": "data", which is not an absolute path'):
        plan_file(master.plane, "numbers", FlowFile(text=TEXT, base="data"))
    plan, (made,) = plan_file(master.plane, "numbers", FlowFile(text=TEXT, base=str(tmp_path)))
    assert (plan.flows[0].version, made.base, made.path) == (0, str(tmp_path), "numbers.yaml")
    assert master.packages.read(made.package).content["numbers.yaml"].decode() == TEXT
    election = Election(master.registry, {"id": "m"})
    assert election.acquire()
    files = FlowFiles(master.registry, lambda flow, file: plan_file(master.plane, flow, file), str(tmp_path / "state"))
    for base in (str(tmp_path), ""):
        bench.person.commit(put(bench.person, FILE("numbers"), FlowFile(text=TEXT.replace("odd", f"odd{len(base)}"), base=base)))
        assert files.take("numbers", election.term)
    assert [row.version for row in bench.client(master).versions("numbers")] == [2, 1]
    _, (again,) = plan_file(master.plane, "numbers", FlowFile(text=TEXT))
    assert again.base == str(tmp_path)


WRONG = {
    "two mistakes": (TEXT.replace("id % 2", "ide % 2").replace("json}}", "jsonn}}"), [4, 5], "did you mean"),
    "code beside": (TEXT.replace("filter: id % 2 = 1", 'python: "steps:one"'), [4], "scribengin apply numbers.yaml"),
    "a schema beside": (TEXT.replace('format: json, schema: "id BIGINT"', "format: avro, schema_file: a.avsc"), [0, 3], ""),
    "no yaml": ("version: [", [1, 2], ""),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_text_is_told_with_its_lines_and_no_folder_of_a_moment(bench: Bench, case: str) -> None:
    text, lines, remedy = WRONG[case]
    with pytest.raises(InputError) as told:
        plan_file(bench.master().plane, "numbers", FlowFile(text=text, base="/data"))
    problems = [problem for problem in told.value.problems if problem.severity == "error"]
    assert {problem.place.file for problem in problems} == {"flows/numbers/file"}
    assert {problem.place.line for problem in problems} <= {*lines}
    assert any(remedy in problem.remedy for problem in problems)
    assert not any("/tmp" in f"{problem.message}{problem.remedy}" for problem in problems)


def test_a_text_of_another_flow_is_refused(bench: Bench) -> None:
    with pytest.raises(Refused, match='is the text of flow "numbers"') as told:
        plan_file(bench.master().plane, "letters", FlowFile(text=TEXT, base="/data"))
    assert told.value.remedy == "write it to flows/numbers/file, or name it letters"


def test_a_secret_stays_a_reference(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD_OF_U", "sesame-opens")
    text = TEXT.replace(
        "{from: odd, type: files, path: out, format: json}",
        '{from: odd, type: opensearch, server: "http://127.0.0.1:1", index: n, config: {user: u, password: "${secret:env/PASSWORD_OF_U}"}}',
    )
    master = bench.master()
    _, (made,) = plan_file(master.plane, "numbers", FlowFile(text=text, base="/data"))
    assert b"sesame-opens" not in b"".join(master.packages.read(made.package).content.values())


@pytest.mark.executes("flow-file-refused")
def test_a_flow_whose_text_is_refused_is_listed_with_the_reason_and_the_command_that_takes_it_works(
    bench: Bench, says: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = bench.master()
    monkeypatch.chdir(tmp_path)
    election = Election(master.registry, {"id": "m"})
    assert election.acquire()
    (tmp_path / "steps.py").write_text("def one(row):\n    return row\n")
    text = TEXT.replace("filter: id % 2 = 1", 'python: "steps:one"')
    (tmp_path / "numbers.yaml").write_text(text)
    bench.person.commit(Create("flows/numbers", {}), FILE("numbers").create(FlowFile(text=text, base=str(tmp_path))))
    files = FlowFiles(master.registry, lambda flow, file: plan_file(master.plane, flow, file), str(tmp_path / "state"))
    assert files.take("numbers", election.term)
    said = says("status", "numbers")
    assert said["problems"][0]["code"] == "flow-file-refused"
    (command,) = mentions(said["problems"][0]["remedy"])
    assert command.words == ("apply", "numbers.yaml")
    assert says(*command.words)["status"] == 0
    assert says("history", "numbers")["status"] == 0
