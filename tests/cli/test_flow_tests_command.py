"""`scribengin test`, from its arguments to its answer."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

FLOW = """version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT, amount DOUBLE"}}
steps: {big: {from: orders, filter: amount > 100}}
sinks: {kept: {from: big, type: files, path: out, format: json}}
"""


@pytest.mark.usefixtures("spark")  # the command takes the session that is there: a process has one
def test_a_test_that_fails_is_told_in_every_form_and_updated(command, tmp_path):
    file = tmp_path / "flow.yaml"
    file.write_text(
        FLOW
        + """tests:
  - {name: right, given: {orders: [{id: 1, amount: 101}]}, expect: {kept: [{id: 1}]}}
  - {name: wrong, given: {orders: [{id: 1, amount: 100}]}, expect: {kept: [{id: 1}]}}  # for now
  - {name: left out, given: {orders: [{id: 1, amount: 100}]}, expect: {kept: [{id: 1}]}}
"""
    )
    ended = command("test", file, "-k", "R", "--update", "--junit", tmp_path / "report.xml", "--json")
    assert ended.status == 1
    result = ended.object["result"]
    assert (result["passed"], result["failed"], result["updated"]) == (1, 1, [str(file)])
    (difference,) = result["tests"][1]["differences"]
    assert difference["pairs"] == [{"expected": {"id": 1}, "got": None, "differ": []}]
    assert "(amount > 100) dropped it" in difference["parted"][0]
    assert result["tests"][1]["ledger"]["big"]["filtered"] == 1
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()[0]
    assert [case.get("name") for case in suite] == ["right", "wrong"]
    assert "{name: wrong, given: {orders: [{id: 1, amount: 100}]}, expect: {kept: []}}  # for now" in file.read_text()
    assert not (tmp_path / "out").exists()


def test_what_is_wrong_with_tests_is_told_before_spark_starts(command, tmp_path):
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    assert command("test", file, "--json").codes == ["test-none"]
    file.write_text(FLOW + "tests: [more/*.yaml, {name: a, given: {order: []}, expect: {}}]\n")
    for name in ("test", "validate"):
        ended = command(name, file, "--json")
        assert ended.status == 2
        assert ended.codes == ["test-node-unknown", "test-file"]
        places = [(problem["line"], problem["column"]) for problem in ended.object["problems"]]
        assert places == [(6, 40), (6, 9)]
    file.write_text(FLOW + "tests: [{name: a, given: {orders: {files: [no.jsonl]}}, expect: {kept: {files: [steps.py]}}}]\n")
    assert [problem["column"] for problem in command("test", file, "--json").object["problems"]] == [44, 72]
    assert command("test", file, "-k", "b", "--json").codes == ["test-none"], "of a test that does not run no file is looked for"
    file.write_text(FLOW + "tests: [{name: a, expect: {}}]\n")
    assert command("test", file, "-k", "b", "--json").codes == ["test-none"]
