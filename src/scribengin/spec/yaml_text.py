"""Writes plain data as readable YAML text that YAML 1.2 parsers and PyYAML read with the same result."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PLAIN = re.compile(
    r"(?:[A-Za-z_./][^\x00-\x1f\x7f-\xa0\xad\u1680\u2000-\u206f\u3000\ufeff\ud800-\udfff\ufffe\uffff{}\[\],:#]*|\d+(?:\.\d+)?[A-Za-z]+)\Z"
)
_WORDS = re.compile(r"(?:yes|no|on|off|true|false|null|~|\.nan|\.inf|\.[0-9_].*)\Z", re.IGNORECASE)
_ESCAPED = re.compile('["\\\\\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufffe\uffff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_WIDTH = 140


def write_yaml(data: Mapping[str, Any], *, open_levels: int = 2) -> str:
    """The document. Mappings of the first `open_levels` levels have a line for each key; deeper ones are `{…}` if they fit.

    Values are None, booleans, ints, floats, texts, lists and mappings. A text of several lines becomes a block if YAML allows it.
    """
    return "".join(f"{line}\n" for line in _mapping(data, 0, open_levels))


def _mapping(data: Mapping[str, Any], depth: int, open_levels: int) -> Iterator[str]:
    indent = "  " * depth
    for key, value in data.items():
        name = write_scalar(key)
        if isinstance(value, str) and _fits_block(value):
            yield f"{indent}{name}: |{_chomping(value)}"
            for line in value.removesuffix("\n").split("\n"):
                yield f"{indent}  {line}" if line else ""
        elif isinstance(value, dict) and value and (depth < open_levels or not _fits_line(value, len(indent) + len(name))):
            yield f"{indent}{name}:"
            yield from _mapping(value, depth + 1, open_levels)
        elif isinstance(value, (list, tuple)) and value and not _fits_line(value, len(indent) + len(name)):
            yield f"{indent}{name}:"
            for item in value:
                yield f"{indent}  - {_flow(item)}"
        else:
            yield f"{indent}{name}: {_flow(value)}"


def _fits_line(value: Any, used: int) -> bool:
    return not _has_block(value) and used + len(_flow(value)) <= _WIDTH


def _has_block(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_block, value.values()))
    return isinstance(value, str) and _fits_block(value)


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{write_scalar(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return write_scalar(value)


def write_scalar(value: Any) -> str:
    """One value on one line, in quotes if needed.

    >>> write_scalar("yes"), write_scalar("a > 5"), write_scalar("a: b"), write_scalar(2.0), write_scalar(True)
    ('"yes"', 'a > 5', '"a: b"', '2.0', 'true')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(repr(value), repr(value))
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if _PLAIN.match(text) and not _WORDS.match(text) and text == text.strip():
        return text
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(found: re.Match[str]) -> str:
    char = found.group()
    code = ord(char)
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def _fits_block(text: str) -> bool:
    lines = text.removesuffix("\n").split("\n")
    if len(lines) < 2 or lines[0][:1] in (" ", "") or not lines[-1]:
        return False
    return not any(line != line.rstrip() or "\t" in line or _ESCAPED.search(line.replace('"', "").replace("\\", "")) for line in lines)


def _chomping(text: str) -> str:
    return "" if text.endswith("\n") else "-"


def escaped(text: str) -> str:
    """The text escaped for a flow file, where `${` begins a reference: a plain `${` is written `$${`."""
    return text.replace("${", "$${")


def names_data(names: tuple[str, ...]) -> str | list[str]:
    """One name by itself, several as a list."""
    return escaped(names[0]) if len(names) == 1 else [escaped(name) for name in names]
