from __future__ import annotations

import re
from pathlib import Path

import pytest
from flows import MODULE

import scribengin.connectors
import scribengin.plan
from scribengin.plan.problem_catalog import CATALOG
from scribengin.plan.validate import validate_file
from scribengin.spec import problems as spec_problems
from scribengin.spec.problem_entry import ProblemEntry, example_flow


@pytest.mark.parametrize("entry", [entry for entry in CATALOG if entry.example], ids=lambda entry: entry.code)
def test_each_example_makes_its_problem(entry: ProblemEntry, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("def f(row:\n")
    file = tmp_path / "flow.yaml"
    file.write_text(example_flow(entry))
    _, problems = validate_file(file, {}, tests=True)
    found = {problem.code: problem for problem in problems}
    assert entry.code in found, [str(problem) for problem in problems]
    assert found[entry.code].place.line > 0
    assert found[entry.code].severity == entry.severity


def test_every_code_that_is_told_is_in_a_catalog() -> None:
    files = [file for file in Path(scribengin.plan.__file__).parent.rglob("*.py") if "problem_catalog" not in file.parts]
    files += Path(scribengin.connectors.__file__).parent.rglob("*checks.py")
    source = "".join(file.read_text() for file in files)
    calls = r"(?:problem|problem_at_key|problem_inside|Problem|Fault|FunctionFault|_fault|_wrong)"
    told = set(re.findall(calls + r'\(\s*"([a-z]+(?:-[a-z]+)*)"', source))
    told |= set(re.findall(r'return "([a-z]+(?:-[a-z]+)+)", f', source)) | {"sql-syntax"}
    mine = {entry.code for entry in CATALOG}
    assert told <= mine | spec_problems.CODES
    assert mine <= told
    assert not mine & spec_problems.CODES
    assert len(mine) == len(CATALOG)
