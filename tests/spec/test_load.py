from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.spec.load import load_flow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scribengin.spec.parse import Parsed

GOOD = """\
from scribengin import Flow, source

def keep(row):
    return True

flow = Flow("shop", source("sequence", id="n").map(keep, id="kept").to("console", id="seen"))
"""


@pytest.fixture(autouse=True)
def _path_and_modules_as_before() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("shop_"):
            del sys.modules[name]


def load(file: Path, **more: Any) -> Parsed:
    return load_flow(file, source_types=source_types(), sink_types=sink_types(), environment={}, **more)


def test_a_yaml_file_is_read_and_its_folder_is_where_it_lies(tmp_path: Path) -> None:
    file = tmp_path / "shop.yml"
    file.write_text("version: 1\nname: shop\nsources: {n: {type: sequence}}\nsinks: {k: {from: n, type: console}}\n")
    parsed = load(file)
    assert parsed.ok
    assert parsed.flow is not None
    assert parsed.flow.folder == tmp_path.resolve()


def test_a_python_file_is_executed_and_its_functions_are_named_after_it(tmp_path: Path) -> None:
    file = tmp_path / "shop_good.py"
    file.write_text(GOOD)
    parsed = load(file)
    assert parsed.ok
    assert parsed.flow is not None
    assert parsed.flow.steps["kept"].action.reference == "shop_good:keep"
    assert parsed.flow.folder == tmp_path
    assert parsed.places.value(("steps", "kept", "python")).line == 6
    assert parsed.places.key(("name",)).file == str(file)


def test_validate_looks_at_a_python_file_and_runs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "shop_look.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{GOOD}")
    parsed = load(file, execute=False)
    assert parsed.flow is None
    assert parsed.ok
    assert [problem.code for problem in parsed.problems] == ["not-executed"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("def f(:\n", "1:7", "not valid Python"),
        ("x = 1\n", None, "no variable `flow`"),
    ],
)
@pytest.mark.parametrize("execute", [True, False])
def test_a_python_file_that_is_no_flow_is_told(tmp_path: Path, text: str, place: str | None, message: str, execute: bool) -> None:
    file = tmp_path / "shop_bad.py"
    file.write_text(text)
    (problem,) = load(file, execute=execute).problems
    assert problem.code == "flow-file-python"
    assert str(problem).startswith(f"{file}:{place}: " if place else f"{file}: ")
    assert message in problem.message


def test_what_a_python_file_raises_is_told_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "shop_raises.py"
    file.write_text("def f():\n    return 1 / 0\n\nf()\nflow = None\n")
    (problem,) = load(file).problems
    assert str(problem).startswith(f"{file}:2:1: the module raised ZeroDivisionError: division by zero")
    assert "shop_raises" not in sys.modules


def test_problems_of_the_python_form_are_told_at_their_calls(tmp_path: Path) -> None:
    file = tmp_path / "shop_wrong.py"
    file.write_text(GOOD.replace('id="kept"', 'id="kept", on_error="ignore"'))
    (problem,) = load(file).problems
    assert problem.code == "bad-choice"
    assert (problem.place.file, problem.place.line) == (str(file), 6)


def test_a_variable_that_is_no_flow_is_told(tmp_path: Path) -> None:
    file = tmp_path / "shop_text.py"
    file.write_text("flow = 'tweets'\n")
    (problem,) = load(file).problems
    assert "that is a str, not a Flow" in problem.message


def test_a_module_that_would_hide_one_of_python_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "json.py"
    file.write_text(GOOD)
    (problem,) = load(file).problems
    assert "json_flow.py" in problem.remedy


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    (problem,) = load(tmp_path / "none.yaml").problems
    assert problem.code == "flow-file-missing"
    (problem,) = load(tmp_path).problems
    assert problem.code == "flow-file-missing"


def test_bytes_that_are_no_utf_8_are_told_with_their_place(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_bytes(b"version: 1\n# \xc3\xa4 \xff\n")
    (problem,) = load(file).problems
    assert (problem.code, problem.place.line, problem.place.column) == ("flow-file-missing", 2, 5)
