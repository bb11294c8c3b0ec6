from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.local.prepare import prepare
from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT"}}
sinks: {kept: {from: orders, type: files, path: out, format: json}}
tests: [{name: old, given: {orders: [{ident: 1}]}, expect: {kept: 1}}]
"""


def test_a_flow_runs_though_a_test_in_it_names_an_old_column(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    for tests, severity in ((True, "error"), (False, "warning")):
        _, problems = validate_file(file, {}, tests=tests)
        assert [(problem.code, problem.severity) for problem in problems] == [("test-column-unknown", severity)]
    assert [problem.code for problem in prepare(file, state=tmp_path / "state").warnings] == ["test-column-unknown"]
