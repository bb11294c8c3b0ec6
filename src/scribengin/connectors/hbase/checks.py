"""Checks of the row keys of HBase tables that are formed from columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.hbase.row_keys import Template
from scribengin.core.problems import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.check_contract import CheckedNode, Keys
    from scribengin.core.problems import Problem


def row_keys_tell_keys_apart(sink: CheckedNode) -> Iterator[Problem]:
    """A template of row keys must have exactly the columns of the key, and different keys must give different row keys."""
    if text := sink.options.get("row"):
        try:
            types = {column.name: column.type for column in sink.columns or () if column.type}
            wrong = Template.of(text).unlike(sink.options.get("key") or (), types)
        except ValueError as error:
            wrong = [f"`row` has {error}"]
        for message in wrong:
            remedy = 'use the columns of `key`, such as: row: "{customer}/{id:8}"'
            yield sink.problem_at_key("table-mode", sink.path("row"), f"{sink.called}: {message}", remedy)


def row_keys_are_made_of_columns(source: CheckedNode) -> Iterator[Problem]:
    """Columns that an HBase source reads from row keys or cells must be columns of its schema, and the parts of a row key must be
    separable."""
    if source.schema is None:
        return
    schema, wrong = source.schema, list[str]()
    named: list[tuple[Keys, str]] = [(("columns", name), name) for name in source.options.get("columns") or ()]
    try:
        template = Template.of(source.options.get("row", ""))
        wrong = template.unlike(template.names, {field.name: field.type for field in schema.fields})
        named += [(("row",), name) for name in template.names]
    except ValueError as error:
        wrong = [f"`row` has {error}"]
    for message in wrong:
        remedy = 'use columns of `schema`, such as: row: "{customer}/{id:8}"'
        yield source.problem_at_key("table-mode", source.path("row"), f"{source.called}: {message}", remedy)
    for place, name in named:
        if name not in schema:
            message = f'{source.called} has {place[0]} "{name}", a column that `schema` does not have'
            remedy = suggestion(name, schema.names, "its columns are")
            yield source.problem("column-unknown", source.path(*place), message, remedy)
