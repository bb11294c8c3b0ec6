"""`validate`: every mistake of every file at once, and fast."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOOD = """
version: 1
name: orders
sources:
  orders: {type: files, path: data, format: json, schema: "id BIGINT, amount DOUBLE"}
steps:
  large: {from: orders, filter: amount > 500}
sinks:
  kept: {from: large, type: files, path: out, format: json}
"""


@pytest.fixture
def flow(tmp_path):
    path = tmp_path / "flow.yaml"
    path.write_text(GOOD)
    return path


def test_a_good_flow_is_ok(command, flow):
    ended = command("validate", flow, "--json")
    assert ended.status == 0
    assert ended.object["result"] == {"files": [{"file": str(flow), "flow": "orders", "ok": True, "errors": 0, "warnings": 0}]}
    assert command("validate", flow).out == f"{flow}: ok\n"


def test_every_mistake_of_every_file_is_told_with_its_place(command, flow, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.replace("from: orders, filter", "from: order, filtre"))
    ended = command("validate", flow, bad, tmp_path / "gone.yaml", "--json")
    assert ended.status == 2
    assert [row["ok"] for row in ended.object["result"]["files"]] == [True, False, False]
    problems = ended.object["problems"]
    assert {(p["file"], p["line"]) for p in problems} >= {(str(bad), 7), (str(tmp_path / "gone.yaml"), 0)}
    said = command("validate", bad)
    assert said.out == ""
    assert f"{bad}:7:" in said.err


def test_several_problems_are_counted_below_them(command, flow):
    flow.write_text(GOOD.replace("from: orders, filter", "from: order, filter").replace("path: out", "pth: out, with: x"))
    lines = command("validate", flow).err.splitlines()
    assert lines[-1] == f"{len(lines) - 1} errors"
    flow.write_text(GOOD.replace("path: out", "pth: out"))
    (line,) = command("validate", flow).err.splitlines()
    assert "[unknown-option]" in line


def test_what_init_proposes_can_be_typed_whatever_the_folder_is_called(command):
    ended = command("init", "My Shop", "--json")
    assert ended.object["result"]["next"][0] == "scribengin validate 'My Shop/flow.yaml'"
    assert command("init", "My Shop", "--json").codes == ["folder-taken"]


def test_a_name_without_a_registry_a_folder_and_a_slip_are_told_apart(command, flow):
    assert command("validate", "orders", "--json").codes == ["flow-name"]
    assert command("validate", "flow", "--json").object["problems"][0]["remedy"] == "name a file: flow.yaml"
    assert command("validate", f"{flow.parent}/", "--json").object["problems"][0]["remedy"] == f"name the file: {flow}"
    assert 'did you mean "flow.yaml"?' in command("validate", "./flwo.yaml", "--json").object["problems"][0]["remedy"]


def test_the_flows_that_are_shipped_are_valid_without_a_warning(command):
    shipped = [ROOT / "examples/tweets/flow.yaml", ROOT / "src/scribengin/cli/template/flow.yaml"]
    ended = command("validate", *shipped, "--json")
    assert (ended.status, ended.codes) == (0, [])


def test_validate_loads_neither_spark_nor_what_it_does_not_need():
    code = (
        "import sys; from scribengin.cli.main import main\n"
        "try: main(['validate', sys.argv[1]])\n"
        "except SystemExit as left: assert not left.code\n"
        "print(sorted({'pyspark', 'pyarrow', 'rich', 'duckdb', 'pandas', 'numpy'} & sys.modules.keys()))"
    )
    flow = ROOT / "examples/tweets/flow.yaml"
    ended = subprocess.run([sys.executable, "-c", code, str(flow)], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"


def test_one_file_costs_few_calls_and_fifty_a_little_more(tmp_path):
    """Calls stand for the time: they are the same on each machine. half a million, imports among them, take 0.4 CPU seconds."""
    one = calls([ROOT / "examples/tweets/flow.yaml"])
    assert one < 600_000
    copies = []
    for number in range(50):
        copies.append(tmp_path / f"flow{number}.yaml")
        copies[-1].write_text(GOOD)
    assert calls(copies) < one + 50 * 5_000


def calls(files):
    """Calls of functions of a `validate` of the files, each written in Python or in C."""
    code = (
        "import sys\n"
        "from collections import Counter\n"
        "counted = Counter()\n"
        "sys.setprofile(lambda frame, event, subject: counted.update((event,)))\n"
        "from scribengin.cli.main import main\n"
        "try: main(['validate', *sys.argv[1:]])\n"
        "except SystemExit as left: assert not left.code\n"
        "sys.setprofile(None)\n"
        "print(counted['call'] + counted['c_call'])"
    )
    ended = subprocess.run([sys.executable, "-c", code, *map(str, files)], capture_output=True, text=True, check=True)
    return int(ended.stdout.splitlines()[-1])
