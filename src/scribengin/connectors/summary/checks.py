"""Checks of `type: summary`: its query can be updated incrementally, and uses existing columns."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from scribengin.connectors.summary.question import QuestionError, read_question
from scribengin.core.problems import did_you_mean, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.check_contract import CheckedNode
    from scribengin.core.problems import Problem

METHODS = ("add", "merge", "result")
_NUMBERS = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"})
_NESTED = frozenset({"ARRAY", "MAP", "STRUCT"})


def summaries_can_be_kept(sink: CheckedNode) -> Iterator[Problem]:
    """The aggregates must be mergeable from partial results; each column must exist with a type that the aggregate supports."""
    sql, python = sink.options.get("sql"), sink.options.get("python")
    if (sql is None) == (python is None):
        has = "neither `sql` nor `python`" if sql is None else "`sql` and `python`"
        remedy = 'write one of them: sql: "SELECT column, count(*) AS n FROM rows GROUP BY column"'
        yield sink.problem_at_key("summary-sql", sink.path(), f"{sink.called} has {has}", remedy)
        return
    if sql is None:
        yield from _class(sink, str(python))
        return
    path = sink.path("sql")
    try:
        question = read_question(str(sql))
    except QuestionError as error:
        yield sink.problem("summary-sql", path, f"{sink.called}: {error}", error.remedy)
        return
    columns = sink.columns
    if columns is None:
        return
    asked = [("group", column) for _, column in question.keys]
    asked += [(figure.kind, figure.column) for figure in question.figures if figure.column is not None]
    for kind, name in asked:
        column = next((each for each in columns if each.name == name), None)
        if column is None:
            known = [each.name for each in columns]
            remedy = suggestion(name, known, "its columns are")
            yield sink.problem("summary-sql", path, f'{sink.called}: its input has no column "{name}"', remedy)
        elif column.type is not None and not _takes(kind, column.type.name):
            message = f'{sink.called}: {"GROUP BY" if kind == "group" else kind} of "{name}", which is {column.type}'
            yield sink.problem("summary-sql", path, message, "convert it in a `select` step before, or use another column")


def _class(sink: CheckedNode, reference: str) -> Iterator[Problem]:
    """Check that the class exists, in the syntax tree of its module: nothing is imported."""
    module, _, name = reference.partition(":")
    path = sink.path("python")
    file = sink.module_file(module) if module and name else None
    if file is None:
        message = f'{sink.called}: "{reference}" names a module that does not exist'
        yield sink.problem("summary-python", path, message, 'write "module:Class", of a module in the flow\'s folder')
        return
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        yield sink.problem("summary-python", path, f"{sink.called}: {file.name} is not valid Python: {error}", "correct it")
        return
    found = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)
    if found is None:
        names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        remedy = did_you_mean(name, names) or f"its classes are {', '.join(names) or 'none'}"
        yield sink.problem("summary-python", path, f'{sink.called}: {file.name} has no class "{name}"', remedy)
        return
    has = {node.name for node in found.body if isinstance(node, ast.FunctionDef)}
    missing = [method for method in METHODS if method not in has]
    if missing and not found.bases:
        message = f"{sink.called}: class {name} ({file.name}:{found.lineno}) has no method {' and no '.join(missing)}"
        yield sink.problem("summary-python", path, message, "define add(record), merge(other) and result(), which returns rows")


def _takes(kind: str, type_: str) -> bool:
    if kind in ("sum", "avg"):
        return type_ in _NUMBERS
    return kind == "count" or type_ not in _NESTED
