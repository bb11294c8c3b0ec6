"""Finds out from the text of a function whether it only tests its record: its annotation, and the lines that change the record."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHANGE = ("clear", "pop", "popitem", "setdefault", "update")
"""methods of a dict that change it"""
_CHANGE_INSIDE = (*_CHANGE, "append", "extend", "insert", "remove", "reverse", "sort")
"""those of a list or dict that lies in a record"""


def is_bool(function: ast.FunctionDef) -> bool:
    """Whether it is annotated `-> bool`."""
    match function.returns:
        case ast.Name(id="bool") | ast.Constant(value="bool"):
            return True
        case _:
            return False


def changing_lines(function: ast.FunctionDef, *, bound: bool) -> Iterator[int]:
    """Lines that set, delete or take out a key of the record, or something inside it, by its own name."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)][1 if bound else 0 :][:1]
    for node in ast.walk(function):
        match node:
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()) if _within(value) in names:
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if name in names and attr in _CHANGE:
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=ast.Subscript() as value, attr=attr)) if (
                _within(value) in names and attr in _CHANGE_INSIDE
            ):
                yield node.lineno
            case _:
                pass


def _within(node: ast.expr) -> str:
    """The name that `row["a"]["b"]` begins with; empty where it is another expression."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
