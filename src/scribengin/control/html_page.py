"""The status of a process as a small page for people: the same as its JSON, in tables."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_STYLE = "body{font:14px/1.5 system-ui,sans-serif;margin:2em;max-width:60em}th{text-align:left;padding-right:2em;vertical-align:top}"
_LINKS = ("http", "page")
"""the keys whose values become links; other texts that look like addresses stay text"""


def page(found: Mapping[str, Any], *, title: str = "", json: str = "/json") -> str:
    """An HTML page with a table of names and values; lists and mappings become tables inside.

    Args:
        found: what is shown. A value under `http` or `page` becomes a link if it is an address or a path; names and texts of flows stay
            text.
        title: of the page; the worker in `found` if empty.
        json: the address of the same as JSON.
    """
    title = html.escape(title or str(found.get("worker", "")))
    link = f'<p><a href="{html.escape(json)}">the same as JSON</a></p>'
    return f"<!doctype html><title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>{_table(found)}{link}\n"


def _table(found: Mapping[str, Any]) -> str:
    rows = (f"<tr><th>{html.escape(str(name))}</th><td>{_cell(value, name)}</td></tr>" for name, value in found.items())
    return f"<table>{''.join(rows)}</table>"


def _cell(value: Any, name: str = "") -> str:
    if isinstance(value, dict):
        return _table(value)
    if isinstance(value, list | tuple):
        return "".join(f"<div>{_cell(each, name)}</div>" for each in value) or "–"
    if value is None or value == "":
        return "–"
    text = html.escape(str(value))
    if name in _LINKS and str(value).startswith(("http://", "https://", "/")):
        return f'<a href="{text}">{text}</a>'
    return text
