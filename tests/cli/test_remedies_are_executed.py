"""Every code whose problems name a command is claimed by a test that executes it, by the marker `executes`; tests/plugins/remedies.py sees
that such a test meets the code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import scribengin
from scribengin.cli.code_catalog import everything
from scribengin.core.remedies import add_to_outputs, flow_command, start_over
from tests.plugins.remedies import EXECUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(scribengin.__file__).parent
TESTS = Path(__file__).parents[1]
CODES = frozenset(everything())
BUILDERS = {builder.__name__ for builder in (add_to_outputs, flow_command, start_over)}
"""what puts a command into a remedy"""
NOT_EXECUTED: dict[str, str] = {}
"""code → why no test executes its command"""

_COMMAND = re.compile(r"\bscribengin (?!import\b)([a-z]|$)")
_MAY_HAVE = re.compile(rf'{_COMMAND.pattern}|"scribengin |^    code = |\b({"|".join(BUILDERS)})\(', re.MULTILINE)
"""a file without it names no command, and has no class with a code"""
_TEXTS = (ast.BinOp, ast.BoolOp, ast.Call, ast.Constant, ast.IfExp, ast.JoinedStr)
_NO_PROBLEMS = {"InputError", "Key", "AttemptOutcome"}
"""what has texts that are codes too, and makes no problem"""
Scope = dict[str, list[ast.expr]]


@cache
def codes_with_commands() -> dict[str, str]:
    """Code → a place of the source where its problem names a command."""
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(SOURCE.rglob("*.py")) if "catalog" not in str(file)}
    trees = {file: ast.parse(text) for file, text in texts.items() if _MAY_HAVE.search(text)}
    classes = dict(pair for tree in trees.values() for pair in _codes_of_classes(tree))
    found: dict[str, str] = {}
    for file, tree in trees.items():
        for call, scope in _calls(tree, {}):
            codes = _codes(call, classes)
            if codes and _names_command(call, scope):
                found.update({code: f"{file.relative_to(SOURCE)}:{call.lineno}" for code in codes})
    return found


def _codes_of_classes(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(class, its `code`)"""
    for each in ast.walk(tree):
        if isinstance(each, ast.ClassDef):
            for line in each.body:
                match line:
                    case ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=str(code))):
                        yield each.name, code


def _calls(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.Call, Scope]]:
    """All calls below, each with what is assigned to names in its function, and in those around it."""
    if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)):
        scope = {**scope, **_assigned(node)}
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, scope
        yield from _calls(child, scope)


def _assigned(node: ast.AST) -> Scope:
    found: Scope = {}
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign):
            for target in child.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(child.value)
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for name, values in _assigned(child).items():
                found.setdefault(name, []).extend(values)
    return found


def _names_command(call: ast.Call, scope: Scope) -> bool:
    """In its remedy; of a call without keywords in any of its texts."""
    remedy = [each.value for each in call.keywords if each.arg == "remedy"]
    return any(_has_command(each, scope) for each in remedy or call.args)


def _has_command(value: ast.expr, scope: Scope, depth: int = 2) -> bool:
    for each in ast.walk(value):
        match each:
            case ast.Constant(value=str(text)) if _COMMAND.search(text):
                return True
            case ast.Name(id=name) if name in BUILDERS:
                return True
            case ast.Name(id=name) if depth:
                if any(_has_command(found, scope, depth - 1) for found in scope.get(name, ()) if isinstance(found, _TEXTS)):
                    return True
    return False


def _codes(call: ast.Call, classes: dict[str, str]) -> list[str]:
    """Those of the problem that a call makes; none of another call."""
    named = [each.value for each in call.keywords if each.arg == "code"]
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in _NO_PROBLEMS:
        return []
    either = [part for each in named or call.args for part in ([each.body, each.orelse] if isinstance(each, ast.IfExp) else [each])]
    values = [each.value for each in either if isinstance(each, ast.Constant)]
    if found := [value for value in values if isinstance(value, str) and value in CODES]:
        return found
    return [classes[name]] if name in classes and not named else []


@cache
def claims() -> dict[str, set[str]]:
    """Code → the test files that claim to execute its command."""
    found: dict[str, set[str]] = {}
    for file in sorted(TESTS.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if f"mark.{EXECUTES}(" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == EXECUTES:
                    for code in node.args:
                        found.setdefault(ast.literal_eval(code), set()).add(str(file.relative_to(TESTS)))
    return found


def test_every_command_of_a_remedy_is_executed_by_a_test() -> None:
    found = codes_with_commands()
    assert len(found) > 70, "the search finds them"
    lacking = {code: place for code, place in found.items() if code not in claims() and code not in NOT_EXECUTED}
    assert lacking == {}, "execute its command in the case that prints it, and mark that test: @pytest.mark.executes(CODE)"


def test_what_is_claimed_or_left_out_is_a_code() -> None:
    assert sorted(set(claims()) - CODES) == []
    assert [code for code in NOT_EXECUTED if code in claims() or code not in codes_with_commands()] == [], "take it out"
