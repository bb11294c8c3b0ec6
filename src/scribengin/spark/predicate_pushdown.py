"""Compiles record functions that only read columns to a form that takes Structs instead of dicts.

Most filters read two or three columns of a record and drop it. A Struct is a third cheaper to decode than a dict. If a function uses its
record only as `row["column"]` or `row.get("column")`, it is compiled again with `row.f3` in these places: the user's own code runs, with
its line numbers, on the same values. In case of doubt (the record is passed on, changed or compared; a closure; a source file that differs
from the loaded code) there is no such form and the step gets dicts.

A function that consists only of comparisons joined by `and`, `or` and `not` is also compiled to one loop over many records, without a call
per record.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import re
import sys
from dataclasses import dataclass
from functools import lru_cache, reduce
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from scribengin.core.types import INTEGER_BITS
from scribengin.formats.structs import attribute
from scribengin.plan.sql.parse import parse_expression
from scribengin.spec.model import Filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sqlglot import exp

    from scribengin.core.types import Schema
    from scribengin.spec.model import Step


# Drops rows in a stage that the SQL filters after it would drop. A filter that compares columns with constants is evaluated on the Structs
# that a source's decoder makes, so that dropped rows are never converted to Arrow. Spark filters the remaining rows again: the sieve may
# keep rows that Spark drops, never the reverse. It contains only comparisons with the same result in Python and in Spark, and of `a AND b
# AND c` only those before the first one without: a later one could raise an error, and then the row must be found.


_ESCAPED = re.compile(r"""[\\"]|''""")
"""characters of a text that Spark's parser would interpret"""


def sieve_of(steps: Iterable[Step], schema: Schema) -> str | None:
    """A filter for the rows that the next SQL steps would drop.

    Args:
        steps: The steps, which follow each other.
        schema: The columns of the rows.

    Returns:
        A Python expression over `row`, a Struct of `schema`: True for all rows that may pass `steps`. None if nothing can be tested.
    """
    return deciding_sieve(steps, schema)[0]


def deciding_sieve(steps: Iterable[Step], schema: Schema) -> tuple[str | None, bool]:
    """(the sieve, True if every row for which it is True passes `steps` unchanged)."""
    tests: list[str] = []
    for step in steps:
        if not isinstance(step.action, Filter):
            break
        tree = parse_expression(step.action.predicate).tree
        if tree is None or _ESCAPED.search(step.action.predicate):
            break
        found, whole = _conjuncts(tree, schema)
        tests += found
        if not whole or step.require:  # a row that fails a `require` becomes a dead letter there, whatever follows
            break
    else:
        return " and ".join(tests) or None, bool(tests)
    return " and ".join(tests) or None, False


def compiled(sieve: str) -> Callable[[list[Any]], list[bool]]:
    """The sieve as a function over many Structs."""
    test: Callable[[list[Any]], list[bool]] = eval(f"lambda rows: [{sieve} for row in rows]")
    return test


def _conjuncts(tree: exp.Expr, schema: Schema) -> tuple[list[str], bool]:
    """(the tests of the predicate's first conjuncts, True if they are all of it)."""
    tests: list[str] = []
    for part in _flat(tree):
        test = _test(part, schema)
        if test is None:
            return tests, False
        tests.append(test)
    return tests, True


def _flat(tree: exp.Expr) -> Iterator[exp.Expr]:
    from sqlglot import exp

    tree = tree.unnest()
    if isinstance(tree, exp.And):
        yield from _flat(tree.left)
        yield from _flat(tree.right)
    else:
        yield tree


def _test(tree: exp.Expr, schema: Schema) -> str | None:
    """A Python expression that is True if the predicate is true, and False if it is false or null; None if there is none."""
    from sqlglot import exp

    tree = tree.unnest()
    match tree:
        case exp.And() | exp.Or():
            sides = [_test(tree.left, schema), _test(tree.right, schema)]
            if None in sides:
                return None
            return f"({(' and ' if isinstance(tree, exp.And) else ' or ').join(side for side in sides if side)})"
        case exp.Not(this=exp.Is(this=exp.Column() as column, expression=exp.Null())):
            found = _column(column, schema)
            return found and f"{found[0]} is not None"
        case exp.Column():
            found = _column(tree, schema)
            return f"{found[0]} is True" if found and found[1] == "BOOLEAN" else None
        case exp.Contains() | exp.StartsWith() | exp.EndsWith():
            return _text_test(tree, schema)
        case exp.GT() | exp.GTE() | exp.LT() | exp.LTE() | exp.EQ():
            return _comparison(tree, schema)
    return None


_TURNED = {"GT": "<", "GTE": "<=", "LT": ">", "LTE": ">=", "EQ": "=="}
_STRAIGHT = {"GT": ">", "GTE": ">=", "LT": "<", "LTE": "<=", "EQ": "=="}


def _comparison(tree: Any, schema: Schema) -> str | None:
    """The test for a column compared with a constant of its own kind; texts for equality only. None for other comparisons."""
    kind = type(tree).__name__
    for side, other, sign in ((tree.left, tree.right, _STRAIGHT[kind]), (tree.right, tree.left, _TURNED[kind])):
        column = _column(side, schema)
        if column is None:
            continue
        attribute_, type_ = column
        constant: int | str | None = _integer(other) if type_ in INTEGER_BITS else None
        if type_ == "STRING" and sign == "==":
            constant = _text(other)
        if constant is not None:
            return f"({attribute_} is not None and {attribute_} {sign} {constant!r})"
    return None


def _text_test(tree: Any, schema: Schema) -> str | None:
    column, constant = _column(tree.this, schema), _text(tree.expression)
    if column is None or column[1] != "STRING" or constant is None:
        return None
    test = {"Contains": f"{constant!r} in {column[0]}", "StartsWith": f"{column[0]}.startswith({constant!r})"}.get(type(tree).__name__)
    return f"({column[0]} is not None and {test or f'{column[0]}.endswith({constant!r})'})"


def _column(tree: exp.Expr, schema: Schema) -> tuple[str, str] | None:
    """(`row.f3`, the name of its type). Names are case-sensitive: our sessions set `spark.sql.caseSensitive`."""
    from sqlglot import exp

    tree = tree.unnest()
    if not isinstance(tree, exp.Column) or tree.table or tree.name not in schema:
        return None
    return f"row.{attribute(schema, tree.name)}", schema[tree.name].type.name


def _integer(tree: exp.Expr) -> int | None:
    from sqlglot import exp

    if isinstance(tree, exp.Neg):
        positive = _integer(tree.this)
        return None if positive is None else -positive
    if not isinstance(tree, exp.Literal) or tree.is_string or not tree.name.isascii() or not tree.name.isdigit():
        return None
    number = int(tree.name)
    return number if number < 1 << 63 else None  # a larger number is a DECIMAL


def _text(tree: exp.Expr) -> str | None:
    from sqlglot import exp

    return str(tree.name) if isinstance(tree, exp.Literal) and tree.is_string else None


_FUTURE = reduce(lambda flags, name: flags | getattr(__future__, name).compiler_flag, __future__.all_feature_names, 0)
_NOT_PLAIN = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_SEE_LOCALS = frozenset({"locals", "vars", "dir", "eval", "exec"})
_PLAIN = frozenset({int, float, str, bytes, bool, type(None)})
_HOLD = frozenset({list, tuple, set, frozenset})
"""containers among a module's names that can be compared repeatedly without effect"""


@dataclass(frozen=True, slots=True)
class CompiledPredicate:
    """A record function for Structs. `many` returns the answers for a list of them, all True or False. If it raises, call `one` for each
    record: repeated evaluation has no effect."""

    one: Callable[[Any], Any]
    many: Callable[[list[Any]], list[bool]] | None


@lru_cache(maxsize=256)
def compile_predicate(function: Any, schema: Schema) -> CompiledPredicate | None:
    """`function` for Structs of `schema`; None if it cannot be compiled for them."""
    if not isinstance(function, FunctionType):
        return None
    code = function.__code__
    if code.co_argcount != 1 or code.co_kwonlyargcount or code.co_flags & _NOT_PLAIN or code.co_freevars:
        return None
    found = _definition(function)
    if found is None or not found.args.args or not _same(_compiled(found, code), code):
        return None
    looks = _Looks(found.args.args[0].arg, schema)
    if not looks.only(found):
        return None
    changed = looks.visit(found)
    one = FunctionType(_compiled(changed, code), function.__globals__, function.__name__, function.__defaults__)
    return CompiledPredicate(one, _loop(changed, function))


def _loop(changed: ast.FunctionDef, function: FunctionType) -> Callable[[list[Any]], list[bool]] | None:
    """The function's single expression as a loop over many records; None if the function is more than a test."""
    body = changed.body[1:] if ast.get_docstring(changed) is not None else changed.body
    match body:
        case [ast.Return(value=ast.expr() as test)] if _is_test(test, changed.args.args[0].arg, function.__globals__):
            pass
        case _:
            return None
    record = changed.args.args[0].arg
    code = compile(
        f"lambda {_MANY}: [{ast.unparse(test)} for {record} in {_MANY}]", function.__code__.co_filename, "eval", dont_inherit=True
    )
    return FunctionType(code.co_consts[0], function.__globals__)


_MANY = "_many_records"


def _is_test(node: ast.expr, record: str, names: dict[str, Any]) -> bool:
    """True if the expression gives True or False and has no side effect."""
    match node:
        case ast.BoolOp(values=values):
            return all(_is_test(value, record, names) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _is_test(operand, record, names) or _is_value(operand, record, names)
        case ast.Compare(left=left, comparators=others):
            return all(_is_value(value, record, names) for value in (left, *others))
    return False


def _is_value(node: ast.expr, record: str, names: dict[str, Any]) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.Attribute(value=ast.Name(id=name)):
            return name == record
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
        case ast.Tuple(elts=values) | ast.List(elts=values) | ast.Set(elts=values):
            return all(_is_value(value, record, names) for value in values)
        case ast.Name(id=name):
            value = names.get(name, names)
            return type(value) in _PLAIN or (type(value) in _HOLD and all(type(each) in _PLAIN for each in value))
    return False


def _definition(function: FunctionType) -> ast.FunctionDef | None:
    """The function's syntax tree without decorators, if it is defined at the top level of its module; else None."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[function.__module__]))
    except (OSError, TypeError, KeyError, SyntaxError):
        return None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == function.__code__.co_firstlineno:
                node.decorator_list = []
                return node
    return None


def _same(one: CodeType, other: CodeType) -> bool:
    return (one.co_code, one.co_consts, one.co_names) == (other.co_code, other.co_consts, other.co_names)


def _compiled(node: ast.FunctionDef, like: CodeType) -> CodeType:
    module = compile(ast.Module([node], []), like.co_filename, "exec", flags=like.co_flags & _FUTURE, dont_inherit=True)
    return next(const for const in module.co_consts if isinstance(const, CodeType) and const.co_name == node.name)


class _Looks(ast.NodeTransformer):
    """Checks whether a function only reads columns of `record`, its parameter, and replaces these reads by attributes."""

    def __init__(self, record: str, schema: Schema) -> None:
        self._record = record
        self._schema = schema

    def only(self, function: ast.FunctionDef) -> bool:
        """True if each use of the record reads a column, and its name is never bound to anything else."""
        nodes = list(ast.walk(function))
        looks = sum(self._column(node) is not None for node in nodes)
        names = [node for node in nodes if isinstance(node, ast.Name) and node.id == self._record]
        if looks != len(names) or any(isinstance(node, ast.Name) and node.id in _SEE_LOCALS for node in nodes):
            return False
        bound = [name for node in nodes for name in _bound(node) if name == self._record]
        return len(bound) == 1  # the parameter

    def visit(self, node: ast.AST) -> Any:
        column = self._column(node)
        if column is None:
            return self.generic_visit(node)
        look = ast.Attribute(ast.Name(self._record, ast.Load()), attribute(self._schema, column), ast.Load())
        return ast.fix_missing_locations(ast.copy_location(look, node))

    def _column(self, node: ast.AST) -> str | None:
        """The column that `record["column"]`, `record.get("column")` or `record.get("column", None)` reads, else None. Every record has
        every column, so a default is never used."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(column)), ctx=ast.Load()):
                pass
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="get"),
                args=[ast.Constant(value=str(column))] | [ast.Constant(value=str(column)), ast.Constant()],
                keywords=[],
            ):
                pass
            case _:
                return None
        return column if name == self._record and column in self._schema else None


def _bound(node: ast.AST) -> list[str]:
    """The names that a node binds, except by assignment (those are Names, and are counted there)."""
    match node:
        case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return names
        case ast.alias(name=name, asname=other):
            return [other or name.partition(".")[0]]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
    return []
