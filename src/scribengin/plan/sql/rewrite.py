"""Replaces the names of a query's inputs in its text; everything else stays, character for character."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.sql.names import table_names, table_reference
from scribengin.plan.sql.parse import parse_query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import exp


def rename_inputs(sql: str, views: Mapping[str, str]) -> str:
    """The text in which each input (`tagged`, `r.big`) is read from the view that `views` has for it, with its old name as alias.

    For running the text: views of several queries may need separate names, and no view can have the name `r.big`. CTEs with the name of an
    input are not changed. `parse_query` must be able to parse the text.

    >>> rename_inputs("SELECT t.id FROM r.big t JOIN users ON t.user = users.user", {"r.big": "v1", "users": "v2"})
    'SELECT t.id FROM `v1` t JOIN `v2` AS `users` ON t.user = users.user'
    """
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    text = parse_query(sql)
    assert text.tree is not None
    folded = {word.lower(): view for name, view in views.items() for word in table_names(name)}
    cuts: dict[int, tuple[int, str]] = {}
    for scope in traverse_scope(text.tree):
        for _, source in scope.selected_sources.values():
            if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
                continue
            view = folded.get(table_reference(source).lower())
            if view is not None:
                alias = "" if source.alias_column_names or source.args.get("alias") else f" AS `{source.name}`"
                cuts[_first(source)] = (_last(source), f"`{view}`{alias}")
    for start, (end, name) in sorted(cuts.items(), reverse=True):
        sql = sql[:start] + name + sql[end:]
    return sql


def _first(table: exp.Table) -> int:
    start: int = table.parts[0].meta["start"]
    return start


def _last(table: exp.Table) -> int:
    end: int = table.parts[-1].meta["end"]
    return end + 1
