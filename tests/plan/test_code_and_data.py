"""Where a flow's code lies and where its data starts are two things: the code may be unpacked anywhere, its meaning stays the same."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.contract import BatchLimits
from scribengin.core.errors import InputError
from scribengin.local.prepare import open_sinks, open_sources, prepare
from scribengin.plan.python_functions import find_module
from scribengin.plan.relative_places import RelativePlace, relative_places
from scribengin.plan.tier_flows import plan_flow
from scribengin.plan.validate import validate_file
from scribengin.spark.user_code import activate, pack

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.local.prepare import PreparedFlow
    from scribengin.spec.model import Flow

SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
STEPS = "from lib.rules import LEAST\n\ndef large(row):\n    return row['id'] > LEAST\n"
YAML = """\
version: 1
name: orders
sources:
  orders: {type: files, path: data, format: json, schema: "id BIGINT"}
  messages: {type: kafka, bootstrap: "127.0.0.1:9", topics: [orders], format: avro, avro_schema: schemas/order.avsc, schema: "id BIGINT"}
steps:
  large: {from: orders, python: "steps:large"}
  more: {from: messages, filter: id > 5}
sinks:
  kept: {from: large, type: files, path: out/kept, format: json}
  sent:
    from: more
    type: kafka
    bootstrap: "127.0.0.1:9"
    topic: kept
    format: avro
    avro_schema: schemas/order.avsc
    config: {sasl.password: "${secret:file/keys/password}"}
"""
PYTHON = """\
from scribengin import Flow, source
from steps import large

rows = source("files", id="orders", path="data", format="json", schema="id BIGINT").map(large, id="large")
flow = Flow("orders", rows.to("files", id="kept", path="out/kept", format="json"))
"""


@pytest.fixture(autouse=True)
def _no_modules_stay(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in list(sys.modules):  # one that was there before may be another by now
        if name.partition(".")[0] in ("steps", "lib", "orders_flow"):
            del sys.modules[name]


def place(folder: Path, **changes: str) -> Path:
    """The code in a folder; `changes` are other texts of files."""
    texts = {"orders.yaml": YAML, "orders_flow.py": PYTHON, "steps.py": STEPS, "lib/__init__.py": "", "lib/rules.py": "LEAST = 5\n"}
    for name, text in (texts | {"schemas/order.avsc": SCHEMA} | changes).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Where the data starts, with nothing of the code."""
    folder = tmp_path / "host"
    for name, text in {"data/a.jsonl": '{"id": 7}\n', "keys/password": "hunter2\n"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def fingerprints(prepared: PreparedFlow) -> dict[str, tuple[str, str, dict[str, str]]]:
    return {
        query.name: (query.fingerprint, query.state_fingerprint, dict(query.parts))
        for tier in prepared.tiers
        for query in tier.plan.queries
    }


@pytest.mark.parametrize("file", ["orders.yaml", "orders_flow.py"])
def test_code_lies_where_its_file_is_and_data_and_state_start_at_the_base(tmp_path: Path, data: Path, file: str) -> None:
    code = place(tmp_path / "store" / "one")
    prepared = prepare(code / file, state=None, base=data)
    assert (prepared.plan.flow.folder, prepared.plan.flow.code_folder) == (data, code)
    assert prepared.root == data / ".scribengin"
    (tier,) = prepared.tiers
    sources, sinks = open_sources(tier.plan.flow), open_sinks(tier.plan.flow)
    assert len(sources["orders"].reader().split(BatchLimits(), final=True)) == 1
    assert sinks["kept"].path == data / "out" / "kept"  # type: ignore[attr-defined]
    if file == "orders.yaml":
        assert sources["messages"].decoder() is not None  # it has read the schema, beside the code
        password = prepared.plan.flow.sinks["sent"].options["config"]["sasl.password"]
        assert password.reveal() == "hunter2"


@pytest.mark.parametrize("file", ["orders.yaml", "orders_flow.py"])
def test_the_same_code_elsewhere_has_the_same_fingerprints_and_changed_code_has_not(tmp_path: Path, data: Path, file: str) -> None:
    together = place(tmp_path / "together")
    shutil.copytree(data, together, dirs_exist_ok=True)
    expected = fingerprints(prepare(together / file, state=None))
    one, two = place(tmp_path / "one" / "deep"), place(tmp_path / "two")
    assert fingerprints(prepare(one / file, state=None, base=data)) == expected
    assert fingerprints(prepare(two / file, state=None, base=data)) == expected
    changed = place(tmp_path / "three", **{"lib/rules.py": "LEAST = 6\n"})
    other = fingerprints(prepare(changed / file, state=None, base=data))
    assert other["kept"] != expected["kept"]
    assert {node for node, part in other["kept"][2].items() if expected["kept"][2][node] != part} == {"large"}


def test_two_versions_of_a_flow_in_python_each_have_their_own_modules_in_one_process(tmp_path: Path, data: Path) -> None:
    one = place(tmp_path / "one")
    two = place(tmp_path / "two", **{"lib/rules.py": "LEAST = 6\n"})
    found = []
    for folder in (one, two, one):
        flow = prepare(folder / "orders_flow.py", state=None, base=data).plan.flow
        function = flow.steps["large"].action.function  # type: ignore[union-attr]
        assert function is not None
        found.append([function({"id": id_}) for id_ in (5, 6, 7)])
    assert found == [[False, True, True], [False, False, True], [False, True, True]]


def test_code_beside_the_data_is_not_taken(tmp_path: Path, data: Path) -> None:
    """A module that lies at the base is not the flow's: the package's is, or none."""
    code = place(tmp_path / "one")
    (code / "steps.py").unlink()
    (data / "steps.py").write_text(STEPS)
    with pytest.raises(InputError) as told:
        prepare(code / "orders.yaml", state=None, base=data)
    assert [problem.code for problem in told.value.problems] == ["python-module-missing"]


def test_modules_of_another_flow_that_was_executed_here_are_not_found(tmp_path: Path, data: Path) -> None:
    """As a master plans many flows in one process: what one of them brings hides no lack of another."""
    prepare(place(tmp_path / "one") / "orders_flow.py", state=None, base=data)
    lacking = place(tmp_path / "two")
    (lacking / "steps.py").unlink()
    with pytest.raises(InputError) as told:
        prepare(lacking / "orders.yaml", state=None, base=data)
    assert [problem.code for problem in told.value.problems] == ["python-module-missing"]


@pytest.mark.parametrize("copied", [False, True], ids=["its own", "Spark's copy"])
def test_modules_of_a_flow_that_runs_here_are_not_found(tmp_path: Path, data: Path, *, copied: bool) -> None:
    """Its archive stands on this process's Python path."""
    archive = pack(place(tmp_path / "one"), tmp_path / "state").archive
    if copied:  # as SparkContext.addPyFile does
        (tmp_path / "userFiles-1").mkdir()
        sys.path.insert(1, shutil.copy(archive, str(tmp_path / "userFiles-1")))
    else:
        activate(archive)
    lacking = place(tmp_path / "two")
    (lacking / "steps.py").unlink()
    with pytest.raises(InputError) as told:
        prepare(lacking / "orders.yaml", state=None, base=data)
    assert [problem.code for problem in told.value.problems] == ["python-module-missing"]


def test_a_flow_has_its_own_modules_also_where_those_of_another_came_from_an_archive_that_is_off_the_path(tmp_path: Path) -> None:
    pack(place(tmp_path / "one"), tmp_path / "state").load("steps:large")
    sys.path.pop(0)  # as whoever brings the path back to what it was
    two = place(tmp_path / "two", **{"steps.py": "def other(row):\n    return row\n"})
    assert pack(two, tmp_path / "state").load("steps:other").__code__.co_filename.startswith(str(tmp_path / "state"))


def test_problems_are_told_at_the_file_whatever_the_base(tmp_path: Path, data: Path) -> None:
    code = place(tmp_path / "one")
    (code / "orders.yaml").write_text(YAML.replace("id > 5", "idd > 5"))
    _, problems = validate_file(code / "orders.yaml", os.environ, base=data)
    assert [(problem.place.file, problem.place.line) for problem in problems] == [(str(code / "orders.yaml"), 8)]


def flow_of(text: str, folder: Path) -> Flow:
    path = folder / "flow.yaml"
    path.write_text(text)
    flow, problems = validate_file(path, {})
    assert flow is not None
    assert not [problem for problem in problems if problem.severity == "error"], problems
    assert plan_flow(flow)
    return flow


def test_relative_places_are_named_and_absolute_ones_and_schemas_are_not(tmp_path: Path, data: Path) -> None:
    code = place(tmp_path / "one")
    flow = prepare(code / "orders.yaml", state=None, base=data).plan.flow
    assert relative_places(flow) == (
        RelativePlace("orders", "path", "data"),
        RelativePlace("kept", "path", "out/kept"),
        RelativePlace("sent", "config", "keys/password"),
    )
    away = """
version: 1
name: away
sources: {orders: {type: files, path: /data/orders, format: text, when_done: archive, archive: done}}
sinks: {kept: {from: orders, type: files, path: /data/out, format: text}}
"""
    assert relative_places(flow_of(away, tmp_path)) == (RelativePlace("orders", "archive", "done"),)


def test_places_of_channels_keyrings_and_groups_are_relative_too(tmp_path: Path) -> None:
    text = """
version: 1
name: cut
defaults: {edge: {encryption: {keyring: keys/ring}}}
sources: {numbers: {type: sequence, rows: 10}}
steps: {few: {from: numbers, filter: id < 5}}
sinks:
  kept: {from: few, type: files, path: kept, format: json, to: disks}
tiers: {edge: {steps: [numbers]}, core: {steps: [few]}}
edges: {"numbers -> few": {channel: {type: folder, path: between}}}
groups: {disks: {members: [{name: first, at: /mnt/first}, {name: second, at: second}]}}
"""
    assert set(relative_places(flow_of(text, tmp_path))) == {
        RelativePlace("numbers -> few", "path", "between/numbers_to_core"),
        RelativePlace("numbers -> few", "keyring", "keys/ring"),
        RelativePlace("kept", "path", "second/kept"),
    }


def test_a_module_in_an_archive_is_found_as_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("only_in_an_archive.py", "def f(row): return row")
    monkeypatch.syspath_prepend(str(archive))
    assert find_module("only_in_an_archive", tmp_path / "flow") == archive


def test_a_module_is_found_no_more_once_its_folder_is_off_the_python_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_there.py").write_text("")
    with monkeypatch.context() as while_there:
        while_there.syspath_prepend(str(tmp_path))
        assert find_module("only_there", tmp_path / "flow") == tmp_path / "only_there.py"
    assert find_module("only_there", tmp_path / "flow") is None
