"""A test's clock: writes the current time of the test into the SQL texts of the twin.

It replaces `current_timestamp`, `now`, `localtimestamp`, `current_date`, `curdate` and `unix_timestamp()` in every SQL text of the flow. It
does not affect Python's clock: a Python step that needs the time should read it from a column.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.spec.model import Aggregate, Filter, Route, Select, Sql, Step

if TYPE_CHECKING:
    from datetime import datetime

    from scribengin.spec.model import Action, Flow

_CALLS = {"current_timestamp", "now", "localtimestamp", "current_date", "curdate", "unix_timestamp"}
_BARE = {"current_timestamp", "current_date", "localtimestamp"}


def at_time(flow: Flow, now: datetime) -> Flow:
    """Return the flow with that time as the current time of its SQL."""
    return replace(flow, steps={id_: _step(step, now) for id_, step in flow.steps.items()})


def rule_text(sql: str, now: datetime) -> str:
    """Return the text with the time in place of each call.

    >>> from datetime import UTC, datetime
    >>> rule_text("ts < now() - INTERVAL 1 DAY AND note <> 'now()'", datetime(2026, 1, 2, tzinfo=UTC))
    "ts < TIMESTAMP'2026-01-02 00:00:00.000000Z' - INTERVAL 1 DAY AND note <> 'now()'"
    """
    from sqlglot.dialects import Spark
    from sqlglot.tokenizer_core import TokenType

    tokens = Spark().tokenize(sql)
    cuts: list[tuple[int, int, str]] = []
    for index, token in enumerate(tokens):
        word = token.text.lower()
        if word not in _CALLS or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        if index and tokens[index - 1].token_type in (TokenType.DOT, TokenType.ALIAS):  # a column, or what one is to be called
            continue
        empty = [each.token_type for each in tokens[index + 1 : index + 3]] == [TokenType.L_PAREN, TokenType.R_PAREN]
        if empty:
            cuts.append((token.start, tokens[index + 2].end + 1, _literal(word, now)))
        elif word in _BARE and (index + 1 == len(tokens) or tokens[index + 1].token_type != TokenType.L_PAREN):
            cuts.append((token.start, token.end + 1, _literal(word, now)))
    for start, end, text in reversed(cuts):
        sql = sql[:start] + text + sql[end:]
    return sql


def _literal(word: str, now: datetime) -> str:
    match word:
        case "current_date" | "curdate":
            return f"DATE'{now:%Y-%m-%d}'"
        case "unix_timestamp":
            return f"BIGINT({int(now.timestamp())})"
        case "localtimestamp":
            return f"TIMESTAMP_NTZ'{now:%Y-%m-%d %H:%M:%S.%f}'"
    return f"TIMESTAMP'{now:%Y-%m-%d %H:%M:%S.%f}Z'"


def _step(step: Step, now: datetime) -> Step:
    require = tuple((name, rule_text(text, now)) for name, text in step.require)
    return replace(step, action=_action(step.action, now), require=require)


def _action(action: Action, now: datetime) -> Action:
    match action:
        case Filter(predicate):
            return Filter(rule_text(predicate, now))
        case Sql(text):
            return Sql(rule_text(text, now))
        case Select(columns):
            return Select(_pairs(columns, now))
        case Route(cases, otherwise):
            return Route(_pairs(cases, now), otherwise)
        case Aggregate():
            return replace(action, columns=_pairs(action.columns, now))
    return action


def _pairs(pairs: tuple[tuple[str, str], ...], now: datetime) -> tuple[tuple[str, str], ...]:
    return tuple((name, rule_text(text, now)) for name, text in pairs)
