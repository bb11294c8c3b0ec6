"""Parses SQL texts to trees, with faults and their positions. Parsed texts are cached, because many rules need the same text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from scribengin.core.types import in_backticks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.tokenizer_core import Token

    from scribengin.core.problems import Severity


@dataclass(frozen=True, slots=True)
class SqlFault:
    """A fault of a text; `offset` counts characters from its start."""

    code: str
    offset: int
    message: str
    remedy: str = ""
    severity: Severity = "error"


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A parsed text; if the syntax is wrong, there is no tree and `fault` is set."""

    sql: str
    kind: Literal["query", "expression"]
    tree: exp.Expr | None
    fault: SqlFault | None = None
    tokens: tuple[tuple[str, int], ...] = ()
    """(word in upper case, offset)"""


@lru_cache(maxsize=4096)
def parse_query(sql: str) -> Text:
    """Parse a query: one SELECT (with CTEs, set operations, …)."""
    from sqlglot import exp

    text = _parse(sql, "query")
    if text.tree is not None and not isinstance(text.tree, exp.Query):
        return _wrong(
            sql, "query", 0, f'"{_first_word(sql)}" is not a query', "write a SELECT; a flow reads and writes through its sources and sinks"
        )
    return text


@lru_cache(maxsize=4096)
def parse_expression(sql: str) -> Text:
    """Parse one expression or predicate over the columns of one input."""
    from sqlglot import exp

    text = _parse(sql, "expression")
    match text.tree:
        case None:
            return text
        case exp.Query():
            return _wrong(sql, "expression", 0, "expected an expression, found a query", "use a step with `sql:`")
        case exp.Alias():
            offset = start_of(text.tree.args["alias"]) or 0
            return _wrong(sql, "expression", offset, f'unexpected "{text.tree.alias}" after the expression', "")
        case exp.Expression():
            subquery = text.tree.find(exp.Query)
            if subquery is not None:
                where = start_of(subquery) or 0
                return _wrong(sql, "expression", where, "a subquery is not allowed in an expression", "use a step with `sql:`")
            return text
        case _:
            return text


def start_of(node: exp.Expr) -> int | None:
    """The offset of the node's first character, as far as it is known for the node or a part of it; None if unknown."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return min(starts, default=None)


def keyword(text: Text, word: str, before: int | None = None) -> int:
    """The offset of the first such keyword (with `before`: of the last one before that offset), or 0."""
    found = [offset for token, offset in text.tokens if token == word and (before is None or offset < before)]
    return (found[0] if before is None else found[-1]) if found else 0


_ENDS = frozenset({"FROM", "WHERE", "GROUP", "GROUP BY", "HAVING", "ORDER", "ORDER BY", "LIMIT", ")", "UNION", ";", ""})
_MISSING = re.compile(r"Required keyword: '(\w+)' missing for <class '[\w.]*\.(\w+)'>")
_STATEMENTS = frozenset(
    (
        "ALTER",
        "ANALYZE",
        "CACHE",
        "CREATE",
        "DELETE",
        "DESCRIBE",
        "DROP",
        "EXPLAIN",
        "INSERT",
        "MERGE",
        "REFRESH",
        "SET",
        "SHOW",
        "TRUNCATE",
        "UPDATE",
        "USE",
    )
)


@cache
def _dialect() -> Dialect:
    from sqlglot.dialects.dialect import Dialect

    return Dialect.get_or_raise("spark")


def tokens_of(sql: str) -> tuple[Token, ...]:
    """The tokens of a text; empty if it cannot be tokenized."""
    from sqlglot.errors import TokenError

    try:
        return tuple(_dialect().tokenize(sql))
    except TokenError:
        return ()


def _parse(sql: str, kind: Literal["query", "expression"]) -> Text:
    from sqlglot.errors import ParseError, TokenError

    try:
        tokens = _dialect().tokenize(sql)
    except TokenError:
        before = re.search(r"\\['\"]", sql)
        remedy = f"a backslash makes the next quote part of the text; to end the text there, write \\\\{before[0][1]}" if before else ""
        return _wrong(sql, kind, _open_quote(sql), "a quote or a comment is not closed", remedy)
    if not tokens:
        return _wrong(sql, kind, 0, "the SQL text is empty", "")
    words = tuple((token.text.upper(), token.start) for token in tokens)
    if kind == "query" and words and words[0][0] in _STATEMENTS:
        return _wrong(
            sql,
            kind,
            words[0][1],
            f'"{tokens[0].text}" is not a query',
            "write a SELECT; a flow reads and writes through its sources and sinks",
        )
    comma = _trailing_comma(tokens)
    if comma is not None:
        return _wrong(sql, kind, comma, "there is a comma before the end of the list", "take it out")
    bare = _bare_name(tokens)
    if bare is not None:
        offset, name = bare
        return _wrong(sql, kind, offset, f'"{name}" is written without backticks', f"write it in backticks: {in_backticks(name)}")
    _free_window_functions(tokens)
    try:
        trees = [tree for tree in _dialect().parser().parse(tokens, sql) if tree is not None]
    except ParseError as error:
        return _syntax_error(sql, kind, error)
    except RecursionError:
        return _wrong(sql, kind, 0, "the SQL text is nested too deeply", "split it into several steps")
    if len(trees) != 1:
        second = next((offset for word, offset in words if word == ";"), 0)
        return _wrong(sql, kind, second, f"expected one statement, found {len(trees)}", "write one step for each")
    return Text(sql, kind, trees[0], tokens=words)


def _free_window_functions(tokens: list[Token]) -> None:
    """Change the token of the `window` in `GROUP BY window(ts, …)`: sqlglot 30 reads it as a WINDOW clause, in which a name precedes the
    parenthesis."""
    from sqlglot.tokenizer_core import TokenType

    for token, follower in pairwise(tokens):
        if token.token_type == TokenType.WINDOW and follower.token_type == TokenType.L_PAREN:
            token.token_type = TokenType.VAR


def _bare_name(tokens: list[Token]) -> tuple[int, str] | None:
    """(offset, name) of a name that sqlglot accepts without backticks and Spark does not: one with characters that are not ASCII, or a
    parameter."""
    from sqlglot.tokenizer_core import TokenType

    for token, follower in _pairs(tokens):
        if token.token_type == TokenType.PARAMETER and follower is not None:
            return token.start, token.text + follower.text
        if token.token_type == TokenType.VAR and not token.text.isascii():
            return token.start, token.text
    return None


def _trailing_comma(tokens: list[Token]) -> int | None:
    """The offset of a trailing comma, as in `SELECT a, FROM t`, which sqlglot accepts and Spark does not; None if there is none."""
    for token, follower in _pairs(tokens):
        ends = follower is None or (follower.text.upper() in _ENDS and follower.token_type.name != "STRING")  # '' is a value
        if ends and token.text == "," and token.token_type.name == "COMMA":
            return token.start
    return None


def _pairs(tokens: list[Token]) -> Iterator[tuple[Token, Token | None]]:
    return zip(tokens, [*tokens[1:], None], strict=True)


def _syntax_error(sql: str, kind: Literal["query", "expression"], error: Exception) -> Text:
    detail = getattr(error, "errors", [{}])[0]
    offset = len(detail.get("start_context", ""))
    if len(sql) > 100:  # start_context is cut to 100 characters
        offset = _offset(sql, detail.get("line", 1), detail.get("col", 1), detail.get("highlight", ""))
    found = detail.get("highlight", "")
    description = detail.get("description", "cannot be read")
    missing = _MISSING.match(description)
    shown = f'"{found}"' if found else "the end"
    if missing:
        return _wrong(sql, kind, offset, f"something is missing after {shown}", "")
    if description.startswith("Expecting "):
        return _wrong(sql, kind, offset, f'expected "{description.removeprefix("Expecting ")}" at {shown}', "")
    return _wrong(sql, kind, offset, f"syntax error at {shown}", "")


def _offset(sql: str, line: int, column: int, highlight: str) -> int:
    """The offset for sqlglot's line and column, which count from 1 and refer to a token's last character."""
    before = sum(len(part) for part in sql.splitlines(keepends=True)[: line - 1])
    return max(0, min(before + column - max(len(highlight), 1), len(sql)))


def _open_quote(sql: str) -> int:
    opened = ""
    at = 0
    for offset, character in enumerate(sql):
        if opened:
            opened = "" if character == opened and sql[offset - 1] != "\\" else opened
        elif character in "'\"`":
            opened, at = character, offset
    return at


def _first_word(sql: str) -> str:
    found = re.search(r"\w+", sql)
    return found.group() if found else sql


def _wrong(sql: str, kind: Literal["query", "expression"], offset: int, message: str, remedy: str) -> Text:
    return Text(sql, kind, None, SqlFault("sql-syntax", offset, message, remedy))
