"""What the pages say of the code: files, crash points, codes, settings that are named are there, and none is forgotten."""

from __future__ import annotations

import builtins
import re
import tomllib
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT, WRITTEN

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.core import faults
from scribengin.spark import failures, session

if TYPE_CHECKING:
    from scribengin.core.options import NodeType

_SOURCES = ROOT / "src" / "scribengin"
_CODE_FILE = re.compile(r"[`\s]((?:[a-z_]+/)+[a-z_]+\.py|(?:[a-z_]+/)+)(?=[`,\s])")
PROTOCOL = (ROOT / "docs/protocol.md").read_text()


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.startswith("docs/")])
def test_every_file_of_the_code_that_a_page_names_is_there(page: str) -> None:
    for name in _CODE_FILE.findall((ROOT / page).read_text()):
        if name.endswith(".py"):
            assert any((place / name).is_file() for place in (_SOURCES, ROOT)), f"{page}: {name}"


def test_every_connector_that_a_flow_can_name_is_listed() -> None:
    sources, sinks = set(source_types()), set(sink_types())
    table = re.findall(r"^\| (sources and sinks|sources|sinks) \| (.+) \|$", (ROOT / "docs/connectors.md").read_text(), re.MULTILINE)
    told = {role: set(re.findall(r"`([a-z]+)`", names)) for role, names in table}
    assert told == {"sources and sinks": sources & sinks, "sources": sources - sinks, "sinks": sinks - sources}


def test_the_page_says_of_every_sink_whether_it_can_go_to_a_group_and_why_not() -> None:
    page = (ROOT / "docs/groups.md").read_text()
    told = page[page.index("<!-- groups -->") : page.index("<!-- /groups -->")].strip().splitlines()[3:]
    assert told == [_in_a_group(declared) for _, declared in sorted(sink_types().items())]


def _in_a_group(declared: NodeType) -> str:
    """A line of the table."""
    whys: dict[str, list[str]] = {}
    for option in declared.options:
        for value, why in option.alone.items():
            whys.setdefault(why, []).append(f"`{option.name}: {value}`")
    at, cannot = "-", declared.alone or "; ".join(f"with {', '.join(said)}: {why}" for why, said in whys.items())
    if (by_member := declared.by_member) is not None:
        beside = {"path": ", with the sink's own below it", "list": ", with commas between several"}
        at = f"`{by_member.name}`{beside.get(by_member.kind, '')}"
    return f"| `{declared.type}` | {at} | {cannot or '-'} |"


def test_every_extra_of_the_package_is_listed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = re.findall(r"^\| `([a-z0-9-]+)` \|", (ROOT / "docs/extras.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(extras)


def test_the_page_says_what_to_do_where_a_key_of_a_join_has_another_name() -> None:
    (row,) = re.findall(r"^\| `join\.key` \|.*$", (ROOT / "docs/flow-file.md").read_text(), re.MULTILINE)
    assert "`columns: {country: code}`" in row
    assert "`select`" in row


def test_the_crash_points_are_those_of_the_code() -> None:
    table = PROTOCOL[PROTOCOL.index("<!-- faults -->") :].partition("\n## ")[0]
    assert set(re.findall(r"`([a-z]+\.[a-z_.]+)`", table)) == set(faults.POINTS)


def test_the_passing_failures_are_those_of_the_code() -> None:
    told = PROTOCOL[PROTOCOL.index("<!-- transient -->") : PROTOCOL.index("<!-- /transient -->")]
    assert tuple(re.findall(r"^- `(.+)`$", told, re.MULTILINE)) == failures._TRANSIENT


def test_every_code_of_a_refusal_is_one() -> None:
    page = (ROOT / "docs/edits.md").read_text()
    table = page[page.index("## What is refused") :].partition("\n## ")[0]
    code = "".join(path.read_text() for path in _SOURCES.rglob("*.py"))
    told = re.findall(r"\| `([a-z-]+)` \|", table)
    assert told
    assert all(f'"{name}"' in code for name in told)


def test_the_codes_of_packages_are_those_of_the_code() -> None:
    page = (ROOT / "docs/packages.md").read_text().partition("## What is refused")[2]
    code = "".join(path.read_text() for path in (_SOURCES / "packages").glob("*.py"))
    assert set(re.findall(r"`(package-[a-z-]+)`", page)) == set(re.findall(r'"(package-[a-z-]+)"', code))


def test_the_preset_is_explained_line_by_line() -> None:
    table = (ROOT / "docs/decisions/0003-spark-preset.md").read_text()
    for setting in session.PRESET:
        assert setting.rpartition(".")[2] in table, f"{setting} is not explained"


def test_the_floors_are_those_that_the_linter_checks() -> None:
    linter = (ROOT / "pyproject.toml").read_text().partition("layers = [")[2].partition("]")[0]
    floors = re.findall(r"scribengin\.(\w+)", linter)
    page = (ROOT / "docs/architecture.md").read_text().partition("```\ncli")[2].partition("```")[0]
    told = [word for floor in re.findall(r"^\w+(?: \| \w+)*", "cli" + page, re.MULTILINE) for word in floor.split(" | ")]
    assert told == [*floors, "testing", "harness"]


@pytest.mark.parametrize(
    "page",
    ["docs/sql-databases.md", "docs/connectors.md", *(str(file.relative_to(ROOT)) for file in sorted(ROOT.glob("examples/**/*.py")))],
)
def test_every_class_that_a_page_for_authors_names_is_there(page: str) -> None:
    code = "\n".join(file.read_text() for folder in (_SOURCES, ROOT / "examples") for file in sorted(folder.rglob("*.py")))
    classes = {*re.findall(r"^\s*class (\w+)", code, re.MULTILINE), *vars(builtins)}
    named = re.findall(r"`([A-Z][a-z]\w*)(?:\.\w+)?(?:\([^`]*\))?`", (ROOT / page).read_text())
    assert sorted({name for name in named if name not in classes}) == []
