"""What `utilities:` may hold, told from the syntax trees of modules, at the item of the list."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.plan import python_functions
from scribengin.plan.explain import explain
from scribengin.plan.queries import build_plan
from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """
from scribengin import batch, frame, to

def keeps(row) -> bool:
    return row["id"] > 1

def quoted(row) -> "bool":
    return True

def unsaid(row):
    return row["id"] > 1

def marks(row) -> bool:
    row["id"] = 3
    return True

def takes(row) -> bool:
    return row.pop("id") > 1

def sorts(row):
    return to("left", row)

class Near:
    def __call__(self, row) -> bool:
        return row["id"] > 1

class Far:
    def __call__(self, row):
        return row["id"] > 1

@batch
def many(rows) -> bool:
    return rows

@frame
def whole(df):
    return df

def inside(row) -> bool:
    row["tags"].sort()
    return True

def deep(row) -> bool:
    row["at"]["tags"][0] = 1
    return True

def looks(row) -> bool:
    found = {}
    found["tags"] = [row["tags"].count(1), row["tags"][0]]
    return True

made = Near()
quick = lambda row: True
"""


def problems_of(folder: Path, utilities: str, more: str = "") -> list[str]:
    (folder / "steps.py").write_text(MODULE)
    text = f"""version: 1
name: shop
sources:
  n: {{type: sequence}}
steps:
  u: {{from: n, utilities: [{utilities}]{more}}}
sinks:
  kept: {{from: u, type: console}}
"""
    (folder / "shop.yaml").write_text(text)
    return [str(problem).replace(f"{folder}/", "") for problem in validate_file(folder / "shop.yaml", {})[1]]


@pytest.mark.parametrize("name", ["keeps", "quoted", "Near", "made", "looks"])
def test_a_test_may_be_reordered(tmp_path: Path, name: str) -> None:
    assert problems_of(tmp_path, f'"steps:{name}"', ", order: free") == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("unsaid", 'shop.yaml:6:43: step "u": utility "steps:unsaid" (steps.py:10) is not annotated -> bool'),
        ("Far", 'shop.yaml:6:43: step "u": utility "steps:Far" (steps.py:27) is not annotated -> bool'),
        ("quick", "is not annotated -> bool"),
        ("many", "takes whole batches"),
        ("marks", 'utility "steps:marks" changes its record (steps.py:14)'),
        ("takes", 'utility "steps:takes" changes its record (steps.py:18)'),
        ("inside", 'utility "steps:inside" changes its record (steps.py:40)'),
        ("deep", 'utility "steps:deep" changes its record (steps.py:44)'),
        ("whole", "is a @frame function, which runs only in Spark"),
        ("sorts", 'sends records to "left" (steps.py:21)'),
        ("keep", 'utility "steps:keep": steps.py has no "keep"'),
    ],
)
def test_what_may_not_be_reordered_is_told_at_its_item(tmp_path: Path, name: str, told: str) -> None:
    found = problems_of(tmp_path, f'"steps:keeps", "steps:{name}"', ", order: free")
    assert any(told in problem for problem in found), found


@pytest.mark.parametrize("name", ["unsaid", "Far", "quick", "many", "marks", "takes"])
def test_in_the_written_order_they_may_do_what_python_steps_may(tmp_path: Path, name: str) -> None:
    assert problems_of(tmp_path, f'"steps:keeps", "steps:{name}"') == []


def test_the_plan_names_each_utility(tmp_path: Path) -> None:
    assert problems_of(tmp_path, '"steps:keeps", "steps:quoted", "steps:keeps"', ", order: free") == []
    flow, _ = validate_file(tmp_path / "shop.yaml", {})
    assert flow is not None
    text = explain(build_plan(flow))
    for line in ("3 utilities, order free", "u.keeps    test steps:keeps", "u.quoted   test steps:quoted", "u.keeps_2  test steps:keeps"):
        assert line in text


IN_PYTHON = """
from scribengin import App, sink, source


class Marks:
    def __call__(self, row) -> bool:
        self.seen = {}
        row["seen"] = True
        return True

    def takes(self, row) -> bool:
        return row.pop("seen")


made = Marks()
made.__qualname__ = "made"
orders = source("files", id="orders", path="data", format="json", schema="id BIGINT")
app = App("shop", source=orders, utilities=[UTILITY], order="free", sink=sink("files", path="out", format="json"))
"""


@pytest.mark.parametrize(("utility", "line"), [("Marks", 8), ("made", 8), ("made.takes", 12)])
def test_what_an_object_changes_when_it_is_called_is_told_with_its_line(tmp_path: Path, utility: str, line: int) -> None:
    file = tmp_path / "shop.py"
    file.write_text(IN_PYTHON.replace("UTILITY", utility))
    _, found = validate_file(file, {}, execute=True)
    assert [problem.code for problem in found] == ["utility-changes-record"]
    assert f"changes its record (shop.py:{line})" in found[0].message


def test_an_object_tests_where_its_call_does() -> None:
    names: dict[str, Any] = {}
    exec(MODULE, names)
    for name in ("keeps", "Near", "made"):
        assert python_functions.tests_object(names[name])
    for other in (names["Far"], names["Far"](), names["quick"], names["unsaid"], partial(names["keeps"])):
        assert not python_functions.tests_object(other)
