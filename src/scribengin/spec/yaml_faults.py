"""Explains libyaml's syntax errors in terms of the flow file, with a remedy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import yaml

_INDICATORS = {
    "@": "an @ cannot begin a value",
    "`": "a backtick cannot begin a value",
    "%": "a % cannot begin a value",
}


def explain(error: yaml.MarkedYAMLError, text: str) -> tuple[str, str, int]:
    """Return (message, remedy, offset of the character in the text)."""
    mark = error.problem_mark or error.context_mark
    offset = min(mark.index, len(text)) if mark else 0
    opened = error.context_mark.index if error.context_mark else offset
    problem, context = error.problem or "", error.context or ""
    line = _line_at(text, offset)
    if "\t" in (text[offset : offset + 1], text[opened : opened + 1]) or "tab character" in problem:
        tab = text.find("\t", text.rfind("\n", 0, offset) + 1)
        return "a tab indents this line; YAML allows only spaces", "replace the tab with spaces", tab if tab >= 0 else offset
    if "cannot start any token" in problem:
        found = text[offset : offset + 1]
        return _INDICATORS.get(found, f"{found} cannot begin a value"), "quote the value", offset
    if "mapping values are not allowed" in problem:
        return _stray_colon(text, offset)
    if "could not find expected ':'" in problem:
        return _key_without_colon(text, opened)
    if "quoted scalar" in context and "end of stream" in problem:
        return (
            f"the {_quote_name(text, opened)} that opens here is never closed",
            "close it; to write a quote inside the text, double it",
            opened,
        )
    if "quoted scalar" in context and "escape" in problem:
        escape = offset if text[offset] == "\\" else offset - 1
        remedy = r"write \\ for a backslash, or use single quotes, in which a backslash has no special meaning"
        return f"{text[escape : escape + 2]} is not a valid escape in a double-quoted text", remedy, escape
    if "flow mapping" in context or "flow sequence" in context:
        return _flow(text, offset, opened, context)
    if "block scalar" in context:
        found = text[opened]
        return (
            f"a value that begins with {found} is a text block, whose text starts on the next line",
            f"quote the value if the {found} belongs to it",
            opened,
        )
    if "sequence entries are not allowed" in problem:
        return "a list with - must start on its own line", "put each - item on its own line, or write [a, b]", offset
    if "block mapping" in context:
        before = text[:offset].rstrip(" ")
        if before.endswith(("'", '"')) and not before.endswith("\n"):
            return "the quoted value ends before this", "double a quote that belongs to the text, or quote the whole value", offset
        if not line[: _column(text, offset)].strip():
            return (
                "the indentation of this line does not match a line above it",
                "indent all keys of one mapping by the same number of spaces",
                offset,
            )
        return "a key was expected here", "quote the value if this belongs to it", offset
    if "block collection" in context:
        item = "begin each item with - at the same indentation, or end the list by indenting less"
        if re.match(r"\s*[\w.-]+\s*:", line):
            dash = _column(text, opened) + 1
            return (
                f"this line has a name and no dash, and line {text.count(chr(10), 0, opened) + 1} begins a list",
                f"sources, steps and sinks are written without a dash: remove the one in column {dash} there; or {item}",
                offset,
            )
        return "a list item was expected here", item, offset
    if "node content" in problem:
        return f"{text[offset : offset + 1] or 'the end'} found; a value was expected", "if it is text, quote it", offset
    return f"not valid YAML: {' '.join(filter(None, (context, problem)))}", "if it is text, quote the value", offset


def _line_at(text: str, offset: int) -> str:
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    return text[start : end if end >= 0 else len(text)]


def _column(text: str, offset: int) -> int:
    return offset - (text.rfind("\n", 0, offset) + 1)


def _quote_name(text: str, offset: int) -> str:
    return "double quote" if text[offset : offset + 1] == '"' else "single quote"


def _stray_colon(text: str, offset: int) -> tuple[str, str, int]:
    """Explain `: ` where no key is possible: a text that contains it, or an earlier line without its space or with a value and children."""
    line = _line_at(text, offset)
    before = text[: offset - _column(text, offset)].rstrip().rpartition("\n")[2]
    glued = re.match(r"\s*(?:- )?([A-Za-z_][\w-]*):(\S.*)\Z", before)
    if glued and not line[: _column(text, offset)].strip().count(": "):
        where = text.rindex(before, 0, offset) + glued.start(2)
        return f'there is no space after "{glued.group(1)}:"', "write a space after the colon", where
    if ": " in line[: _column(text, offset)] or "- " in line[: _column(text, offset)].lstrip()[:2]:
        return "a value without quotes cannot contain `: `", "quote the value", offset
    return (
        "this key is indented under a line that already has a value",
        "indent it like the keys beside it, or quote the text above",
        offset,
    )


def _key_without_colon(text: str, offset: int) -> tuple[str, str, int]:
    line = _line_at(text, offset)
    glued = re.match(r"\s*(?:- )?([A-Za-z_][\w-]*):(\S)", line)
    if glued:
        where = offset - _column(text, offset) + glued.start(2)
        return f'there is no space after "{glued.group(1)}:"', "write a space after the colon", where
    return (
        f'"{line.strip()}" is not a key and not a list item',
        "write `key: value`; indent the following lines of a long text more than its key",
        offset,
    )


def _flow(text: str, offset: int, opened: int, context: str) -> tuple[str, str, int]:
    open_, close = ("{", "}") if "mapping" in context else ("[", "]")
    found = text[offset : offset + 1]
    if found in ("]", "}") and found != close:
        return f"expected {close} for the {open_} before it, found {found}", f"close with {close}", offset
    if not found or "\n" in text[opened:offset]:
        return f"the {open_} that opens here is never closed", f"close it with {close}", opened
    if found == "{" and text[offset - 1 : offset] == "$":
        return f"inside {open_} {close} a value with ${{…}} needs quotes", "quote the value", offset - 1
    if found == ":":
        return "a value without quotes cannot contain `: `", "quote the value", offset
    return f"a comma or {close} was expected here", f"close with {close}, or quote the value", offset
