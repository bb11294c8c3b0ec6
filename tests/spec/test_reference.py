from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.plan.validate import validate_file
from scribengin.spec import keys
from scribengin.spec.fmt import format_text
from scribengin.spec.load import load_flow

if TYPE_CHECKING:
    from types import ModuleType

    from scribengin.core.options import NodeType, Option
    from scribengin.spec.key import Section

ORDERS = "type: files, path: a, format: json"
DOCS = Path(__file__).parents[2] / "docs"
TYPES = {"source_types": source_types(), "sink_types": sink_types()}


def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["flow-file.md", "problems.md", "registry.md", "openapi.json", "metrics.md", "glossary.md", "cli.md", "cookbook.md"]
)
def test_the_page_is_as_the_declarations_make_it(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == generate().pages()[name], "run: python docs/generate.py"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / "flow-file.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_flow_on_the_page_is_right_and_laid_out(parse: Any) -> None:
    (whole,) = [block for block in blocks("yaml") if block.startswith("version:")]
    assert parse(whole).problems == ()
    assert parse(format_text(whole)).flow == parse(whole).flow


def test_the_tiers_on_the_page_are_right_for_the_flow_on_the_page(parse: Any) -> None:
    (whole,) = [block for block in blocks("yaml") if block.startswith("version:")]
    (cut,) = [block for block in blocks("yaml") if block.startswith("tiers:")]
    parsed = parse(whole + cut)
    assert parsed.problems == ()
    assert list(parsed.flow.tiers) == ["near", "core"]
    assert parse(format_text(whole + cut)).flow == parsed.flow


def test_the_tests_on_the_page_are_right_for_the_flow_on_the_page(parse: Any) -> None:
    (whole,) = [block for block in blocks("yaml") if block.startswith("version:")]
    (tests,) = [block for block in blocks("yaml") if block.startswith("tests:")]
    parsed = parse(whole + tests)
    assert parsed.problems == ()
    assert len(parsed.flow.tests) == 1


@pytest.mark.parametrize("block", [block for block in blocks("yaml") if block.startswith("steps:")], ids=lambda block: block.split()[4])
def test_the_steps_on_the_page_are_right(block: str, parse: Any) -> None:
    text = f"version: 1\nname: shop\nsources: {{orders: {{type: sequence}}}}\n{block}sinks: {{k: {{from: s, type: console}}}}\n"
    assert parse(text).problems == ()


@pytest.mark.parametrize("block", [block for block in blocks("yaml") if block.startswith("steps:")], ids=lambda block: block.split()[4])
def test_validate_has_nothing_to_say_of_the_steps_on_the_page(block: str, tmp_path: Path) -> None:
    columns = "id BIGINT, user STRING, text STRING, value STRING, amount DOUBLE, followers BIGINT, ts TIMESTAMP"
    declared = {"orders": f"{{{ORDERS}, schema: '{columns}', watermark: ts 10m}}"}
    if "payments" in block:
        declared["payments"] = "{type: files, path: b, format: json, schema: 'id BIGINT, at TIMESTAMP', watermark: at 10m}"
    if "refunds" in block:
        declared["refunds"] = f"{{type: files, path: c, format: json, schema: '{columns}', watermark: ts 10m}}"
    read = "[s.big, s.small]" if "route:" in block else "s"
    sources = "".join(f"  {id_}: {text}\n" for id_, text in declared.items())
    file = tmp_path / "flow.yaml"
    file.write_text(f"version: 1\nname: shop\nsources:\n{sources}{block}sinks:\n  k: {{from: {read}, type: console}}\n")
    (tmp_path / "steps.py").write_text("def has_tag(row):\n    return row\n\n\nf = has_tag\ng = has_tag\n")
    assert [str(problem) for problem in validate_file(file, {})[1]] == []


def test_validate_has_nothing_to_say_of_the_other_parts_on_the_page(tmp_path: Path) -> None:
    (whole,) = [block for block in blocks("yaml") if block.startswith("version:")]
    (alerts,) = [block for block in blocks("yaml") if block.startswith("max_delay:")]
    (dead,) = [block for block in blocks("yaml") if block.startswith("max_dead:")]
    (quoted,) = [block for block in blocks("yaml") if block.startswith("sources:")]
    (tmp_path / "steps.py").write_text("def has_tag(row) -> bool:\n    return True\n")
    (tmp_path / "data").mkdir()
    file = tmp_path / "flow.yaml"
    for text in (whole, whole + dead + alerts, f"version: 1\nname: shop\n{quoted}sinks:\n  k: {{from: per, type: console}}\n"):
        file.write_text(text)
        assert [str(problem) for problem in validate_file(file, {})[1]] == []


def test_every_yaml_on_the_page_is_one_that_a_test_above_reads() -> None:
    known = {"version", "tiers", "tests", "steps", "max_dead", "max_delay", "sources"}
    assert {block.partition(":")[0] for block in blocks("yaml")} == known


def test_the_python_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    functions, flow = blocks("python")
    exec(compile(functions, "functions", "exec"), {"__name__": "functions"})
    file = tmp_path / "page_flow.py"
    file.write_text(flow)
    parsed = load_flow(file, environment={}, **TYPES)
    assert parsed.problems == ()
    assert parsed.flow is not None
    assert parsed.flow.steps["tagged"].action.reference == "page_flow:has_tag"


def option_cases() -> list[Any]:
    types = [*TYPES["source_types"].values(), *TYPES["sink_types"].values()]
    return [
        pytest.param(declared, option, id=f"{declared.role}-{declared.type}-{option.name}")
        for declared in types
        for option in declared.options
    ]


@pytest.mark.parametrize(("declared", "option"), option_cases())
def test_the_example_and_the_default_of_every_option_are_taken(declared: NodeType, option: Option, parse: Any) -> None:
    environment = dict.fromkeys(re.findall(r"\$\{secret:env/(\w+)\}", option.example or ""), "told to nobody")
    needed = {other.name: other.choices[0] if other.choices else other.example for other in declared.options if other.required}
    if option.example or option.choices:
        needed[option.name] = option.example or option.choices[0]
    node = "".join(f"    {name}: {value if value.strip() not in (',',) else repr(value)}\n" for name, value in needed.items())
    source = f"  n:\n    type: {declared.type}\n{node}" if declared.role == "source" else "  n: {type: sequence}\n"
    sink = f"  k:\n    from: n\n    type: {declared.type}\n{node}" if declared.role == "sink" else "  k: {from: n, type: console}\n"
    assert parse(f"version: 1\nname: shop\nsources:\n{source}sinks:\n{sink}", environment=environment).problems == ()


@pytest.mark.parametrize("section", keys.SECTIONS, ids=lambda section: section.called)
def test_every_key_says_what_it_means_and_how_it_is_written(section: Section) -> None:
    for key in section.keys:
        assert key.doc
        assert key.example
        assert not key.choices or key.example in key.choices or key.section or key.kind == "int_or_word"
        assert not key.doc.endswith(".")
