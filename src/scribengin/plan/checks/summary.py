"""Rules on `type: summary`: that its question can be kept current, over columns that are there."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from scribengin.connectors.summary.question import QuestionError, read_question
from scribengin.core.problems import did_you_mean, suggestion
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.columns import find
from scribengin.plan.python_modules import find_module
from scribengin.plan.resolve import union_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem
    from scribengin.spec.model import Sink

METHODS = ("add", "merge", "result")
_NUMBERS = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"})
_NESTED = frozenset({"ARRAY", "MAP", "STRUCT"})


def summaries_can_be_kept(subject: Subject) -> Iterator[Problem]:
    """The aggregates can be merged from parts; each column exists and has a type that the aggregate supports."""
    for sink in subject.flow.sinks.values():
        if sink.type != "summary":
            continue
        sql, python = sink.options.get("sql"), sink.options.get("python")
        if (sql is None) == (python is None):
            has = "neither `sql` nor `python`" if sql is None else "`sql` and `python`"
            remedy = 'write one of them: sql: "SELECT column, count(*) AS n FROM rows GROUP BY column"'
            yield subject.problem_at_key("summary-sql", path_of(sink), f"{called(sink)} has {has}", remedy)
            continue
        if sql is None:
            yield from _class(subject, sink, str(python))
            continue
        path = path_of(sink, "sql")
        try:
            question = read_question(str(sql))
        except QuestionError as error:
            yield subject.problem("summary-sql", path, f"{called(sink)}: {error}", error.remedy)
            continue
        columns = union_columns([subject.resolved.of(reference) for reference in sink.inputs])
        if columns is None:
            continue
        asked = [("group", column) for _, column in question.keys]
        asked += [(figure.kind, figure.column) for figure in question.figures if figure.column is not None]
        for kind, name in asked:
            column = find(columns, name)
            if column is None or column.name != name:
                known = [each.name for each in columns]
                remedy = suggestion(name, known, "its columns are")
                yield subject.problem("summary-sql", path, f'{called(sink)}: its input has no column "{name}"', remedy)
            elif column.type is not None and not _takes(kind, column.type.name):
                message = f'{called(sink)}: {"GROUP BY" if kind == "group" else kind} of "{name}", which is {column.type}'
                yield subject.problem("summary-sql", path, message, "convert it in a `select` step before, or use another column")


def _class(subject: Subject, sink: Sink, reference: str) -> Iterator[Problem]:
    """Uses the module's syntax tree; nothing is imported."""
    module, _, name = reference.partition(":")
    path = path_of(sink, "python")
    file = find_module(module, subject.flow.code_folder) if module and name else None
    if file is None:
        message = f'{called(sink)}: "{reference}" names a module that does not exist'
        yield subject.problem("summary-python", path, message, 'write "module:Class", of a module in the flow\'s folder')
        return
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        yield subject.problem("summary-python", path, f"{called(sink)}: {file.name} is not valid Python: {error}", "correct it")
        return
    found = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)
    if found is None:
        names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        remedy = did_you_mean(name, names) or f"its classes are {', '.join(names) or 'none'}"
        yield subject.problem("summary-python", path, f'{called(sink)}: {file.name} has no class "{name}"', remedy)
        return
    has = {node.name for node in found.body if isinstance(node, ast.FunctionDef)}
    missing = [method for method in METHODS if method not in has]
    if missing and not found.bases:
        message = f"{called(sink)}: class {name} ({file.name}:{found.lineno}) has no method {' and no '.join(missing)}"
        yield subject.problem("summary-python", path, message, "define add(record), merge(other) and result(), which returns rows")


def _takes(kind: str, type_: str) -> bool:
    if kind in ("sum", "avg"):
        return type_ in _NUMBERS
    return kind == "count" or type_ not in _NESTED
