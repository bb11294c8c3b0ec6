"""docs/json.md: the answers that it shows have the shape of those that the commands give."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from doc_pages import ROOT
from record_json import COMMANDS, record

if TYPE_CHECKING:
    from pathlib import Path

_SECTION = re.compile(r"^## scribengin (.+?)$.*?^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROBLEM = {"severity": "", "code": "", "file": "", "line": 0, "column": 0, "message": "", "remedy": ""}


def differences(shown: Any, given: Any, where: str) -> list[str]:
    """Where `given` has another shape than `shown`: other keys, other kinds of values."""
    if isinstance(shown, dict) and isinstance(given, dict):
        found = [f"{where}: {key!r} is on one side only" for key in shown.keys() ^ given.keys()]
        return found + [text for key in shown.keys() & given.keys() for text in differences(shown[key], given[key], f"{where}.{key}")]
    if isinstance(shown, list) and isinstance(given, list):
        examples = [_PROBLEM] if where.endswith(".problems") else shown
        return [
            f"{where}: {item!r} is like nothing shown" for item in given if all(differences(example, item, where) for example in examples)
        ]
    same = {bool: bool, int: (int, float), float: (int, float), str: str, dict: dict, list: list}
    if shown is None or given is None:
        return [] if shown is given else [f"{where}: null on one side only"]
    return [] if isinstance(given, same[type(shown)]) else [f"{where}: {given!r} where {shown!r} is shown"]


@pytest.mark.timeout(600)
def test_each_command_answers_in_the_shape_that_the_page_shows(tmp_path: Path) -> None:
    shown = {command: json.loads(text) for command, text in _SECTION.findall((ROOT / "docs/json.md").read_text())}
    assert list(shown) == [command for command, _ in COMMANDS]
    given = record(tmp_path)
    for command, answer in given.items():
        example = shown[command]
        assert answer["command"] == example["command"]
        assert answer["ok"] == example["ok"], answer["problems"]
        if command == "config schema":
            assert example["result"].items() <= answer["result"].items()
        else:
            assert not differences(example, answer, command), "if this is meant: python tests/docs/record_json.py"


def test_a_missing_key_and_another_kind_of_value_are_differences() -> None:
    assert differences({"a": [{"b": 1}]}, {"a": [{"b": "1"}]}, "")
    assert differences({"a": {}}, {"a": {"b": 1}}, "")
    assert not differences({"a": [1.5]}, {"a": []}, "")
