"""Handles backslashes in SQL texts. Spark's parser removes them from a literal: it reads `'^\\d+$'` as `^d+$`, which matches no digits.

In a pattern, a backslash that does not begin an escape of a literal is kept, so `'\\d'`, `'\\\\d'` and `r'\\d'` are the same
(docs/decisions/0060). In other texts Spark's rule applies, and dropped backslashes are reported. So are pattern letters of times that Spark
rejects at run time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from scribengin.plan.sql.parse import SqlFault, tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot.tokenizer_core import Token

_REGEXES = {
    **dict.fromkeys(("regexp_extract", "regexp_extract_all", "regexp_like", "regexp", "rlike", "split"), (1,)),
    **dict.fromkeys(("regexp_count", "regexp_instr", "regexp_substr"), (1,)),
    "regexp_replace": (1, 2),
    "str_to_map": (1, 2),
}
"""function → the numbers of its arguments that are regular expressions, or the replacement for one"""
_LIKES = {"like": (1,), "ilike": (1,)}
_READ_TIMES = frozenset(
    (
        "to_timestamp",
        "try_to_timestamp",
        "to_timestamp_ntz",
        "to_timestamp_ltz",
        "to_date",
        "try_to_date",
        "unix_timestamp",
        "to_unix_timestamp",
    )
)
_WRITE_TIMES = frozenset({"date_format", "from_unixtime"})
"""functions whose second argument is a time pattern, for parsing or formatting texts"""
_OF_TIMES = frozenset("GyDMLdahKkHmsSVzOXxZ")
_OF_WRITTEN_TIMES = _OF_TIMES | frozenset("QqEF")
"""pattern letters"""
_WEEKDAY = re.compile(r"E{3}(,? )(.*)", re.DOTALL)
_ENDS = frozenset(
    {
        *("AND", "OR", "ESCAPE", "THEN", "ELSE", "WHEN", "END", "AS", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "ON"),
        *("UNION", "EXCEPT", "INTERSECT", "JOIN", "=", "<>", "!=", "<", ">", "<=", ">="),
    }
)
"""tokens that end the pattern after RLIKE or LIKE"""
_OPERANDS = frozenset({"VAR", "IDENTIFIER", "STRING", "RAW_STRING", "R_PAREN", "R_BRACKET", "NOT", "NUMBER"})
"""tokens after which RLIKE and LIKE are operators, not functions"""
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.|\Z)", re.DOTALL)
_NAMED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_OF_REGEXES = frozenset("bZ")
"""escapes of a literal that have another meaning in regular expressions: the edge of a word, the end of the text"""


@dataclass(frozen=True, slots=True)
class _Literal:
    """A text in quotes: its offset and its use. `kind`: "regex", "like" or ""."""

    start: int
    source: str
    kind: str
    function: str = ""
    """the function whose argument it is, and the argument's number"""
    argument: int = 0
    escaped: bool = False
    """True if `like` has an ESCAPE"""

    @property
    def body(self) -> str:
        return self.source[1:-1]

    def value(self) -> str:
        """The text as Spark reads it."""
        return _ESCAPE.sub(lambda found: _character(found[1]), self.body)

    def meant(self) -> str:
        """The text as a regular expression should have it."""
        return _ESCAPE.sub(lambda found: found[0] if _is_of_regexes(found[1]) else _character(found[1]), self.body)

    def lost(self) -> re.Match[str] | None:
        """The first backslash that Spark drops and that has no meaning; None if there is none."""
        return next((found for found in _ESCAPE.finditer(self.body) if _is_meaningless(found[1])), None)


def escape_patterns(sql: str) -> str:
    """The text with its patterns escaped so that Spark reads them as meant; everything else stays, character for character.

    >>> print(escape_patterns(r"v RLIKE '^\\d+$' AND w = 'a\\d'"))
    v RLIKE '^\\\\d+$' AND w = 'a\\d'
    """
    if "\\" not in sql:
        return sql
    for literal in reversed(_literals(sql)):
        if literal.kind == "regex" and literal.meant() != literal.value():
            quote = literal.source[0]
            text = literal.meant().replace("\\", "\\\\").replace(quote, f"\\{quote}")
            sql = f"{sql[: literal.start]}{quote}{text}{quote}{sql[literal.start + len(literal.source) :]}"
    return sql


def backslash_faults(sql: str) -> Iterator[SqlFault]:
    """The faults of a text: backslashes that Spark drops, LIKE patterns that it rejects at the first row, and `\\1` in place of `$1` for a
    group."""
    for literal in _literals(sql) if "\\" in sql else ():
        if literal.kind == "regex":
            group = re.search(r"\\(\d)", literal.meant()) if (literal.function, literal.argument) == ("regexp_replace", 2) else None
            if group is not None:
                message = f"{literal.source} inserts the digit {group[1]}, not a group of the pattern"
                yield SqlFault("sql-backslash", literal.start, message, f"write ${group[1]} for the group", "warning")
            continue
        if literal.kind == "like" and not literal.escaped and (wrong := _invalid_like_escape(literal.value())) is not None:
            message = f"in {literal.source} a backslash is before {wrong or 'the end'}; LIKE allows it only before %, _ and \\"
            yield SqlFault("sql-backslash", literal.start, message, "write \\\\\\\\ for one backslash of the text, or use RLIKE")
        elif (lost := literal.lost()) is not None:
            doubled = "\\" * (4 if literal.kind == "like" else 2)
            remedy = f"write {doubled}{lost[1]} for a backslash, or take it out"
            message = f"Spark drops the backslash before {lost[1]} in {literal.source}"
            yield SqlFault("sql-backslash", literal.start + 1 + lost.start(), message, remedy, "warning")


def time_faults(sql: str) -> Iterator[SqlFault]:
    """The faults of time patterns with pattern letters for which Spark fails at the first row."""
    for literal in _strings(sql) if "(" in sql else ():
        reads = literal.function in _READ_TIMES
        if literal.argument != 1 or not (reads or literal.function in _WRITE_TIMES):
            continue
        pattern = literal.value()
        plain = re.sub(r"'[^']*'", lambda found: " " * len(found[0]), pattern)
        known = _OF_TIMES if reads else _OF_WRITTEN_TIMES
        wrong = next((letter for letter in plain if letter.isascii() and letter.isalpha() and letter not in known), None)
        if wrong is None:
            continue
        remedy = f"pattern letters are {' '.join(sorted(known, key=str.lower))}; put other text in single quotes"
        if reads and wrong in _OF_WRITTEN_TIMES:
            remedy = "remove that part from the text, for example with regexp_replace, and from the pattern"
        if found := _WEEKDAY.fullmatch(pattern) if reads else None:
            rest = f"substring(TEXT, {4 + len(found[1])}), '{found[2]}'"
            remedy = f"remove the name of the day: {literal.function}({rest})"
        message = f"Spark cannot {'parse' if reads else 'format'} a time with the pattern letter {wrong} in {literal.source}"
        yield SqlFault("sql-time-pattern", literal.start, message, remedy)


def _character(escape: str) -> str:
    """The character that Spark reads for a backslash followed by `escape`."""
    if len(escape) == 1 or not escape:
        return _NAMED.get(escape, escape)
    return chr(int(escape[1:], 16)) if escape[0] in "uU" else chr(int(escape, 8))


def _is_meaningless(escape: str) -> bool:
    return len(escape) == 1 and escape not in _NAMED and escape not in "\\'\"\n"


def _is_of_regexes(escape: str) -> bool:
    return _is_meaningless(escape) or escape in _OF_REGEXES


def _invalid_like_escape(pattern: str) -> str | None:
    found = re.search(r"\\([^%_\\]|\Z)", re.sub(r"\\[%_\\]", "", pattern))
    return None if found is None else found[1]


@dataclass(slots=True)
class _Frame:
    """An open parenthesis, of a function call or not."""

    function: str
    inherited: str
    argument: int = 0
    behind: str = ""
    """the kind of a literal that follows RLIKE or LIKE here"""

    @property
    def kind(self) -> str:
        if self.argument in _REGEXES.get(self.function, ()):
            return "regex"
        if self.argument in _LIKES.get(self.function, ()):
            return "like"
        return self.behind or self.inherited


def _literals(sql: str) -> tuple[_Literal, ...]:
    """The literals with a backslash that Spark would unescape."""
    return tuple(literal for literal in _strings(sql) if "\\" in literal.source)


@lru_cache(maxsize=1024)
def _strings(sql: str) -> tuple[_Literal, ...]:
    """The texts in quotes, except for raw ones; empty for a text that cannot be tokenized."""
    tokens = tokens_of(sql)
    frames = [_Frame("", "")]
    found: list[_Literal] = []
    for index, token in enumerate(tokens):
        kind, word = token.token_type.name, token.text.upper()
        frame = frames[-1]
        before = tokens[index - 1].token_type.name if index else ""
        if kind == "L_PAREN":
            frames.append(_Frame(_called(tokens, index), frame.kind))
        elif kind == "R_PAREN" and len(frames) > 1:
            frames.pop()
        elif kind == "COMMA":
            frame.argument += 1
            frame.behind = ""
        elif kind in ("RLIKE", "LIKE", "ILIKE") and before in _OPERANDS:
            frame.behind = "regex" if kind == "RLIKE" else "like"
        elif word in _ENDS and kind != "STRING":
            frame.behind = ""
        elif kind == "STRING":
            source = sql[token.start : token.end + 1]
            is_escaped = index + 1 < len(tokens) and tokens[index + 1].text.upper() == "ESCAPE"
            found.append(_Literal(token.start, source, frame.kind, frame.function, frame.argument, is_escaped))
    return tuple(found)


def _called(tokens: tuple[Token, ...], index: int) -> str:
    """The name of the function whose parenthesis this is, in lower case; empty if it is not that of a call."""
    if not index:
        return ""
    name = tokens[index - 1]
    is_operator = name.token_type.name in ("RLIKE", "LIKE", "ILIKE") and index > 1 and tokens[index - 2].token_type.name in _OPERANDS
    return "" if is_operator or name.token_type.name == "STRING" else name.text.lower()
