"""Converts msgspec's errors to messages of dead letters: the field, the found and the expected value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scribengin.formats.contract import Bad

if TYPE_CHECKING:
    from scribengin.core.types import Schema, Type

_AT = re.compile(r"(.*?)(?: - at (`key` in )?`(.*)`)?\Z", re.DOTALL)
_GOT = re.compile(r"Expected `.*`, got `(.*)`\Z")
_LACKS = re.compile(r"Object missing required field `(.*)`\Z", re.DOTALL)


def invalid(schema: Schema, ordinal: int, error: str) -> Bad:
    """The Bad of a record that msgspec rejected with `error`."""
    what, key, path = _AT.match(error).groups()  # type: ignore[union-attr]
    path = (path or "").removeprefix("$")
    if lacks := _LACKS.match(what):
        return Bad(ordinal, "missing", misfit_message(schema, f"{path}.{lacks[1]}", "null"))
    if got := _GOT.match(what):
        found = got[1]
        if not path:
            return Bad(ordinal, "wrong-type", f"found {_article(found)}, expected an object")
        reason = "missing" if found == "null" else "wrong-type"
        return Bad(ordinal, reason, misfit_message(schema, path, "a key of the wrong type" if key else _article(found)))
    if "out of range" in what or "<=" in what or ">=" in what:
        return Bad(ordinal, "out-of-range", misfit_message(schema, path, "a number out of range"))
    return Bad(ordinal, "invalid-value", misfit_message(schema, path, what[0].lower() + what[1:]))


def malformed(ordinal: int, error: str) -> Bad:
    """The Bad of a line that is not a JSON object."""
    error = error.removeprefix("JSON is malformed: ")
    plain = "truncated JSON (or an unpaired UTF-16 surrogate)" if error == "Input data was truncated" else error
    return Bad(ordinal, "malformed", f"not a JSON object: {plain}")


def misfit_message(schema: Schema, path: str, found: str) -> str:
    """The message for a value found at `.a.b[0]`, with the type that the schema expects there."""
    asked = _asked(schema, path)
    if found == "null":
        return f'field "{path.lstrip(".")}" is missing or null; expected {asked} NOT NULL'
    return f'field "{path.lstrip(".")}": found {found}' + (f"; expected {asked}" if asked else "")


def _asked(schema: Schema, path: str) -> str:
    """The type that the schema gives for `.a.b[0]`, with its NOT NULL; empty if the schema does not have the path."""
    for field in schema.fields:
        if path == f".{field.name}" or path.startswith((f".{field.name}.", f".{field.name}[")):
            return _inside(field.type, path[1 + len(field.name) :]) or str(field.type)
    return ""


def _inside(type_: Type, path: str) -> str:
    if not path:
        return str(type_)
    if path.startswith("[") and type_.parts:
        return _inside(type_.parts[-1], path[path.find("]") + 1 :])
    for field in type_.fields:
        if path == f".{field.name}" or path.startswith((f".{field.name}.", f".{field.name}[")):
            return _inside(field.type, path[1 + len(field.name) :])
    return ""


def _article(kind: str) -> str:
    named = {"str": "a string", "int": "an integer", "float": "a number with decimals or an exponent", "bool": "true or false"}
    return named.get(kind, "null" if kind == "null" else f"an {kind}" if kind[0] in "aeio" else f"a {kind}")
