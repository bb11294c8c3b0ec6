"""`graph` of a flow file: text, Mermaid, a picture; and what it says to mistakes."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

FLOW = """\
version: 1
name: small
sources: {numbers: {type: sequence, rows: 9}}
steps: {odd: {from: numbers, filter: id % 2 = 1}}
sinks: {kept: {from: odd, type: files, path: out, format: json}}
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    (tmp_path / "flow.yaml").write_text(FLOW)
    return tmp_path / "flow.yaml"


def test_a_file_is_drawn_as_text_mermaid_and_a_picture(command, flow, tmp_path):
    shown = command("graph", flow, "--live").out
    assert shown.startswith("flow small\nit has not run yet: there is nothing to count\n")
    assert shown.count("▼") == 2
    assert command("graph", flow, "--mermaid").out.startswith('flowchart LR\n  numbers_(["')
    assert command("graph", flow, "--svg", "small.svg").out == "wrote small.svg\n"
    ElementTree.parse(tmp_path / "small.svg")
    assert command("graph", flow, "--svg", "-").out == (tmp_path / "small.svg").read_text()
    result = command("graph", flow, "--json").object["result"]
    assert [(edge["reads"], edge["node"]) for edge in result["edges"]] == [("numbers", "odd"), ("odd", "kept")]
    assert result["counts"] is None


def test_mistakes_are_told(command, flow):
    for arguments, said in (
        ((flow, "--dot"), "--dot takes the name of a workflow"),
        ((flow, "--mermaid", "--svg", "x.svg"), "--svg, --dot and --mermaid exclude each other"),
        ((flow, "--svg", "away/x.svg"), "away/x.svg cannot be written"),
        (("flow.yml",), 'did you mean "flow.yaml"?'),
    ):
        ended = command("graph", *arguments)
        assert ended.status in (2, 3)
        assert said in ended.err
