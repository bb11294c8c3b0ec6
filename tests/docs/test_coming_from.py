"""docs/coming-from.md: every old word in code type is one that `validate` translates, every word of ours exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import scribengin
from scribengin.cli.commands.schema import schema_text
from scribengin.cli.main import main
from scribengin.connectors import contract as connectors
from scribengin.plan.validate import validate_file
from scribengin.spec.foreign_terms import WORDS, translate
from scribengin.state import contract as state
from scribengin.state import lease

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
_ORIGINS = {
    "Scribengin (Java, YARN)": "Scribengin",
    "YARN and Kubernetes": "YARN and Kubernetes",
    "Flume": "Flume",
    "Storm": "Storm",
    "Kafka Connect": "Kafka Connect",
    "Flink": "Flink",
    "Redpanda Connect": "Redpanda Connect",
    "PySpark": "PySpark",
}


def rows() -> list[tuple[str, list[str], list[str], str]]:
    """(system, old words in code type, words of ours, remark) of every row."""
    found, system = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            system = _ORIGINS[line.removeprefix("## ")]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and cells[1] != "here" and not cells[0].startswith("---"):
            found.append((system, re.findall(r"`([^`]+)`", cells[0]), re.findall(r"`([^`]+)`", cells[1]), cells[2]))
    return found


def flow_words(schema: Any) -> set[str]:
    """Every key, type and choice that the JSON Schema knows."""
    if isinstance(schema, list):
        return set().union(*map(flow_words, schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    own = set(schema.get("properties", {})) | {str(word) for word in schema.get("enum", [])} | {str(schema.get("const", ""))}
    return own.union(*map(flow_words, schema.values()))


def test_the_page_holds_every_old_word_that_validate_knows_and_says_the_same() -> None:
    told = {(system, old): ours for system, olds, ours, _ in rows() for old in olds}
    for word in WORDS:
        assert (word.origin, word.word) in told, f"{word.origin}: {word.word} is missing in {PAGE.name}"
        assert word.ours in told[word.origin, word.word]


@pytest.mark.parametrize(("system", "old", "ours", "remark"), [(s, o, n, r) for s, olds, n, r in rows() for o in olds])
def test_an_old_word_in_code_type_is_translated_so(system: str, old: str, ours: list[str], remark: str) -> None:
    if old in ours:  # the same word here
        return
    told = translate(old)
    assert any(f'"{word}" here' in told for word in ours), f"{system}: {old}: {told or 'not known'}"
    assert ("does not support yet" in told) == ("not in this version" in remark or "this version reads" in remark)


def test_every_word_of_ours_exists(capsys: pytest.CaptureFixture[str]) -> None:
    known = flow_words(json.loads(schema_text())) | set(scribengin.__all__)
    known |= {name for module in (connectors, state, lease) for name in vars(module)}
    for _, _, ours, remark in rows():
        for word in ours:
            if word in known or "not in this version" in remark:
                continue
            command = ["run", "--help"] if word.startswith("--") else [*word.split(), "--help"]
            with pytest.raises(SystemExit) as left:
                main(command)
            printed = capsys.readouterr().out
            assert left.value.code == 0, f"{word} is no key, choice, type, class or command"
            assert not word.startswith("--") or word in printed


def test_validate_tells_the_new_word_where_the_old_one_stands(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        "version: 1\nname: old\n"
        "sources:\n"
        "  a: {type: spool_dir, path: data}\n"
        '  b: {type: files, path: data, format: jsonl, schema: "id BIGINT", max_files_per_trigger: 3}\n'
        "steps:\n"
        "  d: {from: b, drop_duplicates: [id]}\n"
        "  e: {from: b, filter: id > 1, choke: 5}\n"
        "sinks:\n"
        "  kept: {inputs: e, type: files, path: out, format: parquet, partition_columns: [id]}\n"
    )
    _, problems = validate_file(flow, {})
    told = "\n".join(f"{problem.place.line}: {problem.message}; {problem.remedy}" for problem in problems)
    for line, old, new in (
        (4, "spool_dir", "files"),
        (5, "jsonl", "json"),
        (5, "max_files_per_trigger", "max_files"),
        (7, "drop_duplicates", "dedupe"),
        (8, "choke", "limit"),
        (10, "inputs", "from"),
        (10, "partition_columns", "partition_by"),
    ):
        assert re.search(rf'^{line}: .*"{old}".*"{new}"', told, re.MULTILINE), f"{old}:\n{told}"
