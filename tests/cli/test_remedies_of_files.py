"""Commands that problems of flow files, letters and folders print: typed as they are, each does what it says. Without Spark."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.files.options import SINK
from scribengin.connectors.files.sink import FilesSink
from scribengin.core.errors import EnvironmentFault
from scribengin.spark import session
from scribengin.spec import fmt
from tests.plugins.remedies import mentions

if TYPE_CHECKING:
    from conftest import Command, Ended

FLOW = """\
version: 1
name: shop
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT"}
sinks:
  kept: {from: rows, type: files, path: out, format: json}
"""


@pytest.fixture
def flow(command: Command) -> Path:
    """A flow beside the working directory, so that no command finds a file of it by chance."""
    path = Path("the shop") / "flow.yaml"
    path.parent.mkdir()
    path.write_text(FLOW)
    (path.parent / "data").mkdir()
    (path.parent / "data" / "a.jsonl").write_text('{"id": 1}\n')
    return path


def named(ended: Ended, code: str) -> list[tuple[str, ...]]:
    """The commands of the first problem of this code."""
    problem = next(each for each in ended.object["problems"] if each["code"] == code)
    found = [mention.words for mention in mentions(problem["remedy"])]
    assert found, problem["remedy"]
    return found


@pytest.mark.executes("not-formatted")
def test_not_formatted(command: Command, flow: Path) -> None:
    flow.write_text(FLOW.replace("version: 1", "version:   1"))
    [words] = named(command("fmt", "--check", flow, "--json"), "not-formatted")
    assert command(*words).status == 0
    assert command("fmt", "--check", flow).status == 0


@pytest.mark.executes("folder-taken")
def test_folder_taken(command: Command) -> None:
    assert command("init", "a").status == 0
    [words] = named(command("init", "a", "--json"), "folder-taken")
    assert command(*words).status == 0
    assert Path("FOLDER/flow.yaml").is_file()


@pytest.mark.executes("schema-missing")
def test_schema_missing(command: Command, flow: Path) -> None:
    flow.write_text(FLOW.replace(', schema: "id BIGINT"', ""))
    [words] = named(command("validate", flow, "--json"), "schema-missing")
    assert "id BIGINT" in command(*words).out


@pytest.mark.executes("test-none")
def test_test_none(command: Command, flow: Path) -> None:
    flow.write_text(f"{FLOW}tests: [{{name: one, given: {{rows: [{{id: 1}}]}}, expect: {{kept: [{{id: 1}}]}}}}]\n")
    [words] = named(command("test", flow, "-k", "two", "--json"), "test-none")
    assert "one" in command(*words).out


@pytest.mark.executes("package-missing")
def test_package_missing(command: Command, flow: Path) -> None:
    [words] = named(command("package", "inspect", "x.package", "--json"), "package-missing")
    made = command(*(word.replace("DIR", str(flow.parent)) for word in words), "--file", "x.package")
    assert (made.status, command("package", "inspect", "x.package").status) == (0, 0)


@pytest.mark.executes("package-damaged", "package-hash")
@pytest.mark.parametrize("code", ["package-damaged", "package-hash"])
def test_package_damaged(command: Command, flow: Path, code: str) -> None:
    assert command("package", "create", flow.parent, "--file", "x.package").status == 0
    if code == "package-damaged":
        Path("x.package").write_bytes(Path("x.package").read_bytes()[:-9])
    else:
        with ZipFile("x.package") as whole:
            content = {name: whole.read(name) for name in whole.namelist()}
        with ZipFile("x.package", "w") as changed:
            for name, data in content.items():
                changed.writestr(name, data + b"#" if name == "flow.yaml" else data)
    [words] = named(command("package", "inspect", "x.package", "--json"), code)
    assert command(*(word.replace("DIR", str(flow.parent)) for word in words), "--file", "x.package").status == 0
    assert command("package", "inspect", "x.package").status == 0


@pytest.mark.executes("package-empty")
def test_package_empty(command: Command) -> None:
    Path("empty").mkdir()
    [words] = named(command("package", "create", "empty", "--json"), "package-empty")
    assert command(*words, "empty").status == 0
    assert command("package", "create", "empty").status == 0


@pytest.mark.executes("not-executed")
def test_not_executed(command: Command) -> None:
    Path("a flow.py").write_text("from scribengin import Flow\nflow = Flow('x', nothing=1)\n")
    [words] = named(command("validate", "a flow.py", "--json"), "not-executed")
    assert command("validate", "a flow.py").status == 0
    assert "nothing" in command(*words).err, "it executes the file, and tells what is wrong"


@pytest.mark.executes("fmt-refused")
def test_fmt_refused(command: Command, flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmt, "_comments_with_their_lines", lambda before, _after: f"{before}#\n")
    flow.write_text(FLOW.replace("version", "vresion"))
    [words] = named(command("fmt", flow, "--json"), "fmt-refused")
    assert "vresion" in command(*words).err, "it says what is wrong"


@pytest.mark.executes("foreign-unsaid")
def test_foreign_unsaid(command: Command, flow: Path) -> None:
    out = flow.parent / "out"
    FilesSink(ConnectorContext("kept", flow.parent, SINK.filled({"path": "out", "format": "json"}))).prepare(owner="me", lineage="l1")
    (out / "part-of-nobody.jsonl").write_text("{}\n")
    os.utime(out / "part-of-nobody.jsonl", (0, 0))
    [words] = named(command("maintain", flow, "--remove-foreign", "--json"), "foreign-unsaid")
    assert "part-of-nobody.jsonl" in command(*words, "--json").out


@pytest.mark.executes("wrong-kind")
def test_wrong_kind(command: Command, flow: Path) -> None:
    flow.write_text("- x\n")
    [words] = named(command("validate", flow, "--json"), "wrong-kind")
    assert command(*words, "example").status == 0
    assert command("validate", "example/flow.yaml").status == 0


@pytest.mark.executes("bug")
def test_bug(command: Command, flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmt, "_comments_with_their_lines", lambda _before, _after: 1 // 0)
    flow.write_text(FLOW.replace("version: 1", "version:   1"))
    [words] = named(command("fmt", flow, "--json"), "bug")
    assert platform.python_version() in command(*words).out


@pytest.mark.executes("spark-start")
def test_spark_start(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_args: object) -> None:
        raise OSError("no such file")

    monkeypatch.setattr(session, "JavaProcess", fails)
    with pytest.raises(EnvironmentFault) as fault:
        session.SparkStart("x", master="", memory="", conf={}, folder=tmp_path)
    [mention] = mentions(fault.value.remedy)
    assert {"Java", "PySpark"} <= {each["check"] for each in command(*mention.words, "--json").object["result"]["checks"]}
