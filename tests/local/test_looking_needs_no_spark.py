"""`plan` and `audit` start in a blink, take flows written in Python, and name the steps that changed."""

import subprocess
import sys
from pathlib import Path

import pytest

from scribengin.local.audit import planned_changes
from scribengin.local.prepare import prepare
from scribengin.state.lineage import open_lineage

FLOW = """\
version: 1
name: small
sources:
  numbers: {type: sequence, rows: 10}
steps:
  even: {from: numbers, filter: id % 2 = 0}
  few: {from: even, filter: id < 6}
sinks:
  kept: {from: few, type: files, path: out, format: json}
"""
PYTHON_FLOW = """\
from scribengin import Flow, source

even = source("sequence", id="numbers", rows=10).filter("id % 2 = 0", id="even")
flow = Flow("small", even.to("files", id="kept", path="out", format="json"))
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW)
    return path


def begin(path: Path) -> None:
    """The state that a run leaves when it dies before its first Batch."""
    (prepared,) = prepare(path, state=None).tiers
    (query,) = prepared.plan.queries
    open_lineage(
        prepared.folder.query(query.name),
        owner=prepared.folder.read_owner(),
        fingerprint=query.fingerprint,
        state_fingerprint=query.state_fingerprint,
        sources=query.sources,
        parts=query.parts,
    )


@pytest.mark.parametrize(
    ("command", "heavy"),
    [("plan", ("pyspark", "pyarrow", "duckdb")), ("audit", ("pyspark",)), ("status", ("pyspark",)), ("trace", ("pyspark",))],
)
def test_looking_at_a_flow_imports_no_spark(flow, command, heavy):
    begin(flow)
    arguments = [command, str(flow), "numbers/1"][: 3 if command == "trace" else 2]
    program = f"""
import sys
from scribengin.cli.main import main
try:
    main({arguments!r})
except SystemExit as left:
    assert not left.code, left.code
print(sorted(set({heavy!r}) & set(sys.modules)))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines()[-1:] == ["[]"], ended.stderr


def test_plan_names_the_steps_that_changed(flow):
    begin(flow)
    assert [query.fate for query in planned_changes(prepare(flow, state=None)).queries] == ["unchanged"]
    flow.write_text(FLOW.replace("id < 6", "id < 7").replace("even:", "just:").replace("from: even", "from: just"))
    (change,) = planned_changes(prepare(flow, state=None)).queries
    assert (change.changed, change.added, change.removed) == (("few",), ("just",), ("even",))


def test_a_flow_in_python_is_executed_and_its_calls_are_its_places(tmp_path):
    path = tmp_path / "small.py"
    path.write_text(PYTHON_FLOW)
    (prepared,) = prepare(path, state=None).tiers
    assert [query.name for query in prepared.plan.queries] == ["kept"]
    assert str(prepared.place_of("even")).startswith(f"{path}:3:")
    assert str(prepared.place_of("kept")).startswith(f"{path}:4:")


def test_a_query_of_several_sinks_stands_where_its_first_sink_does(flow):
    flow.write_text(
        FLOW.replace("format: json}", "format: json, together: both}")
        + "  more: {from: even, type: files, path: more, format: json, together: both}\n"
    )
    (prepared,) = prepare(flow, state=None).tiers
    assert str(prepared.place_of("both")) == f"{flow}:9:3"
